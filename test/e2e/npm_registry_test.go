package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/semver"
)

// npmRegistry serves the packages of test/npm as the registry of npm does, so that npx fetches them without a network.
type npmRegistry struct {
	url string
	// changed may change a file of a package: a server that can reach one address alone reaches a stand-in for it.
	changed func(pkg, file string, text []byte) []byte

	mu      sync.Mutex
	folders map[string]map[string]string // package -> version -> folder
	packed  map[string][]byte            // name of a tarball -> it
}

// newRegistry starts a registry on loopback.
func newRegistry(t testing.TB, changed func(pkg, file string, text []byte) []byte) *npmRegistry {
	t.Helper()
	lock := npm(t, ".package-lock.json")
	b, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	var installed struct {
		Packages map[string]struct{ Name, Version string }
	}
	if err := json.Unmarshal(b, &installed); err != nil {
		t.Fatal(err)
	}
	r := &npmRegistry{changed: changed, folders: map[string]map[string]string{}, packed: map[string][]byte{}}
	for at, p := range installed.Packages {
		name := p.Name
		if name == "" {
			name = at[strings.LastIndex(at, "node_modules/")+len("node_modules/"):]
		}
		if r.folders[name] == nil {
			r.folders[name] = map[string]string{}
		}
		r.folders[name][p.Version] = filepath.Join(filepath.Dir(filepath.Dir(lock)), filepath.FromSlash(at))
	}
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

func (r *npmRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.TrimPrefix(req.URL.Path, "/")
	if tarball, ok := r.packed[name]; ok {
		_, _ = w.Write(tarball) // npm says so if it got less
		return
	}
	document, err := r.describe(name)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case document == nil:
		http.NotFound(w, req)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	}
}

// describe is what the registry says of a package. Its tarballs are there from then on.
func (r *npmRegistry) describe(name string) ([]byte, error) {
	versions, latest := map[string]any{}, ""
	for version, folder := range r.folders[name] {
		manifest := map[string]any{}
		b, err := os.ReadFile(filepath.Join(folder, "package.json"))
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &manifest); err != nil {
			return nil, err
		}
		file := name + "/-/" + path.Base(name) + "-" + version + ".tgz"
		if r.packed[file] == nil {
			if r.packed[file], err = r.pack(name, folder); err != nil {
				return nil, err
			}
		}
		sum := sha512.Sum512(r.packed[file])
		manifest["dist"] = map[string]any{"tarball": r.url + "/" + file, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
		versions[version] = manifest
		if latest == "" || semver.Compare("v"+version, "v"+latest) > 0 {
			latest = version
		}
	}
	if latest == "" {
		return nil, nil
	}
	return json.Marshal(map[string]any{"name": name, "dist-tags": map[string]string{"latest": latest}, "versions": versions})
}

func (r *npmRegistry) pack(name, folder string) ([]byte, error) {
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(zipped)
	err = filepath.WalkDir(folder, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "node_modules" && at != folder {
			return orSkip(err)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		file := filepath.ToSlash(strings.TrimPrefix(at, folder+string(filepath.Separator)))
		if r.changed != nil {
			text = r.changed(name, file, text)
		}
		if err := archive.WriteHeader(&tar.Header{Name: "package/" + file, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err = archive.Write(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := zipped.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// orSkip leaves a folder out if nothing is wrong.
func orSkip(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}
