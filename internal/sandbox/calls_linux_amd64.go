package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archCalls are the calls that only this architecture has.
var archCalls = []uint32{
	unix.SYS_ACCESS, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_READLINK, unix.SYS_GETDENTS,
	unix.SYS_RMDIR, unix.SYS_RENAME, unix.SYS_LINK, unix.SYS_UNLINK, unix.SYS_SYMLINK,
	unix.SYS_DUP2, unix.SYS_PIPE, unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_GETPGRP, unix.SYS_ARCH_PRCTL,
	unix.SYS_PAUSE, unix.SYS_ALARM, unix.SYS_POLL, unix.SYS_SELECT, unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_CTL_OLD,
	unix.SYS_EPOLL_WAIT, unix.SYS_EVENTFD, unix.SYS_SIGNALFD, unix.SYS_TIME,
}

// archMetadata is the same for metadata.
var archMetadata = []uint32{unix.SYS_INOTIFY_INIT, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT}

// archServerCalls and archSharedCalls are the same for serverCalls and sharedCalls.
var (
	archServerCalls = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_CREATE_MODULE, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_NFSSERVCTL}
	archSharedCalls = []uint32{unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT}
)

func init() {
	moded[unix.SYS_MKDIR], moded[unix.SYS_MKNOD], moded[unix.SYS_CREAT] = 1, 1, 1
	chmods[unix.SYS_CHMOD] = 1
	opens[unix.SYS_OPEN] = 1
}
