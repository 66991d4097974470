package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
)

//go:embed static/*.js static/*.css static/*.svg
var staticFiles embed.FS

// asset is an embedded file under a name that changes with its bytes.
type asset struct {
	media string
	data  []byte
}

// assets are the files by their names with hashes. assetPaths has the path of each file by its plain name.
var assets, assetPaths = load()

func load() (byName map[string]asset, paths map[string]string) {
	byName, paths = map[string]asset{}, map[string]string{}
	media := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	entries, err := staticFiles.ReadDir("static")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, e := range entries {
		data, err := staticFiles.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum, ext := sha256.Sum256(data), path.Ext(e.Name())
		name := strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		byName[name] = asset{media[ext], data}
		paths[e.Name()] = "/static/" + name
	}
	return byName, paths
}

// serveStatic serves styles and scripts, which are the same for everybody.
func serveStatic(w http.ResponseWriter, r *http.Request) {
	a, ok := assets[r.PathValue("file")]
	if !ok {
		http.Error(w, "There is no such file.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", a.media)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.data) // a client that is gone needs no answer
}
