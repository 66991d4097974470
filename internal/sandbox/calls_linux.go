//go:build amd64 || arm64

package sandbox

import "golang.org/x/sys/unix"

// calls are the system calls that the filter lets through whatever their arguments. Calls that are not here, in archCalls or in conditions are
// refused, and so are those that a later kernel adds: mount, ptrace, bpf, keyctl, unshare, setns, kexec, modules, perf_event_open,
// userfaultfd, io_uring, open_by_handle_at, process_vm_*, memfd_create (memory that no limit counts), System V IPC (the same) …
var calls = []uint32{
	// files
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_PREADV,
	unix.SYS_PWRITEV, unix.SYS_PREADV2, unix.SYS_PWRITEV2, unix.SYS_CLOSE,
	unix.SYS_CLOSE_RANGE, unix.SYS_LSEEK, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_FSTAT, unix.SYS_NEWFSTATAT,
	unix.SYS_STATX, unix.SYS_STATFS, unix.SYS_FSTATFS, unix.SYS_READLINKAT, unix.SYS_GETDENTS64,
	unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_UNLINKAT, unix.SYS_SYMLINKAT,
	unix.SYS_TRUNCATE, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE,
	unix.SYS_SYNCFS, unix.SYS_FADVISE64, unix.SYS_READAHEAD, unix.SYS_FLOCK, unix.SYS_FCNTL, unix.SYS_DUP, unix.SYS_DUP3,
	unix.SYS_PIPE2, unix.SYS_UMASK, unix.SYS_CHDIR, unix.SYS_FCHDIR, unix.SYS_GETCWD, unix.SYS_SENDFILE, unix.SYS_SPLICE,
	unix.SYS_TEE, unix.SYS_COPY_FILE_RANGE, unix.SYS_CACHESTAT,
	// memory
	unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_BRK, unix.SYS_MADVISE, unix.SYS_MSYNC,
	unix.SYS_MINCORE, unix.SYS_MLOCK, unix.SYS_MUNLOCK, unix.SYS_MLOCKALL, unix.SYS_MUNLOCKALL, unix.SYS_MLOCK2,
	unix.SYS_MEMBARRIER, unix.SYS_MSEAL, unix.SYS_PKEY_ALLOC, unix.SYS_PKEY_FREE, unix.SYS_PKEY_MPROTECT,
	unix.SYS_MAP_SHADOW_STACK,
	// processes and threads
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_GETPID,
	unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
	unix.SYS_GETGROUPS, unix.SYS_GETRESUID, unix.SYS_GETRESGID, unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID,
	unix.SYS_SETREGID, unix.SYS_SETRESUID, unix.SYS_SETRESGID, unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_GETPGID,
	unix.SYS_GETSID, unix.SYS_CAPGET, unix.SYS_CAPSET, unix.SYS_PRCTL, unix.SYS_SET_TID_ADDRESS, unix.SYS_SET_ROBUST_LIST,
	unix.SYS_GET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_FUTEX, unix.SYS_FUTEX_WAITV, unix.SYS_FUTEX_WAIT, unix.SYS_FUTEX_WAKE,
	unix.SYS_FUTEX_REQUEUE, unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGSUSPEND, unix.SYS_RT_SIGPENDING,
	unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_SIGALTSTACK,
	unix.SYS_RESTART_SYSCALL, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_GETPARAM,
	unix.SYS_SCHED_GETSCHEDULER, unix.SYS_SCHED_GETATTR, unix.SYS_SCHED_GET_PRIORITY_MAX, unix.SYS_SCHED_GET_PRIORITY_MIN,
	unix.SYS_SCHED_RR_GET_INTERVAL, unix.SYS_GETPRIORITY, unix.SYS_IOPRIO_GET, unix.SYS_GETRLIMIT, unix.SYS_SETRLIMIT,
	unix.SYS_GETRUSAGE, unix.SYS_GETCPU, unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE,
	unix.SYS_LANDLOCK_RESTRICT_SELF,
	// waiting and time
	unix.SYS_PPOLL, unix.SYS_PSELECT6, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2,
	unix.SYS_EVENTFD2, unix.SYS_SIGNALFD4, unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_SETTIME, unix.SYS_TIMERFD_GETTIME,
	unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_GETTIME, unix.SYS_TIMER_GETOVERRUN, unix.SYS_TIMER_DELETE,
	unix.SYS_GETITIMER, unix.SYS_SETITIMER, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME,
	unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_TIMES,
	// sockets that exist (the filter judges by the family whether one is made)
	unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_GETSOCKNAME,
	unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG,
	unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG, unix.SYS_SHUTDOWN,
	// the rest
	unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_GETRANDOM,
}

// metadata are the calls that change a file's owner, times and attributes, or learn more about it than stat tells. Landlock does not judge
// them, so they are only let through where a mount namespace holds nothing but what may be read, and all but the workspace read-only.
var metadata = []uint32{
	unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
	unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_INOTIFY_RM_WATCH,
}

// xattrs are like metadata, but elsewhere they are answered as by a file system that has none: programs ask for them by the way.
var xattrs = []uint32{
	unix.SYS_GETXATTR, unix.SYS_LGETXATTR, unix.SYS_FGETXATTR, unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR, unix.SYS_FLISTXATTR,
}

// moded are the calls that give a file or directory its mode, with the argument that is the mode, and chmods those of them that only the
// tier Full has. The bits that lend the owner's rights are refused: outside, the owner is the gateway's user. openat2 has
// its mode in memory, where a filter can't look.
var (
	moded  = map[uint32]uint32{unix.SYS_MKDIRAT: 2, unix.SYS_MKNODAT: 2}
	chmods = map[uint32]uint32{unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2}
)

// opens are the calls that open a file, with the argument that is their flags; the mode comes next, where they make one.
var opens = map[uint32]uint32{unix.SYS_OPENAT: 2}
