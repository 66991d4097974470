package memory

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// Least is the smallest limit that the gateway can be given: what it takes by itself, and one request of the largest kind, have room in it.
	Least = 192 << 20
	// share is the part of the machine's memory that is the limit where nobody set one: one in so many.
	share = 8
)

// Default is the limit where nobody set one: a share of the memory that the machine or the control group has, and Least at least.
func Default() int64 { return defaultOf(available("/")) }

func defaultOf(available int64) int64 { return max(Least, available/share) }

// available is the memory of the machine, or of the control group that this process runs in where that has less; 0 if nobody says. root is where the
// system's files are.
func available(root string) int64 {
	least := int64(math.MaxInt64)
	for line := range strings.Lines(read(root, "proc/meminfo")) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			if kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64); err == nil && kib > 0 {
				least = min(least, kib<<10)
			}
		}
	}
	for line := range strings.Lines(read(root, "proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		for at := filepath.Clean("/" + parts[2]); ; at = filepath.Dir(at) { // a group is bounded by those above it, too; a container sees its own at the top
			if n, err := strconv.ParseInt(strings.TrimSpace(read(root, filepath.Join(dir, at, file))), 10, 64); err == nil && n > 0 {
				least = min(least, n)
			}
			if at == "/" {
				break
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

func read(root, name string) string {
	b, _ := os.ReadFile(filepath.Join(root, name)) // what isn't there says nothing
	return string(b)
}

// growth is how much the heap may grow, in percent of what is live, before the collector runs. The gateway allocates much for each call and holds little:
// with less than this the collector costs more than 5 % of the work, and with more the process has over 80 MiB at 64 callers. A limit that is near what is
// live would do the same to memory and be ruinous at 500 callers, where more is live: the collector would run all the time to stay below it.
const growth = 140

// Tune tells the runtime the limit. GOGC and GOMEMLIMIT in the environment win.
func Tune(limit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(growth)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
