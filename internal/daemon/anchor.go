package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"sallyport.example/internal/anchor"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/store"
)

// AuditConfig says where the log is anchored, and how large its files get.
type AuditConfig struct {
	SegmentEntries int64        `yaml:"segment_entries,omitempty" json:"segment_entries,omitempty" jsonschema:"After so many entries the log goes on in a new file, and the one before is sealed: it changes no more and can be archived. Default 1000000, about a gigabyte; at least 1000."`
	Search         *bool        `yaml:"search,omitempty" json:"search,omitempty" jsonschema:"Keep an index of the words in arguments and results, as the log shows them, so that auditors find entries by content. Default true. false removes the index."`
	Anchor         AnchorConfig `yaml:"anchor,omitempty" json:"anchor,omitempty" jsonschema:"A place outside the data directory that always holds the newest signed checkpoint. A directory that was put back is older than it."`
	RequireAnchor  bool         `yaml:"require_anchor,omitempty" json:"require_anchor,omitempty" jsonschema:"Refuse to start where the log does not go on from what the anchor holds, and where the anchor can't be read. Default false: the start says so, on record."`
}

// AnchorConfig is one place: a file or a web address.
type AnchorConfig struct {
	File    string            `yaml:"file,omitempty" json:"file,omitempty" jsonschema:"A file outside the data directory, best on another machine."`
	Webhook string            `yaml:"webhook,omitempty" json:"webhook,omitempty" jsonschema:"A web address that answers GET with the body of the last PUT, and 404 where there was none."`
	Headers map[string]string `yaml:"headers,omitempty" json:"headers,omitempty" jsonschema:"Headers for the webhook: its credential belongs here."`
}

const (
	leastSegment   = 1000
	defaultSegment = 1_000_000
)

// perSegment is the number of entries in a file of the log.
func (a *AuditConfig) perSegment() int64 { return cmp.Or(a.SegmentEntries, defaultSegment) }

func (a *AnchorConfig) none() bool { return a.File == "" && a.Webhook == "" }

func (c *Config) checkAudit(p *complaints) {
	if n := c.Audit.SegmentEntries; n != 0 && n < leastSegment {
		p.bad("audit.segment_entries", fmt.Sprintf("give a number from %d on, or leave it out", leastSegment), "%d entries are too few for a file", n)
	}
	a := &c.Audit.Anchor
	if a.File != "" && a.Webhook != "" {
		p.bad("audit.anchor", "give one of file and webhook", "there are two anchors")
	}
	if len(a.Headers) > 0 && a.Webhook == "" {
		p.bad("audit.anchor.headers", "remove it, or give webhook", "a file takes no headers")
	}
	if c.Audit.RequireAnchor && a.none() {
		p.bad("audit.require_anchor", "give audit.anchor a file or a webhook", "there is no anchor to require")
	}
	if a.Webhook == "" {
		return
	}
	u, err := url.Parse(a.Webhook)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		p.bad("audit.anchor.webhook", "use https://", "it is not a web address")
		return
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		p.bad("audit.anchor.webhook", "use https://", "its credential and the answers would cross the network in the clear, where they can be changed")
	}
}

// anchorOf returns the anchor of a configuration for the log in a data directory; nil if there is none.
func (c *Config) anchorOf(data, publicKey string) (*anchor.Anchor, error) {
	a := &c.Audit.Anchor
	if a.none() {
		return nil, nil
	}
	key, err := audit.ParsePublicKey(publicKey)
	if err != nil {
		return nil, err
	}
	if a.Webhook != "" {
		return anchor.Webhook(a.Webhook, a.Headers, key)
	}
	file := c.path(a.File)
	if inside(file, data) {
		return nil, fault.New(fault.ConfigurationInvalid, "The anchor %s lies in the data directory, and would be put back with it.", file).At("audit.anchor.file").
			Try("Name a file elsewhere, best on another machine.")
	}
	return anchor.File(file, key), nil
}

// inside tells whether a file lies below a folder, wherever links lead.
func inside(file, dir string) bool {
	real := func(path string) string {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		if link, err := filepath.EvalSymlinks(path); err == nil {
			return link
		}
		if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			return filepath.Join(parent, filepath.Base(path))
		}
		return filepath.Clean(path)
	}
	rel, err := filepath.Rel(real(dir), real(file))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// anchoring is how the log stands to its anchor.
type anchoring struct {
	anchor *anchor.Anchor // nil where there is none
	watch  *anchor.Watch  // the same
	keeper *anchor.Keeper // nil until it is moved on
	state  anchor.State   // as the start found it; "" where it can't be compared
	found  string         // by the start, or ""
}

// checkAnchor compares the log with its anchor before the gateway writes to it. An anchor that was never there is made now.
func (d *Daemon) checkAnchor(ctx context.Context) error {
	a, err := d.config().anchorOf(d.o.Data, d.store.Signer().PublicKey())
	if a == nil || err != nil {
		return err
	}
	d.anchored.anchor, d.anchored.watch = a, a.Watch(d.store)
	require := d.config().Audit.RequireAnchor
	found, err := a.Compare(ctx, d.store)
	if err != nil {
		if require {
			return fault.Wrap(err, fault.AuditUnavailable, "The gateway does not start without its anchor (audit.require_anchor)")
		}
		d.o.Log.Error("the log can't be compared with its anchor", "error", err)
		d.anchored.found = "can't be compared: " + err.Error()
		return nil
	}
	d.anchored.state, d.anchored.found = found.State, found.String()
	if found.Good() {
		d.o.Log.Info("the log goes on from its anchor", "comparison", found.String())
		return nil
	}
	known, err := d.knewAnchor(ctx)
	if err != nil {
		return err
	}
	switch made := found.State == anchor.Missing && !known; {
	case made && (found.LogSize == 0 || !require):
		return d.makeAnchor(ctx, found)
	case made:
		return fault.New(fault.AuditUnavailable, "%s", found.String()).
			Try("If the anchor is new: \"sallyport audit anchor --move --reason TEXT\" makes it, on record. If it was there before, find out who removed it.")
	case found.State == anchor.Missing && require:
		return fault.New(fault.AuditUnavailable, "%s The last start had one there.", found.String()).
			Try("Find out who removed it, and look that this directory was not put back. To go on with it: \"sallyport audit anchor --move --reason TEXT\", which is put on record.")
	case require:
		return fault.New(fault.AuditUnavailable, "%s", found.String()).
			Try("Find out who put it back, and put back the newest directory. To go on with this one: \"sallyport audit anchor --move --reason TEXT\", which is put on record.")
	}
	d.o.Log.Error("the log does not go on from its anchor", "comparison", found.String())
	return d.recordAnchor(ctx, "anchor."+string(found.State), "gateway:start", found)
}

// knewAnchor tells whether the last start had the same anchor in its configuration. If the place holds nothing now, somebody removed it.
func (d *Daemon) knewAnchor(ctx context.Context) (bool, error) {
	last, err := d.lastStart(ctx)
	if last == nil || err != nil {
		return false, err
	}
	key, err := d.configKey()
	if err != nil {
		return false, err
	}
	for field, value := range map[string]string{"audit.anchor.file": d.config().Audit.Anchor.File, "audit.anchor.webhook": d.config().Audit.Anchor.Webhook} {
		text, err := json.Marshal(value)
		if err != nil {
			return false, err
		}
		if value != "" && last.Config[field] == fieldDigest(key, field, text) {
			return true, nil
		}
	}
	return false, nil
}

// makeAnchor writes the anchor for the first time.
func (d *Daemon) makeAnchor(ctx context.Context, found anchor.Finding) error {
	d.o.Log.Warn("the log's anchor is made now", "comparison", found.String())
	if found.LogSize > 0 { // the first start has nothing to lose
		if err := d.recordAnchor(ctx, "anchor.make", "gateway:start", found); err != nil {
			return err
		}
	}
	err := d.anchored.anchor.Move(ctx, d.store)
	if err != nil && d.config().Audit.RequireAnchor {
		return err
	}
	if err != nil {
		d.o.Log.Error("the log's anchor can't be made", "error", err)
		d.anchored.found = "can't be made: " + err.Error()
		return nil
	}
	d.anchored.state, d.anchored.found = anchor.Held, found.String()+" It is made now."
	return nil
}

// keepAnchor tells people what the start found, and moves the anchor on from here.
func (d *Daemon) keepAnchor(ctx context.Context) {
	if d.anchored.anchor == nil {
		return
	}
	if s := d.anchored.state; s != "" && s != anchor.Held {
		d.teller.unanchored(ctx, d.anchored.found)
	}
	d.anchored.keeper = d.anchored.anchor.Keep(d.store, d.o.Log, d.anchored.state, func(found anchor.Finding) {
		ctx := context.Background()
		if err := d.recordAnchor(ctx, "anchor."+string(found.State), "gateway:anchor", found); err != nil {
			d.o.Log.Error("what became of the anchor could not be put on record", "error", err)
		}
		d.teller.unanchored(ctx, found.String())
	})
}

// recordAnchor puts on record how the log stands to its anchor.
func (d *Daemon) recordAnchor(ctx context.Context, action, actor string, found anchor.Finding) error {
	detail, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return d.store.Record(ctx, audit.Entry{Kind: audit.Change, Action: action, Actor: actor, Decision: "ok", Reason: audit.Clip(found.String()), Detail: detail})
}

// anchorLine is the line of the start about the anchor, or "".
func (d *Daemon) anchorLine() string {
	if d.anchored.found == "" {
		return ""
	}
	return fmt.Sprintf("  anchor   %s\n", d.anchored.found)
}

// CompareAnchor compares the log in a data directory with the anchor of the configuration. ok is false where there is no anchor.
func CompareAnchor(ctx context.Context, cfg *Config, data string, log anchor.Log, publicKey string) (found anchor.Finding, ok bool, err error) {
	a, err := cfg.anchorOf(data, publicKey)
	if a == nil || err != nil {
		return found, false, err
	}
	found, err = a.Compare(ctx, log)
	return found, err == nil, err
}

// MoveAnchor moves the anchor to the end of the log in a data directory that no gateway runs on, whatever it holds: on a person's word, which is put on
// record before. actor is who says so.
func MoveAnchor(ctx context.Context, cfg *Config, db *store.DB, data, actor, reason string) (found anchor.Finding, err error) {
	a, err := cfg.anchorOf(data, db.Signer().PublicKey())
	if err != nil {
		return found, err
	}
	if a == nil {
		return found, fault.New(fault.ConfigurationInvalid, "The configuration has no anchor to move.").At("audit.anchor").Try("Name the configuration with --config.")
	}
	found, err = a.Compare(ctx, db)
	if err != nil && !fault.Is(err, fault.AuditUnavailable) { // what lies there and is no anchor is replaced, too
		return found, err
	}
	detail, err := json.Marshal(found)
	if err != nil {
		return found, err
	}
	e := audit.Entry{Kind: audit.Change, Action: "anchor.move", Actor: actor, Decision: "ok", Reason: audit.Clip(reason), Detail: detail}
	if err := db.Record(ctx, e); err != nil {
		return found, err
	}
	return found, a.Move(ctx, db)
}

// doctorAnchor compares the log with its anchor, as the next start does.
func doctorAnchor(cfg *Config, data string, r *store.Reader, add func(name, state, remedy, format string, args ...any)) {
	if cfg.Audit.Anchor.none() {
		add("anchor", "ok", "", "%s", anchor.NotConfigured().Text)
		return
	}
	pub, err := audit.ReadFile(filepath.Join(data, audit.PublicFile))
	var found anchor.Finding
	if err == nil {
		found, _, err = CompareAnchor(context.Background(), cfg, data, r, string(pub))
	}
	state := "warning"
	if cfg.Audit.RequireAnchor {
		state = "failed"
	}
	status := anchor.StatusOf(found, err, time.Now())
	switch {
	case err != nil:
		add("anchor", state, fault.Of(err).Remedy, "%s: %v", status.State, err)
	case status.Good():
		add("anchor", "ok", "", "%s", status.Text)
	case found.Good():
		add("anchor", "warning", "see to the place: a gateway that runs moves the anchor on", "%s", status.Text)
	default:
		add("anchor", state, "find out why; a person moves it with sallyport audit anchor --move", "%s", status.Text)
	}
}
