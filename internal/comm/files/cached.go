package files

import "strings"

// Cached tells whether a path, as an agent writes it, names something in the shared cache. An absolute one may, if it has the folder's name in it:
// only the workspace that it is read in could tell.
func Cached(name string) bool {
	if strings.HasPrefix(name, "/") {
		return strings.Contains(name+"/", "/"+cacheDir+"/")
	}
	p, err := resolve("", name)
	return err == nil && p.cache
}
