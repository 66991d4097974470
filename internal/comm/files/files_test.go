//go:build unix

package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"sallyport.example/internal/fault"
)

func TestRead(t *testing.T) {
	d := newWorld(t, Options{})
	if err := os.WriteFile(d.ws+"/digits", []byte("0123456789"), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offset, limit int64
		want          string
		truncated     bool
	}{
		{0, 0, "0123456789", false}, {0, 4, "0123", true}, {4, 6, "456789", false}, {4, 5, "45678", true}, {8, 1 << 62, "89", false},
		{10, 0, "", false}, {1 << 62, 1, "", false},
	} {
		f, err := d.w.Read(t.Context(), "digits", c.offset, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if string(f.Bytes) != c.want || f.Truncated != c.truncated || f.Size != 10 || f.SHA256 != sum("0123456789") || f.Path != "digits" {
			t.Errorf("%v: %+v", c, f)
		}
	}
	for _, c := range []struct {
		name          string
		offset, limit int64
		code          fault.Code
	}{
		{"digits", -1, 0, fault.RequestMalformed}, {"digits", 0, -1, fault.RequestMalformed}, {"", 0, 0, fault.RequestMalformed},
		{"absent", 0, 0, fault.NotFound}, {"digits/x", 0, 0, fault.NotFound}, {"sub", 0, 0, fault.PathBlocked}, {".", 0, 0, fault.PathBlocked},
		{"digits/", 0, 0, fault.PathBlocked}, {"cache", 0, 0, fault.PathBlocked}, {d.ws, 0, 0, fault.PathBlocked},
	} {
		if f, err := d.w.Read(t.Context(), c.name, c.offset, c.limit); !fault.Is(err, c.code) {
			t.Errorf("%v: %v, %v", c, f, err)
		}
	}
}

// Whatever part of a text is asked for, it comes in whole characters, and reading on from its end loses none.
func TestReadTextInParts(t *testing.T) {
	d := newWorld(t, Options{})
	const text = "aé€😀b ö\u0301z"
	if err := os.WriteFile(d.ws+"/text", []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	for limit := int64(1); limit < 12; limit++ {
		var all strings.Builder
		for at, more := int64(0), true; more; {
			f, err := d.w.Read(t.Context(), "text", at, limit)
			if err != nil {
				t.Fatal(err)
			}
			if !f.Text || !utf8.Valid(f.Bytes) || f.Next <= at && f.Truncated {
				t.Fatalf("%d bytes from %d: %+v", limit, at, f)
			}
			all.Write(f.Bytes)
			at, more = f.Next, f.Truncated
		}
		if all.String() != text {
			t.Errorf("%d bytes at a time: %q", limit, all.String())
		}
		for at := range int64(len(text)) { // from within a character: with that character
			f, err := d.w.Read(t.Context(), "text", at, limit)
			if err != nil || !utf8.Valid(f.Bytes) || len(f.Bytes) == 0 || f.Next <= at {
				t.Errorf("%d bytes from %d: %+v %v", limit, at, f, err)
			}
		}
	}
}

// Read in pieces from Next to Next, whatever bytes a file holds, each piece gets further, and together they are the file, each byte once.
func TestReadOnGetsThrough(t *testing.T) {
	d := newWorld(t, Options{})
	through := func(content []byte, limit int64) {
		t.Helper()
		var all []byte
		for at, more := int64(0), true; more; {
			f, err := d.w.Read(t.Context(), "pieces", at, limit)
			if err != nil {
				t.Fatal(err)
			}
			if f.Truncated && f.Next <= at || f.Next-at != int64(len(f.Bytes)) {
				t.Fatalf("%q, %d bytes at a time: from %d it reads %q up to %d", content, limit, at, f.Bytes, f.Next)
			}
			all = append(all, f.Bytes...)
			at, more = f.Next, f.Truncated
		}
		if !bytes.Equal(all, content) {
			t.Fatalf("%q, %d bytes at a time, came as %q", content, limit, all)
		}
	}
	words := strings.Repeat("words and words ", 10)
	contents := []string{words + "z\x80\x80\x80\x80" + words, "\xbf\xbf\xbf" + words, words + "\xe2\x82", words + "\xf0\x9f\x98", "é\x80\x80\x80€\x80😀\x80" + words}
	bits := []string{"a", "é", "€", "😀", "\x80", "\xbf", "\xc3", "\xe2", "\xe2\x82", "\xf0\x9f", "\xff", "\x00", "\r\n"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 16 {
		text := "" // few enough odd ones that it stays a text, and one in a few is data
		for range 8 {
			text += bits[random.IntN(len(bits))]
		}
		at := random.IntN(len(words))
		contents = append(contents, words[:at]+text+words[at:], text)
	}
	for _, content := range contents {
		if err := os.WriteFile(d.ws+"/pieces", []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		for limit := int64(1); limit < 7; limit++ {
			through([]byte(content), limit)
		}
	}
}

// A text stays one whatever odd bytes are in it, and whichever part is asked for; what is mostly no text is data, unless it is whole UTF-8.
func TestTextOrData(t *testing.T) {
	d := newWorld(t, Options{})
	words := strings.Repeat("words and words ", 10)
	for content, want := range map[string]bool{
		"": true, words: true, words + "\xff": true, "\x00" + words: true, words + "caf\xe9": true, "日本語テキスト": true, "\x1b[31mred\x1b[0m": true, "\r\n\t\f": true,
		"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR": false, "\xff\xfew\x00o\x00r\x00d\x00": false, strings.Repeat("\x80", 40): false, "\x7fELF\x02\x01\x01\x00\xb0\xff": false,
		strings.Repeat("ab\x01", 20) + words[:20]: true, strings.Repeat("Ignore earlier\x01 ", 40): true, "\x00\x01\x02": true, strings.Repeat("ab\x01", 20) + "\xff": false,
	} {
		if err := os.WriteFile(d.ws+"/file", []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int64{0, 1, 5} {
			f, err := d.w.Read(t.Context(), "file", 0, limit)
			if err != nil || f.Text != want {
				t.Errorf("%.20q, limit %d: %+v %v", content, limit, f, err)
			}
			if limit == 0 && err == nil && string(f.Bytes) != content {
				t.Errorf("%.20q came as %.20q", content, f.Bytes)
			}
		}
	}
}

func TestReadTooLarge(t *testing.T) {
	d := newWorld(t, Options{MaxFile: 10})
	for size, code := range map[int64]fault.Code{10: "", 11: fault.ResultTooLarge} {
		if err := os.WriteFile(d.ws+"/f", make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.w.Read(t.Context(), "f", 0, 1); code == "" && err != nil || code != "" && !fault.Is(err, code) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// What a hostile program can put into a workspace is refused at once by reads, writes and searches, and listed as what it is.
func TestHostileFiles(t *testing.T) {
	d := newWorld(t, Options{})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(syscall.Mkfifo(d.ws+"/fifo", 0o600))
	must(os.WriteFile(d.ws+"/twin", nil, 0o600))
	must(os.Link(d.ws+"/twin", d.ws+"/twin2"))
	if sock := d.ws + "/sock"; len(sock) < 104 { // a socket's path is short
		l, err := net.Listen("unix", sock)
		must(err)
		defer l.Close()
	}
	hostile := []string{"fifo", "twin"}
	if _, err := os.Lstat(d.ws + "/sock"); err == nil {
		hostile = append(hostile, "sock")
	}
	if os.Getuid() == 0 && syscall.Mknod(d.ws+"/zero", syscall.S_IFCHR|0o600, 1<<8|5) == nil {
		hostile = append(hostile, "zero")
	} else {
		t.Log("no device could be made; devices were not checked")
	}
	within(t, func() {
		for _, name := range hostile {
			if f, err := d.w.Read(t.Context(), name, 0, 1); !fault.Is(err, fault.PathBlocked) {
				t.Errorf("read %s: %v, %v", name, f, err)
			}
			for _, o := range []WriteOptions{{}, {Append: true}, {Expected: sum("")}, {Expected: Absent}} {
				if f, err := d.w.Write(t.Context(), name, []byte("x"), o); !fault.Is(err, fault.PathBlocked) {
					t.Errorf("write %s %+v: %v, %v", name, o, f, err)
				}
			}
			if f, err := d.w.FS().Open(name); err == nil {
				t.Errorf("opened %s: %v", name, f)
			}
			if _, err := d.w.List(t.Context(), name, 1, 0); err == nil {
				t.Errorf("listed %s", name)
			}
		}
	})
	must(os.WriteFile(d.ws+"/line\nbreak", nil, 0o600))
	must(os.WriteFile(d.ws+"/bad\xff", nil, 0o600))
	must(os.Mkdir(d.ws+"/-rf", 0o700))
	must(os.WriteFile(d.ws+"/-rf/hidden", nil, 0o600))
	must(os.Mkdir(d.ws+"/cache", 0o700))
	must(os.WriteFile(d.ws+"/cache/fake", []byte("fake"), 0o600))
	l, err := d.w.List(t.Context(), ".", 3, 0)
	must(err)
	got := map[string]Kind{}
	for _, e := range l.Entries {
		got[e.Path] = e.Kind
	}
	for name, kind := range map[string]Kind{"fifo": KindOther, "twin": KindFile, `line\nbreak`: KindOther, `bad\xff`: KindOther, "-rf": KindOther,
		"-rf/hidden": "", "cache": KindDir, "cache/fake": "", "sub": KindDir, "sub/ok.txt": KindFile} {
		if got[name] != kind {
			t.Errorf("%q is listed as %q, not %q", name, got[name], kind)
		}
	}
	if _, err := d.w.Read(t.Context(), "cache/fake", 0, 0); !fault.Is(err, fault.NotFound) {
		t.Errorf("a folder of the workspace's stands before the cache: %v", err)
	}
	if _, err := d.w.FS().Open("cache/fake"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestWrite(t *testing.T) {
	d := newWorld(t, Options{MaxFile: 100})
	w := func(name, content string, o WriteOptions) (*File, error) {
		return d.w.Write(t.Context(), name, []byte(content), o)
	}
	f, err := w("a/b/new.txt", "one", WriteOptions{Expected: Absent})
	if err != nil || f.Path != "a/b/new.txt" || f.Size != 3 || f.SHA256 != sum("one") || f.Bytes != nil {
		t.Fatalf("%+v, %v", f, err)
	}
	if fi, err := os.Stat(d.ws + "/a/b/new.txt"); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	if err := os.Chmod(d.ws+"/a/b/new.txt", 0o750|fs.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if f, err = w(d.ws+"/a/b/new.txt", " two", WriteOptions{Append: true, Expected: f.SHA256}); err != nil || f.SHA256 != sum("one two") {
		t.Fatalf("%+v, %v", f, err)
	}
	if got, _ := os.ReadFile(d.ws + "/a/b/new.txt"); string(got) != "one two" {
		t.Errorf("%q", got)
	}
	if fi, err := os.Stat(d.ws + "/a/b/new.txt"); err != nil || fi.Mode() != 0o750 {
		t.Errorf("permissions are kept, and nothing else: %v, %v", fi.Mode(), err)
	}
	full := strings.Repeat("x", 100)
	for _, c := range []struct {
		name, content string
		o             WriteOptions
		code          fault.Code
	}{
		{"a/b/new.txt", "", WriteOptions{Expected: Absent}, fault.Conflict},
		{"a/b/new.txt", "", WriteOptions{Expected: sum("one")}, fault.Conflict},
		{"absent.txt", "", WriteOptions{Expected: sum("one")}, fault.Conflict},
		{"absent.txt", "", WriteOptions{Expected: "ABC"}, fault.RequestMalformed},
		{"absent.txt", "", WriteOptions{Expected: strings.ToUpper(sum("one"))}, fault.RequestMalformed},
		{"big.txt", full, WriteOptions{}, ""},
		{"big.txt", full + "x", WriteOptions{}, fault.RequestMalformed},
		{"big.txt", "x", WriteOptions{Append: true}, fault.ResultTooLarge},
		{"", "x", WriteOptions{}, fault.RequestMalformed},
		{".", "x", WriteOptions{}, fault.PathBlocked},
		{"sub", "x", WriteOptions{}, fault.PathBlocked},
		{"sub/", "x", WriteOptions{}, fault.PathBlocked},
		{"new/", "x", WriteOptions{}, fault.PathBlocked},
		{"sub/ok.txt/x", "x", WriteOptions{}, fault.NotFound},
		{"cache/x", "x", WriteOptions{}, fault.PathBlocked},
		{"./sub/../cache/x", "x", WriteOptions{}, fault.PathBlocked},
		{"cache", "x", WriteOptions{}, fault.PathBlocked},
		{tempPrefix + "x" + tempSuffix, "x", WriteOptions{}, fault.PathBlocked},
	} {
		if f, err := w(c.name, c.content, c.o); c.code == "" && err != nil || c.code != "" && !fault.Is(err, c.code) {
			t.Errorf("%q %+v: %+v, %v", c.name, c.o, f, err)
		}
	}
	if _, err := w("cache/x", "x", WriteOptions{}); !strings.Contains(fault.Of(err).Public(), "never write it") {
		t.Errorf("the refusal does not say why: %v", err)
	}
	noTemps(t, d)
}

func TestLinksInside(t *testing.T) {
	d := newWorld(t, Options{})
	for name, target := range map[string]string{"file": "sub/ok.txt", "dir": "sub"} {
		if err := os.Symlink(target, filepath.Join(d.ws, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"file", "dir/ok.txt"} {
		if f, err := d.w.Read(t.Context(), name, 0, 0); err != nil || string(f.Bytes) != "ok" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.w.Write(t.Context(), "file", []byte("x"), WriteOptions{}); !fault.Is(err, fault.PathBlocked) {
		t.Errorf("written through a link: %v", err)
	}
	if _, err := d.w.Write(t.Context(), "dir/new.txt", []byte("x"), WriteOptions{}); err != nil {
		t.Errorf("written into a linked folder: %v", err)
	}
}

func TestQuota(t *testing.T) {
	d := newWorld(t, Options{MaxWorkspace: 1000, MaxFiles: 10}) // 2 folders and 3 files of 2 bytes are there
	write := func(name string, size int) error {
		_, err := d.w.Write(t.Context(), name, make([]byte, size), WriteOptions{})
		return err
	}
	for _, c := range []struct {
		name string
		size int
		ok   bool
	}{
		{"a", 994, true}, {"b", 1, false}, {"b", 0, true}, {"a", 995, false}, {"a", 900, true}, {"a", 994, true}, {"sub/ok.txt", 3, false},
		{"sub/ok.txt", 2, true}, {"x/y/z/too", 0, false}, {"x/y/three", 0, true}, {"eleventh", 0, false},
	} {
		if err := write(c.name, c.size); c.ok && err != nil || !c.ok && !fault.Is(err, fault.LimitQuota) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if _, err := os.Stat(d.ws + "/x/y/z"); err == nil {
		t.Error("a refused write left folders")
	}
	// A program may overfill the workspace; then only what takes no more is written.
	if err := os.WriteFile(d.ws+"/b", make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write("a", 993); err != nil {
		t.Error(err)
	}
	if err := write("a", 994); !fault.Is(err, fault.LimitQuota) {
		t.Error(err)
	}
	noTemps(t, d)
	if err := os.WriteFile(d.ws+"/too-many", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write("a", 0); !fault.Is(err, fault.LimitQuota) {
		t.Errorf("more files than are counted: %v", err)
	}
}

// What can't be measured in bounded work is too much.
func TestQuotaDeepAndSparse(t *testing.T) {
	d := newWorld(t, Options{})
	deep(t, d.ws+"/deep", 50)
	if _, err := d.w.Write(t.Context(), "x", nil, WriteOptions{}); !fault.Is(err, fault.LimitQuota) {
		t.Error(err)
	}
	if got := add(add(math.MaxInt64/2, math.MaxInt64/2+1), math.MaxInt64); got != math.MaxInt64 {
		t.Error(got)
	}
	if got := add(1, 2); got != 3 {
		t.Error(got)
	}
}

func TestCache(t *testing.T) {
	d := newWorld(t, Options{})
	if err := os.MkdirAll(d.s.CacheDir()+"/pages", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.s.CacheDir()+"/pages/p.md", []byte("page"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../workspace/"+session+"/sub/ok.txt", d.s.CacheDir()+"/link"); err != nil {
		t.Fatal(err)
	}
	f, err := d.w.Read(t.Context(), "./cache/pages/p.md", 0, 0)
	if err != nil || string(f.Bytes) != "page" || f.Path != "cache/pages/p.md" {
		t.Errorf("%+v, %v", f, err)
	}
	for _, name := range []string{"cache/link", "cache/../../cache/pages/p.md", "/cache/pages/p.md", d.s.CacheDir() + "/pages/p.md"} {
		if _, err := d.w.Read(t.Context(), name, 0, 0); !fault.Is(err, fault.PathBlocked) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l, err := d.w.List(t.Context(), "cache", 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range l.Entries {
		names = append(names, string(e.Kind)+" "+e.Path)
	}
	if want := []string{"link cache/link", "dir cache/pages", "file cache/pages/p.md"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

func TestList(t *testing.T) {
	d := newWorld(t, Options{MaxList: 8})
	for _, name := range []string{"b/2", "b/1", "b/c/deep", "a.txt", "a/x"} {
		if _, err := d.w.Write(t.Context(), name, []byte("x"), WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name         string
		depth, limit int
		want         string
		truncated    bool
	}{
		{"b", 0, 0, "b/1 b/2 b/c", false}, {"b", 2, 0, "b/1 b/2 b/c b/c/deep", false}, {d.ws + "/b/", 1, 2, "b/1 b/2", true}, {"b", 1, 3, "b/1 b/2 b/c", false},
		{".", 1, 0, "..foo a a.txt b cache re\u0301sume\u0301.txt sub", false},
		{".", 3, 0, "..foo ..foo/ok.txt a a.txt b cache re\u0301sume\u0301.txt sub", true},
		{"b/c/..", 1, 1, "b/1", true},
	} {
		l, err := d.w.List(t.Context(), c.name, c.depth, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range l.Entries {
			names = append(names, e.Path)
			if e.Path == "a.txt" && (e.Kind != KindFile || e.Size != 1 || e.Modified.IsZero()) {
				t.Errorf("%+v", e)
			}
		}
		if got := strings.Join(names, " "); got != c.want || l.Truncated != c.truncated {
			t.Errorf("%v: %q truncated %v", c, got, l.Truncated)
		}
	}
	for _, c := range []struct {
		name         string
		depth, limit int
		code         fault.Code
	}{{"b", -1, 0, fault.RequestMalformed}, {"b", 0, -1, fault.RequestMalformed}, {"absent", 0, 0, fault.NotFound}, {"a.txt", 0, 0, fault.NotFound}} {
		if l, err := d.w.List(t.Context(), c.name, c.depth, c.limit); !fault.Is(err, c.code) {
			t.Errorf("%v: %v, %v", c, l, err)
		}
	}
}

func TestSessions(t *testing.T) {
	d := newWorld(t, Options{})
	for _, id := range []string{"", "sess_", "sess_..", "sess_a/b", "sess_a\x00", "sess_A", "../sess_a", "sess_a.", "sess_a b", "call_a", "sess_" + strings.Repeat("a", 65), "sess_é"} {
		if _, err := d.s.Workspace(id); !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := d.s.Dir(id); !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%q: %v", id, err)
		}
		if err := d.s.Remove(id); !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%q: %v", id, err)
		}
	}
	dir, err := d.s.Dir("sess_second")
	if err != nil || !filepath.IsAbs(dir) {
		t.Fatal(dir, err)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode() != fs.ModeDir|0o700 {
		t.Errorf("%v, %v", fi, err)
	}
	if err := os.WriteFile(d.tmp+"/sess_file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.s.Workspace("sess_file"); err == nil {
		t.Error("a file is a workspace")
	}
	second, err := d.s.Workspace("sess_second")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Read(t.Context(), d.ws+"/sub/ok.txt", 0, 0); !fault.Is(err, fault.PathBlocked) {
		t.Errorf("one session reads another's file: %v", err)
	}
	if err := d.s.Remove("sess_second"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.w.Read(t.Context(), "sub/ok.txt", 0, 0); err != nil {
		t.Errorf("removing one session took another's files: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	tmp := t.TempDir()
	if err := os.Symlink("/tmp", tmp+"/"+workspaceDir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tmp+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{}, {Root: t.TempDir(), MaxFile: -1}, {Root: t.TempDir(), MaxList: -1}, {Root: tmp}, {Root: tmp + "/file"}} {
		if s, err := Open(o); !fault.Is(err, fault.ConfigurationInvalid) {
			t.Errorf("%+v: %v, %v", o, s, err)
		}
	}
}

// A program can lock its own folders; the gateway, its user, removes them all the same. Root is never locked out, so another user tries.
func TestRemoveLockedAsUser(t *testing.T) {
	const env = "FILES_TEST_LOCKED"
	if root := os.Getenv(env); root != "" {
		s, err := Open(Options{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		dir, err := s.Dir(session)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir+"/mod/cache/in", 0o700); err != nil {
			t.Fatal(err)
		}
		// A deep tree takes no more descriptors than others need.
		deep(t, dir+"/deep", 500)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 100, Max: 100}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/mod/cache/in/f", nil, 0o400); err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{"/mod/cache/in", "/mod/cache", "/mod", ""} {
			if err := os.Chmod(dir+d, 0o100); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Remove(session); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(root + "/" + closedDir); err != nil || len(left) != 0 {
			t.Fatal(left, err)
		}
		return
	}
	tmp := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRemoveLockedAsUser$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+tmp)
	if os.Getuid() == 0 {
		tmp, err := os.MkdirTemp("/tmp", "locked")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(tmp)
		exe, err := os.ReadFile(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(tmp+"/test", exe, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(tmp+"/data", 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{tmp, tmp + "/data"} {
			if err := os.Chown(name, 65534, 65534); err != nil {
				t.Skipf("no other user here: %v", err)
			}
		}
		cmd = exec.Command(tmp+"/test", "-test.run=^TestRemoveLockedAsUser$", "-test.v")
		cmd.Dir, cmd.Env = tmp, []string{env + "=" + tmp + "/data", "TMPDIR=" + tmp}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Names are refused by rule, whether such a file is there or not, and with a sentence that names the rule.
func TestNames(t *testing.T) {
	d := newWorld(t, Options{})
	says := map[string][]string{
		"too long":      {strings.Repeat("n", maxName+1), "sub/" + strings.Repeat("é", 128)},
		"longer than":   {strings.Repeat("a/", maxPath/2) + "b", strings.Repeat("./", maxPath/2) + "b"},
		"folders deep":  {strings.Repeat("a/", maxDepth) + "b"},
		"not printable": {"a\x00", "a\nb", "a\rb", "a\x1b", "\u202ea", "a\u200bb", "a\u00adb", "a\ufe0f", "a\U000e0041", "\xff", "a\u00a0b", "a\u2028b", "\u3164"},
		"one of":        {"a\\b", "C:x", "C:/x", "file:x", "a.txt:stream", "*", "a?", "a\"", "<a", "a>", "a|b", "`id`", "$(id)"},
		"like a slash":  {"..\u2044x", "a\u2215b", "a\u2216b", "a\uff0fb", "a\uff3cb", "a\u29f8b", "a\ufe68b"},
		"like dots":     {"...", "....//x", "\uff0e\uff0e/x", "\u2025/x", "\u2026", ".\u2024/x"},
		"~ or -":        {"~", "~root/x", "-rf", "sub/--help"},
		"a space":       {" a", "a ", "a.", "sub /x", "a./x"},
		"percent":       {"%2e%2e/x", "%2Ex", "..%252fx", "a%2fb", "a%5cb", "a%00", "a%3ab", "%%2e"},
		"reserved":      {".sallyport-1.tmp", ".Sallyport-x"},
		"a device":      {"CON", "con", "sub/aux.txt", "nul.tar.gz", "COM1", "lpt9.x", "com\u00b9", "CONIN$", "prn .txt", "NUL/x"},
	}
	for rule, names := range says {
		for _, name := range names {
			_, err := d.w.Read(t.Context(), name, 0, 0)
			if !fault.Is(err, fault.PathBlocked) || !strings.Contains(fault.Of(err).Public(), rule) {
				t.Errorf("%q: %v; want %q", name, err, rule)
			}
		}
	}
	for _, name := range []string{
		"a b.txt", ".hidden", "..food", "a..b", "a-b", "a~", "100%.txt", "a%20b.txt", "$HOME", "[id].tsx", "{a,b}", "résumé.txt", "re\u0301sume\u0301.txt", "中文.txt", "connect.go",
		"com10", "compare.txt", "lpt", "nullable.go", "con-fig.yaml", "a'b", "a&b", "a;b", "a#b", "!", strings.Repeat("n", maxName), strings.Repeat("a/", maxDepth-1) + "b", "e\u2026f.txt", "sub//ok2.txt",
	} {
		if _, err := d.w.Write(t.Context(), name, []byte(name), WriteOptions{}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if f, err := d.w.Read(t.Context(), name, 0, 0); err != nil || string(f.Bytes) != name {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestFS(t *testing.T) {
	d := newWorld(t, Options{})
	for name, target := range map[string]string{"in": "sub/ok.txt", "out": "../outside/secret.txt"} {
		if err := os.Symlink(target, filepath.Join(d.ws, name)); err != nil {
			t.Fatal(err)
		}
	}
	fsys := d.w.FS()
	if got, err := fs.ReadFile(fsys, "sub/ok.txt"); err != nil || string(got) != "ok" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := fs.ReadFile(fsys, "in"); err != nil || string(got) != "ok" {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{"out", "../outside/secret.txt", d.ws + "/sub/ok.txt", "sub/../sub/ok.txt", "cache", ""} {
		if f, err := fsys.Open(name); err == nil {
			t.Errorf("opened %q: %v", name, f)
		}
	}
	var names []string
	if err := fs.WalkDir(fsys, ".", func(name string, e fs.DirEntry, err error) error {
		names = append(names, name)
		return err
	}); err != nil || strings.Join(names, " ") != ". ..foo ..foo/ok.txt in out re\u0301sume\u0301.txt sub sub/ok.txt" {
		t.Errorf("%q, %v", names, err)
	}
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"a", "sub/ok.txt", "..", "a/../..", "/etc/passwd", "/data/workspace/s/x", "/data/workspace/s/../x", "/data/workspace/s2", "cache/x",
		"./cache/../x", "C:\\x", "a//b/./c/", "%2e%2e/x", "．．/x", "a\x00b", "\xff", "con.txt", "~x", "...", "re\u0301sume\u0301"} {
		f.Add(s)
	}
	const dir = "/data/workspace/s"
	f.Fuzz(func(t *testing.T, name string) {
		p, err := resolve(dir, name)
		if err != nil {
			if !fault.Is(err, fault.PathBlocked) && !fault.Is(err, fault.RequestMalformed) {
				t.Fatalf("%q: %v", name, err)
			}
			return
		}
		if !filepath.IsLocal(p.rel) || !fs.ValidPath(p.rel) || p.rel != filepath.Clean(p.rel) || len(p.rel) > maxPath {
			t.Fatalf("%q became %q", name, p.rel)
		}
		if at := filepath.Join(dir, p.rel); at != dir && !strings.HasPrefix(at, dir+"/") {
			t.Fatalf("%q leads to %q", name, at)
		}
		if first, _, _ := strings.Cut(p.shown, "/"); (first == cacheDir) != p.cache {
			t.Fatalf("%q: %+v", name, p)
		}
		again, err := resolve(dir, p.shown)
		if err != nil || again.rel != p.rel || again.cache != p.cache {
			t.Fatalf("%q became %q, which becomes %+v, %v", name, p.shown, again, err)
		}
		for _, part := range strings.Split(p.rel, "/") {
			if part != "." && nameProblem(part) != "" {
				t.Fatalf("%q kept %q", name, part)
			}
		}
	})
}

func BenchmarkRead4K(b *testing.B) {
	d := newWorld(b, Options{})
	if err := os.WriteFile(d.ws+"/sub/4k", make([]byte, 4096), 0o600); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(4096)
	for b.Loop() {
		if _, err := d.w.Read(b.Context(), "sub/4k", 0, 0); err != nil {
			b.Fatal(err)
		}
	}
}

// The price of measuring the workspace at each write.
func BenchmarkWrite4K(b *testing.B) {
	for _, files := range []int{10, 1000} {
		b.Run(fmt.Sprint(files, "files"), func(b *testing.B) {
			d := newWorld(b, Options{})
			for i := range files {
				if err := os.WriteFile(fmt.Sprintf("%s/%d", d.ws, i), nil, 0o600); err != nil {
					b.Fatal(err)
				}
			}
			content := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.w.Write(b.Context(), "sub/4k", content, WriteOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
