package memory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"sallyport.example/internal/fault"
)

const mib = 1 << 20

// body is how long a body is that takes n bytes of a budget.
func body(n int64) int64 { return (n - PerCall) / Factor }

// Whatever requests come, grow and end, by whichever agents: never more is held than there is, what is held is the sum of what the holds have, an agent that
// has several holds at least as much free as it holds, and at the end all of it is back.
func TestNeverAboveAndAllGivenBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			b := New(64 * mib)
			var all sync.WaitGroup
			look := func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				sum := int64(0)
				for agent, held := range b.held {
					if sum += held; held <= 0 {
						rt.Errorf("%s holds %d", agent, held)
					}
				}
				if sum != b.used || b.used > b.total {
					rt.Errorf("%d are held by agents, %d in all, of %d", sum, b.used, b.total)
				}
			}
			for i := range rapid.IntRange(1, 60).Draw(rt, "requests") {
				agent := fmt.Sprint("agent", rapid.IntRange(0, 3).Draw(rt, "agent"))
				size := rapid.OneOf(rapid.Int64Range(0, 4<<10), rapid.Int64Range(0, 4*mib)).Draw(rt, "size")
				after := time.Duration(rapid.IntRange(0, 5000).Draw(rt, "after")) * time.Millisecond
				lasts := time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "lasts")) * time.Millisecond
				more := rapid.SliceOfN(rapid.IntRange(0, mib), 0, 5).Draw(rt, "more")
				how := rapid.SampledFrom([]string{"ends", "panics", "gives up"}).Draw(rt, "how")
				all.Go(func() {
					defer func() { _ = recover() }()
					time.Sleep(after)
					ctx := context.Background()
					if how == "gives up" {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, lasts/4)
						defer cancel()
					}
					h, err := b.Take(ctx, agent, size)
					defer h.Release()
					look()
					if err != nil {
						if h != nil || !fault.Is(err, fault.LimitRate) && !errors.Is(err, context.DeadlineExceeded) && !fault.Is(err, fault.RequestMalformed) {
							rt.Errorf("request %d: %v %v", i, h, err)
						}
						return
					}
					for _, n := range more {
						begun := time.Now()
						if err := h.More(n); err != nil && (!fault.Is(err, fault.LimitRate) || fault.Of(err).Again <= 0) {
							rt.Errorf("more: %v", err)
						}
						if time.Since(begun) != 0 {
							rt.Errorf("a request that holds something waited for more")
						}
						look()
					}
					time.Sleep(lasts)
					if how == "panics" {
						panic(how)
					}
					h.Release()
					if h.More(1) == nil {
						rt.Errorf("a request that has ended took more")
					}
				})
			}
			all.Wait()
			if b.used != 0 || len(b.held) != 0 || len(b.waiting) != 0 {
				rt.Errorf("at the end %d are held, by %v, and %d wait", b.used, b.held, len(b.waiting))
			}
		})
	})
}

// One agent that takes all it can leaves room for each other one, small and large, and what it has asked for since waits.
func TestOneAgentLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(96 * mib)
		flood, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 256 {
			all.Go(func() {
				h, err := b.Take(flood, "flooder", body(8*mib))
				if err == nil {
					<-flood.Done()
				}
				h.Release()
			})
		}
		synctest.Wait()
		for i, n := range []int64{0, 4 << 10, body(8 * mib), 100 << 10} {
			begun := time.Now()
			h, err := b.Take(t.Context(), "quiet", n)
			if err != nil || time.Since(begun) != 0 {
				t.Errorf("request %d, of %d bytes, waited %s: %v", i, n, time.Since(begun), err)
				continue
			}
			if err := h.More(64 << 10); err != nil {
				t.Errorf("the answer to request %d: %v", i, err)
			}
			h.Release()
		}
		if held := b.held["flooder"]; held > b.total/2 || held < b.total/4 {
			t.Errorf("the flooder holds %d of %d", held, b.total)
		}
		cancel()
		all.Wait()
	})
}

// A wait ends with a time to come again. Requests that wait are served in turns: the next is that of the agent which holds least, and a small one does not
// wait for a large one.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(96 * mib)
		first, err := b.Take(t.Context(), "a", body(40*mib))
		if err != nil {
			t.Fatal(err)
		}
		small, err := b.Take(t.Context(), "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if h, err := b.Take(t.Context(), "a", body(40*mib)); h != nil || !fault.Is(err, fault.LimitRate) || fault.Of(err).Again <= 0 || time.Since(begun) != Patience {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		var order []string
		take := func(name, agent string, n int64) {
			go func() {
				h, err := b.Take(t.Context(), agent, n)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				order = append(order, name)
				time.Sleep(time.Second)
				h.Release()
			}()
			synctest.Wait()
		}
		take("second of a", "a", body(40*mib))
		take("large of b", "b", body(60*mib))
		take("small of c", "c", 100)
		time.Sleep(time.Second)
		first.Release()
		time.Sleep(5 * time.Second)
		small.Release()
		if got := fmt.Sprint(order); got != "[small of c large of b second of a]" {
			t.Errorf("the order is %s", got)
		}
		if b.used != 0 {
			t.Errorf("%d are held", b.used)
		}
	})
}

// Held says what is held, and nothing once it is given back.
func TestHeld(t *testing.T) {
	b := New(mib)
	h, err := b.Take(t.Context(), "a", 100)
	if used, total, waiting := b.Held(); err != nil || used != PerCall+100*Factor || total != mib || waiting != 0 {
		t.Errorf("%d of %d, %d wait, %v", used, total, waiting, err)
	}
	h.Release()
	if used, _, _ := b.Held(); used != 0 {
		t.Errorf("%d are held by nobody", used)
	}
	if used, total, waiting := (*Budget)(nil).Held(); used != 0 || total != 0 || waiting != 0 {
		t.Errorf("without a bound: %d of %d, %d wait", used, total, waiting)
	}
}

// A request that never fits is refused at once, and so is one of an agent of which too many wait.
func TestRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Least / 2)
		begun := time.Now()
		if _, err := b.Take(t.Context(), "a", 16*mib); !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%v", err)
		}
		h, err := b.Take(t.Context(), "a", 4*mib) // the largest body of a request fits into the smallest limit
		if err != nil || time.Since(begun) != 0 {
			t.Fatalf("%s: %v", time.Since(begun), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range maxWaiting {
			all.Go(func() {
				if _, err := b.Take(ctx, "a", 4*mib); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait()
		if _, err := b.Take(t.Context(), "a", 4*mib); !fault.Is(err, fault.LimitRate) || time.Since(begun) != 0 {
			t.Errorf("%s: %v", time.Since(begun), err)
		}
		cancel()
		all.Wait()
		h.Release()
	})
}

// No budget bounds nothing.
func TestNoBudget(t *testing.T) {
	var b *Budget
	h, err := b.Take(t.Context(), "a", 1<<40)
	if err != nil || h.More(1<<40) != nil {
		t.Errorf("%v", err)
	}
	h.Release()
}

// The limit is a share of what the machine or the control group has, whichever is less, and never less than Least.
func TestDefault(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is said":           {nil, Least},
		"a machine":                 {map[string]string{"proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\n"}, 2 << 30},
		"a small machine":           {map[string]string{"proc/meminfo": "MemTotal:       1048576 kB\n"}, Least},
		"a group":                   {map[string]string{"proc/meminfo": "MemTotal:       16777216 kB\n", "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "8589934592\n"}, 1 << 30},
		"a group above":             {map[string]string{"proc/meminfo": "MemTotal:       16777216 kB\n", "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "4294967296\n"}, 512 << 20},
		"a container":               {map[string]string{"proc/meminfo": "MemTotal:       16777216 kB\n", "proc/self/cgroup": "0::/../x\n", "sys/fs/cgroup/memory.max": "4294967296\n"}, 512 << 20},
		"a group of the older kind": {map[string]string{"proc/meminfo": "MemTotal:       16777216 kB\n", "proc/self/cgroup": "4:memory:/a\n1:cpu:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4294967296\n"}, 512 << 20},
		"a group without a limit":   {map[string]string{"proc/meminfo": "MemTotal:       16777216 kB\n", "proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, 2 << 30},
		"what can't be read":        {map[string]string{"proc/meminfo": "MemTotal: lots\n", "proc/self/cgroup": "x\n"}, Least},
	} {
		root := t.TempDir()
		for file, text := range test.files {
			file = filepath.Join(root, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got := defaultOf(available(root)); got != test.want {
			t.Errorf("%s: %d MiB, want %d", name, got/mib, test.want/mib)
		}
	}
}

func BenchmarkTake(b *testing.B) {
	budget := New(1 << 30)
	b.ReportAllocs()
	for b.Loop() {
		h, err := budget.Take(context.Background(), "a", 200)
		if err != nil {
			b.Fatal(err)
		}
		h.Release()
	}
}
