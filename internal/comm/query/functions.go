package query

import (
	"bytes"
	"unicode/utf8"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// functions replace those of SQLite that compare everything with everything: with a megabyte in each argument they run for minutes,
// within one step of the machine, where no time limit reaches them. These take time in proportion to their arguments.
var functions = []struct {
	name string
	args int32
	f    func(tls *libc.TLS, ctx uintptr, n int32, args uintptr)
}{
	{"trim", 2, trimBoth}, {"ltrim", 2, trimLeft}, {"rtrim", 2, trimRight}, {"replace", 3, replace}, {"instr", 2, instr}, {"unhex", 2, unhex},
}

func (c *lite) replaceFunctions() error {
	for _, f := range functions {
		name, err := libc.CString(f.name)
		if err != nil {
			return err
		}
		// f.f is a declared function, so the pointer stays good.
		rc := lib.Xsqlite3_create_function_v2(c.tls, c.db, name, f.args, lib.SQLITE_UTF8|lib.SQLITE_DETERMINISTIC|lib.SQLITE_INNOCUOUS, 0, pointer(f.f), 0, 0, 0)
		libc.Xfree(c.tls, name)
		if rc != lib.SQLITE_OK {
			return code(rc)
		}
	}
	return nil
}

// argument is a value as text, and whether it is not NULL.
func argument(tls *libc.TLS, args uintptr, i int) (b []byte, class int32, ok bool) {
	v := libc.AtomicLoadPUintptr(args + uintptr(i)*unsafe.Sizeof(args))
	if class = lib.Xsqlite3_value_type(tls, v); class == lib.SQLITE_NULL {
		return nil, class, false
	}
	p := lib.Xsqlite3_value_text(tls, v)
	if n := int(lib.Xsqlite3_value_bytes(tls, v)); p != 0 && n > 0 {
		b = libc.GoBytes(p, n)
	}
	return b, class, true
}

// The result of a function is NULL until it is set.
func resultText(tls *libc.TLS, ctx uintptr, b []byte) {
	p, err := libc.CString(string(b))
	if err != nil {
		lib.Xsqlite3_result_error_nomem(tls, ctx)
		return
	}
	lib.Xsqlite3_result_text(tls, ctx, p, int32(len(b)), lib.SQLITE_TRANSIENT)
	libc.Xfree(tls, p)
}

func trimBoth(tls *libc.TLS, ctx uintptr, _ int32, args uintptr) { trim(tls, ctx, args, true, true) }
func trimLeft(tls *libc.TLS, ctx uintptr, _ int32, args uintptr) { trim(tls, ctx, args, true, false) }
func trimRight(tls *libc.TLS, ctx uintptr, _ int32, args uintptr) {
	trim(tls, ctx, args, false, true)
}

func trim(tls *libc.TLS, ctx, args uintptr, left, right bool) {
	x, _, ok := argument(tls, args, 0)
	y, _, ok2 := argument(tls, args, 1)
	if !ok || !ok2 {
		return
	}
	away := map[string]bool{} // characters, or bytes that are none
	for len(y) > 0 {
		_, n := utf8.DecodeRune(y)
		away[string(y[:n])] = true
		y = y[n:]
	}
	for left && len(x) > 0 {
		_, n := utf8.DecodeRune(x)
		if !away[string(x[:n])] {
			break
		}
		x = x[n:]
	}
	for right && len(x) > 0 {
		_, n := utf8.DecodeLastRune(x)
		if !away[string(x[len(x)-n:])] {
			break
		}
		x = x[:len(x)-n]
	}
	resultText(tls, ctx, x)
}

func replace(tls *libc.TLS, ctx uintptr, _ int32, args uintptr) {
	x, _, ok := argument(tls, args, 0)
	y, _, ok2 := argument(tls, args, 1)
	if !ok || !ok2 {
		return
	}
	if len(y) > 0 {
		z, _, ok := argument(tls, args, 2)
		if !ok {
			return
		}
		if len(x)+bytes.Count(x, y)*(len(z)-len(y)) > valueMax {
			lib.Xsqlite3_result_error_toobig(tls, ctx)
			return
		}
		x = bytes.ReplaceAll(x, y, z)
	}
	resultText(tls, ctx, x)
}

func instr(tls *libc.TLS, ctx uintptr, _ int32, args uintptr) {
	x, class, ok := argument(tls, args, 0)
	y, class2, ok2 := argument(tls, args, 1)
	if !ok || !ok2 {
		return
	}
	at := bytes.Index(x, y)
	if at > 0 && (class != lib.SQLITE_BLOB || class2 != lib.SQLITE_BLOB) {
		at = utf8.RuneCount(x[:at])
	}
	lib.Xsqlite3_result_int64(tls, ctx, int64(at+1))
}

// unhex with characters to leave out is rare, and refused.
func unhex(tls *libc.TLS, ctx uintptr, _ int32, _ uintptr) {
	const refusal = "unhex takes one argument here"
	p, err := libc.CString(refusal)
	if err != nil {
		lib.Xsqlite3_result_error_nomem(tls, ctx)
		return
	}
	lib.Xsqlite3_result_error(tls, ctx, p, int32(len(refusal)))
	libc.Xfree(tls, p)
}
