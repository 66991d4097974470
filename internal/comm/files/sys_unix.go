//go:build unix

package files

import (
	"io/fs"
	"os"
	"syscall"
)

const (
	supported = true

	// Neither blocks: a pipe opens at once, and what is no folder does not open as one.
	openFile = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY
	openDir  = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_DIRECTORY
)

// links returns the number of names of the file; 0 if that is not known.
func links(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 0
}
