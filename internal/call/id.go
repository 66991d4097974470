package call

import (
	"crypto/rand"
	"encoding/hex"
	"time"
)

// NewID returns a sortable id: prefix, then a UUIDv7 without dashes (48 bits of milliseconds, 74 random bits).
func NewID(prefix string, at time.Time) string {
	var b [16]byte
	rand.Read(b[6:]) // never fails: crypto/rand aborts the program when it can't
	ms := at.UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	var out [64]byte
	n := copy(out[:], prefix)
	hex.Encode(out[n:], b[:])
	return string(out[:n+32])
}
