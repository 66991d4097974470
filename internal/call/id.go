package call

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
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

// TimeOf is the time at which NewID made an id, to the millisecond; zero for another text. It is for people to read: nothing is decided by it.
func TimeOf(id string) time.Time {
	b, err := hex.DecodeString(id[strings.LastIndexByte(id, '_')+1:])
	if err != nil || len(b) != 16 || b[6]>>4 != 7 {
		return time.Time{}
	}
	ms := int64(0)
	for _, x := range b[:6] {
		ms = ms<<8 | int64(x)
	}
	return time.UnixMilli(ms).UTC()
}
