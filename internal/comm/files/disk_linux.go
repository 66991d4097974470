package files

import "golang.org/x/sys/unix"

// room returns the free space for us on the disk of dir. A file system that has no number of inodes has enough.
func room(dir string) (bytes, inodes uint64, known bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, true
	}
	if inodes = st.Ffree; st.Files == 0 {
		inodes = 1 << 62
	}
	return st.Bavail * uint64(st.Bsize), inodes, true
}
