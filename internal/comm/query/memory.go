package query

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// SQLite can count its memory, but only that of the whole process, and then no query has a bound that its neighbours do not use up. Each
// connection here has a TLS of its own, though, and SQLite passes it to its allocator, so these functions count by it. They
// stand in front of SQLite's own, whose blocks begin with their size in eight bytes. Connections of others pay one look into a map.

// account counts the memory that SQLite holds for one connection. Only its owner touches it.
type account struct {
	used  int64
	limit int64
	full  bool // something was refused since allow
}

// allow bounds the memory that may be added from now on.
func (a *account) allow(bytes int64) { a.limit, a.full = a.used+bytes, false }

// grow tells whether n bytes more may be held.
func (a *account) grow(n int64) bool {
	if a.used+n > a.limit {
		a.full = true
		return false
	}
	return true
}

var (
	opening  sync.Mutex                             // serializes who changes accounts
	accounts atomic.Pointer[map[*libc.TLS]*account] // of the connections that are open; the map is never changed

	// SQLite's own, set by init.
	plainMalloc  func(*libc.TLS, int32) uintptr
	plainRealloc func(*libc.TLS, uintptr, int32) uintptr
	plainFree    func(*libc.TLS, uintptr)
)

func openAccount(tls *libc.TLS) *account {
	a := &account{limit: math.MaxInt64}
	change(func(m map[*libc.TLS]*account) { m[tls] = a })
	return a
}

func closeAccount(tls *libc.TLS) { change(func(m map[*libc.TLS]*account) { delete(m, tls) }) }

func change(f func(map[*libc.TLS]*account)) {
	opening.Lock()
	defer opening.Unlock()
	m := maps.Clone(*accounts.Load())
	f(m)
	accounts.Store(&m)
}

// SQLite takes these functions only before the process opens its first database, in whatever package; so this is an init. Where it
// doesn't, nothing is counted, and open refuses.
func init() {
	accounts.Store(&map[*libc.TLS]*account{})
	tls := libc.NewTLS()
	defer tls.Close()
	args := libc.NewVaListN(1)
	m := libc.Xcalloc(tls, 1, 64) // for lib.Tsqlite3_mem_methods, eight pointers
	if args == 0 || m == 0 {
		return
	}
	defer libc.Xfree(tls, args)
	defer libc.Xfree(tls, m)
	if lib.Xsqlite3_config(tls, lib.SQLITE_CONFIG_GETMALLOC, libc.VaList(args, m)) != lib.SQLITE_OK {
		return
	}
	const malloc, free, realloc = unsafe.Offsetof(lib.Tsqlite3_mem_methods{}.FxMalloc), unsafe.Offsetof(lib.Tsqlite3_mem_methods{}.FxFree), unsafe.Offsetof(lib.Tsqlite3_mem_methods{}.FxRealloc)
	plainMalloc = function[func(*libc.TLS, int32) uintptr](libc.AtomicLoadPUintptr(m + malloc))
	plainRealloc = function[func(*libc.TLS, uintptr, int32) uintptr](libc.AtomicLoadPUintptr(m + realloc))
	plainFree = function[func(*libc.TLS, uintptr)](libc.AtomicLoadPUintptr(m + free))
	libc.AtomicStorePUintptr(m+malloc, pointer(countedMalloc))
	libc.AtomicStorePUintptr(m+realloc, pointer(countedRealloc))
	libc.AtomicStorePUintptr(m+free, pointer(countedFree))
	lib.Xsqlite3_config(tls, lib.SQLITE_CONFIG_MALLOC, libc.VaList(args, m))
}

// function is a pointer that C calls, as Go calls it.
func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&struct{ p uintptr }{p})) }

// sizeOf returns the number of bytes that were asked for.
func sizeOf(p uintptr) int64 { return libc.AtomicLoadPInt64(p - 8) }

func countedMalloc(tls *libc.TLS, n int32) uintptr {
	a := (*accounts.Load())[tls]
	if a == nil {
		return plainMalloc(tls, n)
	}
	if !a.grow(int64(n)) {
		return 0
	}
	p := plainMalloc(tls, n)
	if p != 0 {
		a.used += sizeOf(p)
	}
	return p
}

func countedRealloc(tls *libc.TLS, p uintptr, n int32) uintptr {
	a := (*accounts.Load())[tls]
	if a == nil {
		return plainRealloc(tls, p, n)
	}
	before := sizeOf(p)
	if !a.grow(int64(n) - before) {
		return 0
	}
	q := plainRealloc(tls, p, n)
	if q != 0 {
		a.used += sizeOf(q) - before
	}
	return q
}

func countedFree(tls *libc.TLS, p uintptr) {
	if a := (*accounts.Load())[tls]; a != nil {
		a.used -= sizeOf(p)
	}
	plainFree(tls, p)
}
