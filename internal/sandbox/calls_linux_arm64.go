package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// This architecture was made without the calls that later ones replaced.
var archCalls, archMetadata []uint32

// archServerCalls and archSharedCalls are the calls that only this architecture has, of serverCalls and sharedCalls.
var archServerCalls, archSharedCalls []uint32
