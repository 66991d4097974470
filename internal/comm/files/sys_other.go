//go:build !unix

package files

import (
	"io/fs"
	"os"
)

const (
	supported = false
	openFile  = os.O_RDONLY
	openDir   = os.O_RDONLY
)

func links(fs.FileInfo) uint64 { return 0 }
