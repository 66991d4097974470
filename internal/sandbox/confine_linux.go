//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter is an allow-list, and each test ends in an answer: nothing falls through to a later test with an argument in the register
// where a call's number should be, and a call made by another architecture's convention is refused, not let through.
const (
	allow  = unix.SECCOMP_RET_ALLOW
	refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	absent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS) // the C library then falls back to what the filter can judge

	// without is what a file system answers that has no extended attributes.
	without = unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP)

	x32 = 0x40000000 // the bit that marks calls of amd64's x32 convention

	lends = unix.S_ISUID | unix.S_ISGID
	makes = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY // the flags with which there is a mode

	newNamespace = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// Three requests that golang.org/x/sys has no name for.
const fionbio, fioclex, fionclex = 0x5421, 0x5451, 0x5450

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func answer(a uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: a} }

// skip jumps over the next n steps unless the register equals k (or, with jump BPF_JSET, has none of k's bits).
func skip(jump uint16, k uint32, n int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | jump | unix.BPF_K, K: k, Jf: uint8(n)}
}

// argument is one demand on an argument: its lower half equals one of values, or has none of the bits in without. For the calls that are judged here
// the kernel looks at no more.
type argument struct {
	index   uint32
	values  []uint32
	without uint32
	null    bool // it is a pointer to nothing: of a pointer the kernel looks at both halves
}

// when lets the call through if its arguments are as demanded, and refuses it otherwise.
func when(call uint32, demands ...argument) []unix.SockFilter {
	var body []unix.SockFilter
	for _, d := range demands {
		if d.null {
			body = append(body, load(16+8*d.index+4), skip(unix.BPF_JEQ, 0, 1), unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: 1}, answer(refuse))
			d.values = []uint32{0}
		}
		body = append(body, load(16+8*d.index)) // both architectures are little-endian: the lower half is first
		if d.without != 0 {
			body = append(body, skip(unix.BPF_JSET, d.without, 1), answer(refuse))
			continue
		}
		for i, v := range d.values {
			// Equal: on to the next demand, over the values that are left and the refusal.
			body = append(body, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: v, Jt: uint8(len(d.values) - i)})
		}
		body = append(body, answer(refuse))
	}
	body = append(body, answer(allow))
	return append([]unix.SockFilter{skip(unix.BPF_JEQ, call, len(body))}, body...)
}

// ownConvention refuses calls by the convention of another architecture, or of amd64's x32.
func ownConvention() []unix.SockFilter {
	return []unix.SockFilter{
		load(4), skip(unix.BPF_JEQ, auditArch, 1), {Code: unix.BPF_JMP | unix.BPF_JA, K: 1}, answer(refuse),
		load(0), {Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: x32, Jf: 1}, answer(refuse),
	}
}

// openFiles lets files be opened, and made if their mode lends nobody the owner's rights.
func openFiles() (p []unix.SockFilter) {
	for call, flags := range opens {
		p = append(p, skip(unix.BPF_JEQ, call, 7), load(16+8*flags), unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: makes, Jt: 1}, answer(allow))
		p = append(p, load(16+8*(flags+1)), skip(unix.BPF_JSET, lends, 1), answer(refuse), answer(allow))
	}
	return p
}

// socketPairs lets pairs of the family AF_UNIX be made.
func socketPairs(unixSockets bool) []unix.SockFilter {
	pair := []argument{{index: 0, values: []uint32{unix.AF_UNIX}}}
	if !unixSockets {
		pair = append(pair, argument{index: 1, without: unix.SOCK_DGRAM}) // the bit that SOCK_RAW has too: such a socket can send to any path
	}
	return when(unix.SYS_SOCKETPAIR, pair...)
}

// filter is the seccomp program. unixSockets tells whether a socket of the family AF_UNIX could only reach what is inside.
func filter(tier Tier, network, unixSockets bool) []unix.SockFilter {
	p := ownConvention()
	plain := slices.Concat(calls, archCalls)
	if tier == Full {
		plain = slices.Concat(plain, metadata, archMetadata, xattrs)
		plain = append(plain, unix.SYS_SETSID, unix.SYS_SETPGID) // elsewhere the process group is what holds the tree together
	}
	for _, c := range plain {
		p = append(p, skip(unix.BPF_JEQ, c, 1), answer(allow))
	}
	for _, c := range xattrs { // where they were not let through above
		p = append(p, skip(unix.BPF_JEQ, c, 1), answer(without))
	}
	p = append(p, skip(unix.BPF_JEQ, unix.SYS_OPENAT2, 1), answer(absent))
	modes := []map[uint32]uint32{moded}
	if tier == Full {
		modes = append(modes, chmods)
	}
	for _, m := range modes {
		for call, mode := range m {
			p = append(p, when(call, argument{index: mode, without: lends})...)
		}
	}
	p = append(p, openFiles()...)
	var families []uint32
	if unixSockets {
		families = append(families, unix.AF_UNIX)
	}
	if network {
		families = append(families, unix.AF_INET, unix.AF_INET6)
	}
	if families != nil {
		p = append(p, when(unix.SYS_SOCKET, argument{index: 0, values: families})...)
	}
	p = append(p, socketPairs(unixSockets)...)
	p = append(p, when(unix.SYS_CLONE, argument{index: 0, without: newNamespace})...)
	p = append(p, skip(unix.BPF_JEQ, unix.SYS_CLONE3, 1), answer(absent)) // its flags are in memory, where a filter can't look
	// Of these only what concerns the caller itself: without namespaces the gateway has the same user.
	self := argument{index: 0, values: []uint32{0}}
	p = append(p, when(unix.SYS_PRLIMIT64, self)...)
	p = append(p, when(unix.SYS_SCHED_SETAFFINITY, self)...)
	p = append(p, when(unix.SYS_SETPRIORITY, self, argument{index: 1, values: []uint32{0}})...)
	p = append(p, when(unix.SYS_IOCTL, argument{index: 1, values: []uint32{
		unix.TCGETS, unix.TCGETS2, unix.TIOCGWINSZ, unix.TIOCGPGRP, unix.TIOCINQ, fionbio, fioclex, fionclex, unix.FICLONE, unix.FICLONERANGE,
	}})...)
	return append(p, answer(refuse))
}

// Rights that golang.org/x/sys has no name for yet.
const (
	landlockResolveUnix = 1 << 16 // from ABI 9
	landlockUDP         = 1<<2 | 1<<3
)

const (
	readFile = unix.LANDLOCK_ACCESS_FS_READ_FILE
	readDir  = unix.LANDLOCK_ACCESS_FS_READ_DIR
	execute  = unix.LANDLOCK_ACCESS_FS_EXECUTE
	// ofFiles are the rights that a rule for something that is not a directory may have.
	ofFiles = readFile | execute | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | landlockResolveUnix
	// work is everything in the workspace but to execute and to make devices: a program that somebody wrote there is on no list. Landlock does
	// not judge what is mapped into memory, so it runs through the dynamic loader all the same, in the tier Partial; in Full the mount is noexec.
	work = readFile | readDir | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
)

// handled lists all that a kernel with this ABI can be asked to refuse. Asked for more, it would fail.
func handled(abi int, network bool) unix.LandlockRulesetAttr {
	attr := unix.LandlockRulesetAttr{Access_fs: 1<<13 - 1}
	for since, rights := range map[int]uint64{2: unix.LANDLOCK_ACCESS_FS_REFER, 3: unix.LANDLOCK_ACCESS_FS_TRUNCATE, 5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV, 9: landlockResolveUnix} {
		if abi >= since {
			attr.Access_fs |= rights
		}
	}
	if abi >= 4 && !network {
		attr.Access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 10 && !network {
		attr.Access_net |= landlockUDP
	}
	if abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return attr
}

func landlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// rule grants rights below a path. A path that is optional may be absent.
type rule struct {
	path     string
	rights   uint64
	optional bool
	listed   bool // with no link on the way there
}

// ruleset makes a Landlock ruleset for whoever restricts itself with it.
func ruleset(abi int, network bool, rules []rule) (int, error) {
	attr := handled(abi, network)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return -1, fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	for _, r := range rules {
		if err := r.add(int(fd), attr.Access_fs); err != nil && !(r.optional && errors.Is(err, fs.ErrNotExist)) {
			unix.Close(int(fd))
			return -1, fmt.Errorf("landlock rule for %s: %w", r.path, err)
		}
	}
	return int(fd), nil
}

func (r rule) add(ruleset int, handled uint64) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	if r.listed {
		how.Resolve = unix.RESOLVE_NO_SYMLINKS
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, r.path, &how)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	rights := r.rights & handled
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= ofFiles
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
