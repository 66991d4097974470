package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
	"sallyport.example/internal/store"
)

func TestMain(m *testing.M) {
	if rounds < 600_000 {
		panic("keys are sealed with too few rounds")
	}
	rounds = 1000
	os.Exit(m.Run())
}

const secret = "correct horse battery staple"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// running is an open data directory with entries and two open sessions.
func running(t testing.TB) (dir string, db *store.DB) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	db, err := store.Open(dir, store.Options{})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	for _, agent := range []string{"a", "b"} {
		s := session.New(agent, session.Execution, "agent:"+agent, time.Now())
		must(t, db.OpenSession(t.Context(), s, audit.Entry{Kind: audit.Change, Action: "session.open", Agent: agent, Session: s.ID}))
	}
	add(t, db, 300)
	return dir, db
}

func add(t testing.TB, db *store.DB, n int) {
	t.Helper()
	for i := range n {
		must(t, db.Record(context.Background(), audit.Entry{Kind: audit.Change, Action: "test", Reason: fmt.Sprint(i)}))
	}
}

func names(t testing.TB, dir string) (all []string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range found {
		all = append(all, f.Name())
	}
	return all
}

// A backup is taken while entries are written all the time, and what it is restored to is a whole log that goes on.
func TestHotBackupIsWhole(t *testing.T) {
	dir, db := running(t)
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := db.Record(context.Background(), audit.Entry{Kind: audit.Change, Action: "test"}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	file := filepath.Join(t.TempDir(), "b.tar")
	m, err := Write(t.Context(), dir, file, "v1", secret, time.Now())
	close(stop)
	writer.Wait()
	must(t, err)
	must(t, db.Close())
	if left := names(t, filepath.Dir(file)); len(left) != 1 {
		t.Errorf("beside the backup: %v", left)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	to := filepath.Join(t.TempDir(), "restored")
	got, closed, err := Restore(t.Context(), file, to, Restoring{Passphrase: secret, Actor: "local:test", Reason: "a test"})
	must(t, err)
	if got.Entries != m.Entries || m.Entries < 302 || closed != 2 {
		t.Errorf("%+v, %d sessions closed", got, closed)
	}
	again, err := store.Open(to, store.Options{})
	must(t, err)
	defer again.Close()
	size, err := again.Size(t.Context())
	must(t, err)
	if size != m.Entries+3 { // the restoring, and two sessions closed
		t.Errorf("%d entries after a backup of %d", size, m.Entries)
	}
	e, _, err := again.Entry(t.Context(), m.Entries)
	must(t, err)
	var detail struct {
		Entries int64     `json:"entries"`
		Newest  time.Time `json:"newest_entry_at"`
		At      time.Time `json:"backup_at"`
		Bytes   int64     `json:"bytes"`
	}
	must(t, json.Unmarshal(e.Detail, &detail))
	if e.Action != "restore" || e.Actor != "local:test" || e.Reason != "a test" || detail.Entries != m.Entries || !detail.Newest.Equal(m.Newest) || !detail.At.Equal(m.At) || detail.Bytes != m.Size() {
		t.Errorf("%+v %s", e, e.Detail)
	}
	page, err := again.SessionsPage(t.Context(), "", 10, session.Open)
	if err != nil || len(page.Sessions) != 0 {
		t.Errorf("open sessions: %+v, %v", page, err)
	}
}

// Without a passphrase nothing of the keys is in the file, in any form; with one they are not in it in the clear.
func TestKeysAreNotInTheClear(t *testing.T) {
	dir, _ := running(t)
	stateKey, err := os.ReadFile(filepath.Join(dir, store.StateKeyFile))
	must(t, err)
	key, err := os.ReadFile(filepath.Join(dir, audit.KeyFile))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "admin.token"), []byte("spt_person_secret"), 0o600))
	for _, passphrase := range []string{"", secret} {
		file := filepath.Join(t.TempDir(), "b.tar")
		m, err := Write(t.Context(), dir, file, "v1", passphrase, time.Now())
		must(t, err)
		data, err := os.ReadFile(file)
		must(t, err)
		for _, word := range []string{strings.TrimSpace(string(key)), strings.TrimSpace(string(stateKey)), "spt_person_secret", secret, "PRIVATE+KEY"} {
			if bytes.Contains(data, []byte(word)) {
				t.Errorf("with keys %v: it contains %.20q", m.Keys, word)
			}
		}
		if m.Keys != (passphrase != "") || m.Keys != bytes.Contains(data, []byte(sealedName)) {
			t.Errorf("%+v", m)
		}
	}
	_, err = Write(t.Context(), dir, filepath.Join(t.TempDir(), "b.tar"), "v1", "short", time.Now())
	if err == nil || !strings.Contains(err.Error(), "passphrase") {
		t.Error(err)
	}
}

// The keys come from the backup or from a folder, never from nowhere, and they are the ones of this log.
func TestKeysOfARestore(t *testing.T) {
	dir, db := running(t)
	stateKey, err := os.ReadFile(filepath.Join(dir, store.StateKeyFile))
	must(t, err)
	bare, whole := filepath.Join(t.TempDir(), "bare.tar"), filepath.Join(t.TempDir(), "whole.tar")
	for file, passphrase := range map[string]string{bare: "", whole: secret} {
		_, err := Write(t.Context(), dir, file, "v1", passphrase, time.Now())
		must(t, err)
	}
	must(t, db.Close())
	foreign := t.TempDir()
	must(t, os.Chmod(foreign, 0o700))
	_, err = audit.LoadOrCreateKey(foreign)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(foreign, "state.key"), []byte("another\n"), 0o600))
	half := t.TempDir()
	key, err := os.ReadFile(filepath.Join(dir, audit.KeyFile))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(half, audit.KeyFile), key, 0o600))
	for name, c := range map[string]struct {
		file string
		how  Restoring
		says string // "": it works
	}{
		"no keys at all":                {bare, Restoring{}, "no keys in this backup"},
		"a passphrase for none":         {bare, Restoring{Passphrase: secret}, "no keys in this backup"},
		"another log's keys":            {bare, Restoring{Keys: foreign}, "not those of this backup"},
		"one of two keys":               {bare, Restoring{Keys: half}, "state.key is missing"},
		"a folder without":              {bare, Restoring{Keys: t.TempDir()}, "can't be read"},
		"the wrong passphrase":          {whole, Restoring{Passphrase: secret + "."}, "not the one of this backup"},
		"no passphrase":                 {whole, Restoring{}, "no passphrase"},
		"another log's, over the right": {whole, Restoring{Keys: foreign, Passphrase: secret}, "not those of this backup"},
		"from a folder":                 {bare, Restoring{Keys: dir}, ""},
		"from the backup":               {whole, Restoring{Passphrase: secret}, ""},
		"from a folder, where it has":   {whole, Restoring{Keys: dir}, ""},
	} {
		to := filepath.Join(t.TempDir(), "restored")
		_, _, err := Restore(t.Context(), c.file, to, c.how)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", name, err, c.says)
			}
			if _, err := os.Lstat(to); err == nil {
				t.Errorf("%s: %v is left", name, names(t, to))
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, err := os.ReadFile(filepath.Join(to, "state.key")); string(b) != string(stateKey) {
			t.Errorf("%s: state.key %q, %v", name, b, err)
		}
		if _, err := os.Lstat(filepath.Join(to, sealedName)); err == nil {
			t.Errorf("%s: %s is left", name, sealedName)
		}
	}
}

// Only an empty directory is written to, and only a new file.
func TestNothingIsReplaced(t *testing.T) {
	dir, _ := running(t)
	file := filepath.Join(t.TempDir(), "b.tar")
	_, err := Write(t.Context(), dir, file, "v1", secret, time.Now())
	must(t, err)
	before, err := os.ReadFile(file)
	must(t, err)
	if _, err := Write(t.Context(), dir, file, "v1", "", time.Now()); err == nil {
		t.Error("a backup was replaced")
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Error("it was changed")
	}
	full := t.TempDir()
	must(t, os.WriteFile(filepath.Join(full, "x"), []byte("mine"), 0o600))
	if _, _, err := Restore(t.Context(), file, full, Restoring{Passphrase: secret}); err == nil {
		t.Error("restored over a file")
	}
	if got := names(t, full); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if _, _, err := Restore(t.Context(), file, dir, Restoring{Passphrase: secret}); err == nil {
		t.Error("restored over a running gateway's directory")
	}
	if _, err := Write(t.Context(), t.TempDir(), filepath.Join(t.TempDir(), "b.tar"), "v1", "", time.Now()); err == nil {
		t.Error("a backup of an empty folder")
	}
}

// rewrite copies an archive, member by member.
func rewrite(t *testing.T, file string, each func(w *tar.Writer, h *tar.Header, data []byte)) string {
	t.Helper()
	in, err := os.Open(file)
	must(t, err)
	defer in.Close()
	path := filepath.Join(t.TempDir(), "rewritten.tar")
	out, err := os.Create(path)
	must(t, err)
	r, w := tar.NewReader(in), tar.NewWriter(out)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		data, err := io.ReadAll(r)
		must(t, err)
		each(w, h, data)
	}
	must(t, errors.Join(w.Close(), out.Close()))
	return path
}

// A backup that was changed, cut, or made by somebody else is refused whole: nothing of it stays, and nothing is written outside the directory.
func TestChangedBackupsAreRefused(t *testing.T) {
	dir, db := running(t)
	file := filepath.Join(t.TempDir(), "b.tar")
	_, err := Write(t.Context(), dir, file, "v1", secret, time.Now())
	must(t, err)
	must(t, db.Close())
	put := func(w *tar.Writer, h *tar.Header, data []byte) {
		h.Size = int64(len(data))
		must(t, w.WriteHeader(h))
		_, err := w.Write(data)
		must(t, err)
	}
	change := func(name, from, to string) func(w *tar.Writer, h *tar.Header, data []byte) {
		return func(w *tar.Writer, h *tar.Header, data []byte) {
			if h.Name == name {
				if !bytes.Contains(data, []byte(from)) {
					t.Fatalf("%s has no %q", name, from)
				}
				data = bytes.Replace(data, []byte(from), []byte(to), 1)
			}
			put(w, h, data)
		}
	}
	raw, err := os.ReadFile(file)
	must(t, err)
	cut := filepath.Join(t.TempDir(), "cut.tar")
	must(t, os.WriteFile(cut, raw[:len(raw)/2], 0o600))
	garbage := filepath.Join(t.TempDir(), "garbage.tar")
	must(t, os.WriteFile(garbage, []byte("not a tar"), 0o600))
	outside := filepath.Join(t.TempDir(), "outside")
	for name, f := range map[string]string{
		"cut":               cut,
		"garbage":           garbage,
		"nothing":           filepath.Join(t.TempDir(), "none.tar"),
		"database changed":  rewrite(t, file, change(store.DatabaseFile, `"action":"test"`, `"action":"tost"`)),
		"entries in it":     rewrite(t, file, change(manifestName, `"entries": 302`, `"entries": 301`)),
		"format":            rewrite(t, file, change(manifestName, `"format": 1`, `"format": 2`)),
		"unknown field":     rewrite(t, file, change(manifestName, `"format": 1`, `"format": 1, "x": 1`)),
		"another name":      rewrite(t, file, change(manifestName, `"audit.pub"`, `"../audit.pub"`)),
		"a huge member":     rewrite(t, file, change(manifestName, `"name": "audit.pub",`+"\n      \"size\": 81", `"name": "audit.pub",`+"\n      \"size\": 99999999999")),
		"keys changed":      rewrite(t, file, change(sealedName, "keys v1", "keys v2")),
		"key said to be no": rewrite(t, file, change(manifestName, `"keys": true`, `"keys": false`)),
		"a member more": rewrite(t, file, func(w *tar.Writer, h *tar.Header, data []byte) {
			put(w, h, data)
			if h.Name == sealedName {
				put(w, &tar.Header{Name: outside, Mode: 0o600}, []byte("x"))
			}
		}),
		"a link": rewrite(t, file, func(w *tar.Writer, h *tar.Header, data []byte) {
			if h.Name == audit.PublicFile {
				must(t, w.WriteHeader(&tar.Header{Name: h.Name, Typeflag: tar.TypeSymlink, Linkname: outside}))
				return
			}
			put(w, h, data)
		}),
		"out of order": rewrite(t, file, func(w *tar.Writer, h *tar.Header, data []byte) {
			if h.Name != manifestName {
				put(w, h, data)
			}
		}),
	} {
		to := filepath.Join(t.TempDir(), "restored")
		must(t, os.Mkdir(to, 0o700))
		if _, _, err := Restore(t.Context(), f, to, Restoring{Passphrase: secret}); err == nil {
			t.Errorf("%s: restored", name)
		}
		if got := names(t, to); len(got) != 0 {
			t.Errorf("%s: %v is left", name, got)
		}
		if _, err := os.Lstat(outside); err == nil {
			t.Errorf("%s: something was written outside", name)
		}
	}
}

// A log that is not as it was signed makes no backup.
func TestDamagedLogsMakeNoBackup(t *testing.T) {
	dir, db := running(t)
	must(t, db.Close())
	path := filepath.Join(dir, store.DatabaseFile)
	data, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, bytes.ReplaceAll(data, []byte(`"reason":"7"`), []byte(`"reason":"8"`)), 0o600))
	to := t.TempDir()
	if _, err := Write(t.Context(), dir, filepath.Join(to, "b.tar"), "v1", "", time.Now()); err == nil || !strings.Contains(err.Error(), "not as it was signed") {
		t.Error(err)
	}
	if got := names(t, to); len(got) != 0 {
		t.Errorf("%v is left", got)
	}
}

// edit does what somebody with sqlite3 can do; triggers hold nobody, and are put back.
func edit(t *testing.T, dir, query string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, store.DatabaseFile)+"?_pragma=ignore_check_constraints(1)")
	must(t, err)
	defer db.Close()
	rows, err := db.Query("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
	must(t, err)
	all := "BEGIN;"
	back := ""
	for rows.Next() {
		var name, made string
		must(t, rows.Scan(&name, &made))
		all += "DROP TRIGGER " + name + ";"
		back += made + ";"
	}
	must(t, errors.Join(rows.Err(), rows.Close()))
	_, err = db.Exec(all + query + ";" + back + "COMMIT")
	must(t, err)
}

// What a start would refuse makes no backup, whatever was changed; the error names it and says what to do. What makes a backup can be restored.
func TestWhatIsBackedUpCanBeRestored(t *testing.T) {
	dir, db := running(t)
	must(t, db.AddToken(t.Context(), identity.Token{ID: "tok_1", Hash: strings.Repeat("1", 64), Subject: identity.Principal{Kind: identity.Person, ID: "bob"}, Created: time.Now()},
		audit.Entry{Kind: audit.Change, Action: "token.create", Decision: "ok", CallID: "tok_1"}))
	must(t, db.Close())
	remove := func(name string) func(dir string) {
		return func(dir string) { must(t, os.Remove(filepath.Join(dir, name))) }
	}
	query := func(q string) func(dir string) { return func(dir string) { edit(t, dir, q) } }
	for name, c := range map[string]struct {
		change func(dir string)
		says   string // "": there is a backup
	}{
		"nothing":                     {func(string) {}, ""},
		"a pulse":                     {query("INSERT INTO pulse (one, at) VALUES (1, 1) ON CONFLICT (one) DO UPDATE SET at = 7"), ""},
		"a forged token":              {query("INSERT INTO tokens SELECT 'tok_2', hash || '2', kind, subject, agent, roles, created, expires, revoked, entry, mac FROM tokens"), "tok_2"},
		"a changed token":             {query("UPDATE tokens SET subject = 'eve'"), "tok_1"},
		"a token gone":                {query("DELETE FROM tokens"), "tok_1"},
		"a changed session":           {query("UPDATE sessions SET state = 'closed' WHERE agent = 'a'"), "sessions"},
		"used time":                   {query("UPDATE sessions SET used_ns = 5"), "used_ns"},
		"the proof":                   {query("UPDATE state_proof SET size = size - 1"), "state_proof"},
		"no proof":                    {query("DELETE FROM state_proof"), "state_proof"},
		"no proof and no key":         {func(dir string) { edit(t, dir, "DELETE FROM state_proof"); remove("state.key")(dir) }, "state_proof"},
		"the mark":                    {query("UPDATE low_water SET idx = 0"), "low_water"},
		"a block":                     {query("UPDATE audit_blocks SET keys = x'00000000'"), "audit_blocks"},
		"a checkpoint":                {query("UPDATE audit_checkpoints SET note = x'00'"), "checkpoint"},
		"a table that is new":         {query("INSERT INTO stored_labels (id, body, entry, mac) VALUES ('x', x'7b7d', 0, x'00')"), "stored_labels"},
		"no key of the state":         {remove("state.key"), "state.key"},
		"no key of the log":           {remove(audit.KeyFile), audit.KeyFile},
		"no checkpoint beside it":     {remove(store.AnchorFile), store.AnchorFile},
		"another key of the state":    {func(dir string) { other, _ := running(t); replace(t, other, dir, "state.key") }, "state.key is another"},
		"another log's checkpoint":    {func(dir string) { other, _ := running(t); replace(t, other, dir, store.AnchorFile) }, "not signed with the key"},
		"another log's public key":    {func(dir string) { other, _ := running(t); replace(t, other, dir, audit.PublicFile) }, "not signed with the key"},
		"a trigger of somebody else":  {query("CREATE TRIGGER mine AFTER INSERT ON tokens BEGIN SELECT 1; END"), "mine"},
		"an entry of somebody else's": {query("INSERT INTO audit_entries (idx, at, kind, call_id, body) SELECT max(idx) + 1, at, kind, '', body FROM audit_entries"), "says that it is"},
	} {
		t.Run(name, func(t *testing.T) {
			work := t.TempDir()
			from, file := filepath.Join(work, "data"), filepath.Join(work, "b.tar")
			must(t, os.Mkdir(from, 0o700))
			for _, name := range names(t, dir) {
				replace(t, dir, from, name)
			}
			c.change(from)
			_, err := Write(t.Context(), from, file, "v1", secret, time.Now())
			if c.says != "" {
				f := fault.Of(err)
				if err == nil || !strings.Contains(err.Error(), c.says) || f.Remedy == "" {
					t.Errorf("%v; want %q and a remedy", err, c.says)
				}
			}
			if err != nil {
				return
			}
			for _, how := range []Restoring{{Passphrase: secret}, {Keys: from}} {
				if _, _, err := Restore(t.Context(), file, filepath.Join(t.TempDir(), "to"), how); err != nil {
					t.Errorf("backed up, and not restored: %v", err)
				}
			}
		})
	}
}

func replace(t *testing.T, from, to, name string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(from, name))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(to, name), data, 0o600))
}

// Whatever a sealed file says, opening it ends soon and with an error unless it is what was sealed.
func FuzzOpenKeys(f *testing.F) {
	f.Add([]byte(sealedHead))
	f.Add(append([]byte(sealedHead), make([]byte, 64)...))
	f.Add(append(append([]byte(sealedHead), make([]byte, saltSize)...), 0xff, 0xff, 0xff, 0xff, 1, 2, 3))
	f.Fuzz(func(t *testing.T, data []byte) {
		if keys, err := openKeys(data, secret); err == nil {
			t.Errorf("%v", keys)
		}
	})
}
