// Package backup writes a data directory to one file, and makes a data directory of such a file.
//
// The file is a tar archive. Its first member, manifest.json, names all others with size and SHA-256. Then come the database that is written to,
// audit.checkpoint and audit.pub, where they were asked for the keys, encrypted (keys.sealed), the sealed segments of the log, and the texts of the knowledge
// store with the keys of their documents. Tokens in files, workspaces and the cache are not in it.
//
// Promises: the database in the file is as it was at one moment, and its log and its rows were verified, with the directory's keys, before the file got
// its name; a gateway that runs on the directory goes on meanwhile. What a start would refuse makes no backup, so that what Write wrote can be restored.
// Restore writes only into an empty directory, and leaves it empty where anything is wrong. It puts an entry into the
// log, and closes the sessions that were open: what was approved in them may have been used since the backup.
package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/knowledge/shelf"
	"sallyport.example/internal/segment"
	"sallyport.example/internal/session"
	"sallyport.example/internal/store"
)

const (
	format       = 1
	manifestName = "manifest.json"
	sealedName   = "keys.sealed"
	maxManifest  = 64 << 10
	maxSmall     = 1 << 20 // every member but the database
)

// keyFiles are the secrets of a data directory without which its log and its rows can't go on. The second is needed where the database says that its rows
// were proved.
var keyFiles = []string{audit.KeyFile, store.StateKeyFile}

// Manifest says what is in a backup.
type Manifest struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the program
	At      time.Time `json:"at"`
	Origin  string    `json:"origin"` // of the log
	Entries int64     `json:"entries"`
	Newest  time.Time `json:"newest_entry_at,omitzero"`
	Keys    bool      `json:"keys"`  // encrypted, in keys.sealed
	Needs   []string  `json:"needs"` // the key files that it can't be restored without
	Files   []Member  `json:"files"`
}

// Member is one file in a backup.
type Member struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Size is the number of bytes of all files.
func (m *Manifest) Size() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Write makes a backup of the data directory in a new file. With a passphrase the keys are in it, encrypted under that.
func Write(ctx context.Context, dir, file, version, passphrase string, now time.Time) (m Manifest, err error) {
	if _, err := os.Lstat(file); err == nil {
		return m, fault.New(fault.ConfigurationInvalid, "%s is there already.", file).Try("Name a new file: a backup replaces nothing.")
	}
	work, err := os.MkdirTemp(filepath.Dir(file), filepath.Base(file)+".part-")
	if err != nil {
		return m, fault.Wrap(err, fault.ConfigurationInvalid, "%s can't be written", file)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if m, err = snapshot(ctx, dir, work, passphrase); err != nil {
		return m, err
	}
	m.Format, m.Version, m.At, m.Keys = format, version, now.UTC(), passphrase != ""
	whole := filepath.Join(work, "backup.tar")
	if err := pack(whole, work, m); err != nil {
		return m, fault.Wrap(err, fault.StoreUnavailable, "The backup can't be written")
	}
	// Link, not rename: a file that came there meanwhile is not replaced. Some file systems of removable disks and other machines have no links.
	err = os.Link(whole, file)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = os.Rename(whole, file)
	}
	if err != nil {
		return m, fault.Wrap(err, fault.ConfigurationInvalid, "%s can't be written", file)
	}
	return m, syncDir(filepath.Dir(file))
}

// snapshot puts the members of a backup into the folder work, and verifies the log there.
func snapshot(ctx context.Context, dir, work, passphrase string) (m Manifest, err error) {
	pub, err := audit.ReadFile(filepath.Join(dir, audit.PublicFile))
	if err != nil {
		return m, fault.Wrap(err, fault.ConfigurationInvalid, "%s is not a whole data directory", dir).Try("Name the directory with --data.")
	}
	// The checkpoint before the copy, which then has all that it covers.
	note, err := audit.ReadFile(filepath.Join(dir, store.AnchorFile))
	if err != nil {
		return m, fault.Wrap(err, fault.AuditUnavailable, "The newest checkpoint, %s, can't be read", store.AnchorFile).Try("Put it back: no gateway starts without it.")
	}
	running, err := store.OpenReadOnly(dir)
	if err != nil {
		return m, err
	}
	databases, err := running.CopyTo(ctx, work)
	if err := errors.Join(err, running.Close()); err != nil {
		return m, err
	}
	if err := os.Chmod(filepath.Join(work, databases[0]), 0o600); err != nil {
		return m, err
	}
	if err := os.WriteFile(filepath.Join(work, audit.PublicFile), pub, 0o600); err != nil {
		return m, err
	}
	copied, err := store.OpenReadOnly(work)
	if err != nil {
		return m, err
	}
	kept, err := copied.LatestCheckpoint(ctx)
	if err = errors.Join(err, copied.Close()); err != nil {
		return m, err
	}
	if newer(kept, note, string(pub)) { // signed between the two
		note = kept
	}
	if err := write(filepath.Join(work, store.AnchorFile), bytes.NewReader(note)); err != nil {
		return m, err
	}
	if m, err = check(ctx, work, dir, string(pub)); err != nil {
		return m, err
	}
	names := []string{databases[0], store.AnchorFile, audit.PublicFile}
	if passphrase != "" {
		sealed, err := sealKeys(dir, passphrase, m.Needs)
		if err != nil {
			return m, err
		}
		if err := os.WriteFile(filepath.Join(work, sealedName), sealed, 0o600); err != nil {
			return m, err
		}
		names = append(names, sealedName)
	}
	names = append(names, databases[1:]...)
	// After the database, so that there is a text for each version in that; and no key that was destroyed by now.
	if there, err := shelf.CopyTo(ctx, dir, filepath.Join(work, shelf.File)); err != nil {
		return m, err
	} else if there {
		names = append(names, shelf.File)
	}
	for _, name := range names {
		member, err := measure(filepath.Join(work, name))
		if err != nil {
			return m, err
		}
		m.Files = append(m.Files, member)
	}
	return m, nil
}

// newer tells whether a checkpoint is of a longer log than another. One that is not signed is not.
func newer(a, b []byte, pub string) bool {
	key, err := audit.ParsePublicKey(pub)
	if err != nil {
		return false
	}
	one, err := audit.OpenCheckpoint(a, key)
	other, bad := audit.OpenCheckpoint(b, key)
	return err == nil && bad == nil && one.Size > other.Size
}

// check verifies the database in a folder as strictly as a start on it: the log from its bytes, and each row that decides with the key in the folder
// keys. It says what the database holds and needs.
func check(ctx context.Context, dir, keys, pub string) (m Manifest, err error) {
	r, err := store.OpenReadOnly(dir)
	if err != nil {
		return m, err
	}
	r = r.WithKeyIn(keys)
	defer func() { err = errors.Join(err, r.Close()) }()
	if m.Needs, err = needs(ctx, dir); err != nil {
		return m, err
	}
	for _, name := range m.Needs {
		if _, err := readKey(filepath.Join(keys, name)); err != nil {
			return m, fault.Wrap(err, fault.ConfigurationInvalid, "The key %s can't be read, and without it nobody can tell whether the database is as its gateway wrote it", name).
				Try("Put %s back, or run the command as the user that the gateway runs as.", name)
		}
	}
	src, err := r.Source(ctx)
	if err != nil {
		return m, err
	}
	report, err := audit.Verify(src, pub)
	if err != nil {
		return m, fault.Wrap(err, fault.ConfigurationInvalid, "%s can't be used", audit.PublicFile)
	}
	if !report.OK {
		more := ""
		if n := int64(len(report.Problems)) - 1 + report.Omitted; n > 0 {
			more = fmt.Sprintf(" (and %d more)", n)
		}
		return m, fault.New(fault.AuditUnavailable, "The database is not as it was signed: %s%s.", report.Problems[0].What, more).
			Try("Run \"sallyport audit verify\": it names all that is in doubt, and no gateway starts on it either. Put back the newest backup from before. To keep this one as evidence, stop the gateway and copy the directory.")
	}
	m.Origin, m.Entries = report.Origin, report.From+report.Checked
	m.Newest, err = r.Latest(ctx)
	return m, err
}

func measure(path string) (m Member, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return Member{Name: filepath.Base(path), Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, err
}

// pack writes the archive, durably.
func pack(file, work string, m Manifest) (err error) {
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	add := func(name string, size int64, data io.Reader) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: m.At.Truncate(time.Second), Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err := io.Copy(w, data)
		return err
	}
	if err := add(manifestName, int64(len(manifest)), bytes.NewReader(manifest)); err != nil {
		return err
	}
	for _, member := range m.Files {
		data, err := os.Open(filepath.Join(work, member.Name))
		if err != nil {
			return err
		}
		if err := errors.Join(add(member.Name, member.Size, data), data.Close()); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), f.Sync())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Open reads the manifest of a backup, and nothing else.
func Open(file string) (m Manifest, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fault.New(fault.ConfigurationInvalid, "There is no backup %s.", file).Try("Check the path.")
	} else if err != nil {
		return m, fault.Wrap(err, fault.ConfigurationInvalid, "The backup can't be read")
	}
	defer f.Close()
	m, err = manifest(tar.NewReader(f))
	return m, err
}

func notABackup(err error, format string, args ...any) error {
	return fault.Wrap(err, fault.ConfigurationInvalid, "This is not a backup that can be restored: %s", fmt.Sprintf(format, args...)).
		Try("Take another one: sallyport backup writes it whole or not at all.")
}

func manifest(t *tar.Reader) (m Manifest, err error) {
	h, err := t.Next()
	if err != nil || h.Name != manifestName || h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return m, notABackup(err, "it does not begin with %s.", manifestName)
	}
	b, err := io.ReadAll(t)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		err = d.Decode(&m)
	}
	if err != nil {
		return m, notABackup(err, "its %s can't be read.", manifestName)
	}
	if m.Format != format {
		return m, notABackup(nil, "it has the format %d, and this program knows %d.", m.Format, format)
	}
	want := []string{store.AnchorFile, audit.PublicFile}
	if m.Keys {
		want = append(want, sealedName)
	}
	var names []string
	var databases []int64 // the newest first
	for i, f := range m.Files {
		first, database := segment.First(f.Name)
		texts := f.Name == shelf.File && i == len(m.Files)-1
		if f.Size < 0 || f.Size > maxSmall && !database && !texts {
			return m, notABackup(nil, "it says that %s has %d bytes.", f.Name, f.Size)
		}
		if texts {
			continue
		}
		if database && (i == 0 || i > len(want)) {
			databases = append(databases, first)
		} else {
			names = append(names, f.Name)
		}
	}
	if !slices.Equal(names, want) || len(databases) == 0 || !slices.IsSorted(append(databases[1:], databases[0])) {
		return m, notABackup(nil, "it holds other files than a backup does.")
	}
	return m, nil
}

// Restoring says how a directory is made of a backup.
type Restoring struct {
	Passphrase string // of the keys in the backup, or ""
	Keys       string // a folder with the key files, where the backup has none
	Actor      string // who does it, for the entry
	Reason     string
	// Detail is added to the entry's detail. It is asked for once the log is there and before the entry is written.
	Detail func(ctx context.Context, db *store.DB) (map[string]any, error)
	// Erasures are those that were done by the gateway that was backed up, perhaps after the backup. They are done again.
	Erasures []knowledge.Erasure
}

// Restore makes a data directory of a backup, writes the entry "restore" and closes the sessions that were open. The directory must be empty, or not
// be there. closed is the number of these sessions.
func Restore(ctx context.Context, file, dir string, how Restoring) (m Manifest, closed int, err error) {
	made, err := emptyDir(dir)
	if err != nil {
		return m, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clean(dir, made))
		}
	}()
	if m, err = unpack(file, dir); err != nil {
		return m, 0, err
	}
	if err := how.putKeys(ctx, dir, m); err != nil {
		return m, 0, err
	}
	pub, err := audit.ReadFile(filepath.Join(dir, audit.PublicFile))
	if err != nil {
		return m, 0, err
	}
	found, err := check(ctx, dir, dir, string(pub))
	if err != nil {
		return m, 0, err
	}
	if found.Entries != m.Entries || !found.Newest.Equal(m.Newest) || found.Origin != m.Origin {
		return m, 0, notABackup(nil, "its log has %d entries, and it says that there are %d.", found.Entries, m.Entries)
	}
	if err := syncDir(dir); err != nil {
		return m, 0, err
	}
	db, err := store.Open(dir, store.Options{})
	if err != nil {
		return m, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if closed, err = how.record(ctx, db, m); err != nil {
		return m, closed, err
	}
	return m, closed, how.eraseAgain(ctx, db, dir)
}

// eraseAgain destroys the keys of documents that were erased after the backup: it has them.
func (how Restoring) eraseAgain(ctx context.Context, db *store.DB, dir string) error {
	if len(how.Erasures) == 0 {
		return nil
	}
	s, err := shelf.Open(dir)
	if err != nil {
		return err
	}
	_, err = library.EraseAgain(ctx, db, s, how.Actor, time.Now(), how.Erasures)
	return errors.Join(err, s.Close())
}

// record writes the entry, and closes the sessions that were open.
func (how Restoring) record(ctx context.Context, db *store.DB, m Manifest) (closed int, err error) {
	detail := map[string]any{"backup_at": m.At, "entries": m.Entries, "newest_entry_at": m.Newest, "bytes": m.Size(), "database_sha256": m.Files[0].SHA256}
	if how.Detail != nil {
		more, err := how.Detail(ctx, db)
		if err != nil {
			return 0, err
		}
		for name, value := range more {
			detail[name] = value
		}
	}
	b, err := json.Marshal(detail)
	if err != nil {
		return 0, err
	}
	e := audit.Entry{Kind: audit.Change, Action: "restore", Actor: how.Actor, Decision: "ok", Reason: audit.Clip(how.Reason), Detail: b}
	if err := db.Record(ctx, e); err != nil {
		return 0, err
	}
	for {
		page, err := db.SessionsPage(ctx, "", 100, session.Open)
		if err != nil || len(page.Sessions) == 0 {
			return closed, err
		}
		for _, s := range page.Sessions {
			_, err := db.ChangeSession(ctx, s.ID, func(s session.Session) (session.Session, audit.Entry, error) {
				e := audit.Entry{Kind: audit.Change, Action: "session.close", Agent: s.Agent, Session: s.ID, Requester: s.Requester, Actor: how.Actor, Decision: "ok",
					Reason: "it was open in the backup that was restored"}
				next, err := s.Close(time.Now())
				return next, e, err
			})
			if err != nil {
				return closed, err
			}
			closed++
		}
	}
}

// emptyDir makes the directory, and refuses one with anything in it.
func emptyDir(dir string) (made bool, err error) {
	found, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return false, fault.Wrap(err, fault.ConfigurationInvalid, "%s can't be made", dir)
		}
		return true, nil
	case err != nil:
		return false, fault.Wrap(err, fault.ConfigurationInvalid, "%s can't be the data directory", dir)
	case len(found) > 0:
		return false, fault.New(fault.ConfigurationInvalid, "%s is not empty.", dir).
			Try("Name a new directory with --data, or move this one away and keep it: it is evidence of what happened since the backup.")
	}
	return false, os.Chmod(dir, 0o700)
}

// clean empties the directory again.
func clean(dir string, made bool) error {
	found, err := os.ReadDir(dir)
	for _, f := range found {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, f.Name())))
	}
	if made {
		err = errors.Join(err, os.Remove(dir))
	}
	return err
}

// unpack writes the members of the archive, which are no others than its manifest says, byte for byte.
func unpack(file, dir string) (m Manifest, err error) {
	f, err := os.Open(file)
	if err != nil {
		return m, fault.Wrap(err, fault.ConfigurationInvalid, "The backup can't be read")
	}
	defer f.Close()
	t := tar.NewReader(f)
	if m, err = manifest(t); err != nil {
		return m, err
	}
	for _, member := range m.Files {
		h, err := t.Next()
		if err != nil || h.Name != member.Name || h.Typeflag != tar.TypeReg || h.Size != member.Size {
			return m, notABackup(err, "%s is not in it as its manifest says.", member.Name)
		}
		sum := sha256.New()
		if err := write(filepath.Join(dir, member.Name), io.TeeReader(t, sum)); err != nil {
			return m, notABackup(err, "%s can't be written, or the file ends before it does.", member.Name)
		}
		if hex.EncodeToString(sum.Sum(nil)) != member.SHA256 {
			return m, notABackup(nil, "%s was changed.", member.Name)
		}
	}
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return m, notABackup(err, "it holds more than its manifest says.")
	}
	return m, nil
}

// write makes a file durable. It replaces none.
func write(path string, data io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
