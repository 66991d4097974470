// Package notify tells people that something waits for them or has gone wrong (AU-3): by signed webhook, in a Slack-compatible
// chat, in Teams, by ntfy, by e-mail. A message has the kind of event, the agent, why it asks, the risk,
// what the tool is said to do, and a link; never arguments.
//
// Promises:
//   - Send returns when the message is on the disk, not when it is delivered. Callers use it after a decision, never within one.
//   - A message goes out once for each channel, by its key, over restarts too. If the process is
//     killed between the delivery and the note of it, the message goes out again under the same delivery id.
//   - A channel that fails is tried again with growing pauses for a day and holds up no other. Messages that were given up stay visible.
//   - A channel is a sink: where a message may hold data whose labels the channel may not carry, it says what is risky and where to look, and nothing
//     of the data.
//   - A flood becomes a digest: of one event a channel carries Burst messages at once and then one every few seconds, and when
//     more than Burst wait they go out as one.
//   - Text of agents is made harmless before it is kept: one line, no controls, no reordering, no secrets, bounded, no web
//     address. The link is made here and leads to the console. (A bare name such as evil.example stays; some readers link it.)
package notify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/threat"
)

// Event is what a message is about.
type Event string

const (
	Approval Event = "approval" // a question waits for a person
	Alert    Event = "alert"    // something went wrong
)

// Events returns every event.
func Events() []Event { return []Event{Approval, Alert} }

// Message is a message to people. Title, Text and Fields may hold an agent's words.
type Message struct {
	Key string // the same for the same message: "approval:appr_…:asked". 1 to 200 bytes
	// Follows is the key of the message that this one is about; "": none. Only channels that have that one get this one, and it names it.
	Follows string
	Event   Event
	Title   string
	Text    string
	Risk    string // LOW, MEDIUM, HIGH or CRITICAL; any other is shown as none
	Link    string // path and query within the console: "/approvals/appr_…"
	At      time.Time
	Fields  []Field // at most 8 are kept
	// Labels are those of the data that the message may hold. A channel that may not carry one of them gets Bare in place of Title, Text and Fields.
	Labels []string
	Bare   Bare
}

// Bare is what a message says where it may carry nothing of the data that it is about.
type Bare struct {
	Title  string
	Fields []Field
}

// Field is a named fact of a message.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Bounds of a message's texts in bytes.
const (
	maxRaw    = 16 << 10 // of a text; the rest is dropped unread
	maxKey    = 200
	maxTitle  = 120
	maxText   = 500
	maxFields = 8
	maxName   = 40
	maxValue  = 200
)

var risks = []string{"CRITICAL", "HIGH", "MEDIUM", "LOW", ""}

// Notice is one message for one channel in the outbox.
type Notice struct {
	ID      int64 // the store's
	Channel string
	Key     string
	Follows string // only where the channel has a notice with this key that was not folded; "": in any case. It is not kept
	Event   Event
	Body    []byte
	Added   time.Time
	Due     time.Time
	Tries   int
}

// Counts counts the notices of a channel by outcome since its first one.
type Counts struct {
	Waiting     int64
	Sent        int64 // deliveries: a digest is one
	Failed      int64 // given up
	LastError   string
	LastFailure time.Time
	LastSuccess time.Time
}

// Store is the outbox. After a method returned nil its effect is on the disk; after an error it may be. Times are kept to the microsecond.
type Store interface {
	// AddNotices adds, in one transaction, the notices whose channel has had none with the same key, and of those that follow another the ones whose channel has it.
	AddNotices(context.Context, []Notice) error
	// WaitingNotices returns the waiting notices of a channel and an event. Those that are due first come first.
	WaitingNotices(ctx context.Context, channel string, e Event, limit int) ([]Notice, error)
	// FoldNotices replaces several waiting notices by one. It is a Conflict if one of them does not wait.
	FoldNotices(ctx context.Context, ids []int64, into Notice) error
	// NoticeSent records that a notice was delivered. Repeating it changes nothing.
	NoticeSent(ctx context.Context, id int64, at time.Time) error
	// NoticeFailed records why a notice was not delivered, and when it is due again; the zero time gives it up. For a notice that does not
	// wait it changes nothing.
	NoticeFailed(ctx context.Context, id int64, tries int, due time.Time, why string, at time.Time) error
	// RemoveNotices removes the notices, and so the keys, that were added before a time.
	RemoveNotices(ctx context.Context, before time.Time) error
	// NoticeCounts returns the counts by channel.
	NoticeCounts(context.Context) (map[string]Counts, error)
}

// Options of New.
type Options struct {
	Store   Store
	Log     *slog.Logger // nil: nothing is logged
	Console string       // address of the console as people reach it: "https://sallyport.example"
	Queue   string       // path of the page that a digest of approvals leads to: "/approvals"
}

// Notifier tells people. Safe for concurrent use.
type Notifier struct {
	store   Store
	log     *slog.Logger
	console *url.URL
	queue   string
	secrets *threat.Detector
	workers []*worker
}

// New returns a Notifier. Two channels with one target are an error, as is a Console that is no address.
func New(channels []*Channel, o Options) (*Notifier, error) {
	console, err := url.Parse(o.Console)
	if err != nil || console.Scheme != "https" && console.Scheme != "http" || console.Host == "" || console.User != nil || console.RawQuery != "" || console.Fragment != "" {
		return nil, fault.Wrap(err, fault.ConfigurationInvalid, "%.100q is not the address of a console.", o.Console).Try("Write it as https://host[:port][/path].")
	}
	secrets, err := threat.New()
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the rules for secrets can't be compiled")
	}
	n := &Notifier{store: o.Store, log: o.Log, console: console, queue: o.Queue, secrets: secrets}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	names := map[string]bool{}
	for _, c := range channels {
		if names[c.name] {
			return nil, fault.New(fault.ConfigurationInvalid, "Two entries of kind %s name the same target on %s.", c.kind, c.target).Try("Make them one, with all its events in \"on\".")
		}
		names[c.name] = true
		n.workers = append(n.workers, newWorker(c))
	}
	return n, nil
}

// Send passes a message to every channel that takes its event; a question of risk HIGH or CRITICAL is an alert to channels that
// take only alerts. After nil the message will be delivered or visibly given up, whatever happens to this process. A key that a
// channel has had within the last week (keep) is not sent to it again, so a caller can send everything that waits after a start.
// The error is the store's; the caller may send the message again.
func (n *Notifier) Send(ctx context.Context, m Message) error {
	if m.Key == "" || len(m.Key) > maxKey {
		return fault.New(fault.Internal, "a message has a key of %d bytes", len(m.Key))
	}
	if !slices.Contains(Events(), m.Event) {
		return fault.New(fault.Internal, "a message is about %.40q", m.Event)
	}
	bare := m
	bare.Title, bare.Text, bare.Fields = m.Bare.Title, "", m.Bare.Fields
	whole, without := n.letterOf(m), n.letterOf(bare)
	now := time.Now()
	var notices []Notice
	var wake []*worker
	for _, w := range n.workers {
		if as, ok := w.channel.takes(m); ok {
			l := whole
			if !w.channel.carries(m.Labels) {
				l = without
			}
			if m.Follows != "" {
				l.Follows = delivery(w.channel.name, m.Follows)
			}
			body, err := json.Marshal(l)
			if err != nil {
				return fault.Wrap(err, fault.Internal, "a message can't be written")
			}
			notices = append(notices, Notice{Channel: w.channel.name, Key: m.Key, Follows: m.Follows, Event: as, Body: body, Added: now, Due: now})
			wake = append(wake, w)
		}
	}
	if len(notices) == 0 {
		return nil
	}
	if err := n.store.AddNotices(ctx, notices); err != nil {
		return err
	}
	for _, w := range wake {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// letter is a message as it is kept and sent. Its texts are harmless.
type letter struct {
	Event  Event     `json:"event"`
	Title  string    `json:"title"`
	Text   string    `json:"text"`
	Risk   string    `json:"risk"`
	Link   string    `json:"link"`
	At     time.Time `json:"at"`
	Fields []Field   `json:"fields"`
	// Follows is the delivery id of the message that this one is about.
	Follows string         `json:"follows,omitempty"`
	Digest  map[string]int `json:"digest,omitempty"` // risk -> how many it stands for; nil for a message of its own
}

func (n *Notifier) letterOf(m Message) letter {
	l := letter{Event: m.Event, Title: n.plain(m.Title, maxTitle), Text: n.plain(m.Text, maxText), Risk: m.Risk, Link: n.link(m.Link), At: m.At.UTC(), Fields: []Field{}}
	if !slices.Contains(risks, l.Risk) {
		l.Risk = ""
	}
	for _, f := range m.Fields[:min(len(m.Fields), maxFields)] {
		l.Fields = append(l.Fields, Field{n.plain(f.Name, maxName), n.plain(f.Value, maxValue)})
	}
	return l
}

// plain makes a hostile text safe in mail and chat. Their readers make links of addresses, so none stays in it.
func (n *Notifier) plain(s string, most int) string {
	s = s[:min(len(s), maxRaw)]
	s = string(n.secrets.Redact([]byte(s)))
	return isolated(strings.ReplaceAll(display.Line(s, most), "://", "[:]//"))
}

// These begin and end text whose direction moves nothing beside it. No hostile text holds them: display.Line shows them as escapes.
const (
	isolate = '\u2068'
	ended   = '\u2069'
)

// isolated isolates each run of letters from right to left with the spaces and the punctuation between them, and each number in digits of such scripts. So what stands
// beside them stays where it is: above all digits, which would otherwise be shown in another order than they are sent.
func isolated(s string) string {
	if !strings.ContainsFunc(s, display.RightToLeft) {
		return s
	}
	var out, between strings.Builder // between: what may stand inside the run, if it goes on
	open, number := false, false     // number: what is open is one
	end := func() {
		if open {
			out.WriteRune(ended)
		}
		out.WriteString(between.String())
		between.Reset()
		open = false
	}
	for _, r := range s {
		switch {
		case display.RightToLeft(r):
			if is := unicode.IsNumber(r); open && (is != number || is && between.Len() > 0) {
				end()
			}
			if !open {
				out.WriteRune(isolate)
				number = unicode.IsNumber(r)
			}
			out.WriteString(between.String())
			between.Reset()
			out.WriteRune(r)
			open = true
		case open && !unicode.IsLetter(r) && !unicode.IsNumber(r):
			between.WriteRune(r)
		default:
			end()
			out.WriteRune(r)
		}
	}
	end()
	return out.String()
}

// link is the address of a page of the console. No path makes it lead elsewhere.
func (n *Notifier) link(path string) string {
	to := *n.console
	ref, err := url.Parse(path)
	if err != nil || ref.Scheme != "" || ref.Host != "" || ref.Opaque != "" || !strings.HasPrefix(ref.Path, "/") || len(path) > 500 {
		return to.String()
	}
	to = *to.JoinPath(ref.EscapedPath())
	to.RawQuery = ref.Query().Encode()
	return to.String()
}

// followed counts, in a digest, the messages about earlier ones.
const followed = "followed"

// digest makes one letter in place of several.
func (n *Notifier) digest(e Event, letters []letter, now time.Time) letter {
	d := letter{Event: e, At: now.UTC(), Fields: []Field{}, Digest: map[string]int{}}
	all := 0
	for _, l := range letters {
		switch {
		case l.Digest != nil:
		case l.Follows != "":
			l.Digest = map[string]int{followed: 1}
		default:
			l.Digest = map[string]int{l.Risk: 1}
		}
		for risk, count := range l.Digest {
			d.Digest[risk] += count
			if risk != followed {
				all += count
			}
		}
	}
	var parts []string
	for _, risk := range slices.Backward(risks) { // the highest last: it stays in Risk
		if count := d.Digest[risk]; count > 0 {
			d.Risk = risk
			number := strconv.Itoa(count)
			parts = append(parts, number+" "+cmp.Or(risk, "without a risk"))
			d.Fields = append(d.Fields, Field{cmp.Or(risk, "none"), number})
		}
	}
	slices.Reverse(parts)
	slices.Reverse(d.Fields)
	d.Text = strings.Join(parts, ", ") + "."
	if answered := d.Digest[followed]; answered > 0 && e == Approval {
		d.Text = strings.TrimPrefix(d.Text, ".") + " " + strconv.Itoa(answered) + " of earlier messages need nobody any more."
	}
	if e == Approval {
		d.Title, d.Link = strconv.Itoa(all)+" requests wait", n.link(n.queue)
	} else {
		d.Title, d.Link = strconv.Itoa(all)+" alerts", n.link("/")
	}
	return d
}

// delivery is the id of one message for one channel. It is the same at every try, so that a receiver can drop a repeated one.
func delivery(channel, key string) string {
	sum := sha256.Sum256([]byte(channel + "\x00" + key))
	return "ntf_" + hex.EncodeToString(sum[:12])
}

// Status is the state of a channel.
type Status struct {
	Kind   string
	Target string // the host, never more of the address
	Counts
}

// Status returns the state of each channel, in the order of New.
func (n *Notifier) Status(ctx context.Context) ([]Status, error) {
	counts, err := n.store.NoticeCounts(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Status, len(n.workers))
	for i, w := range n.workers {
		all[i] = Status{w.channel.kind, w.channel.target, counts[w.channel.name]}
	}
	return all, nil
}

// Run delivers until ctx ends, and waits for its goroutines. A delivery under way gets a moment (grace) to end by itself, because
// one that is cut off goes out a second time after the next start. Run must not be called while it runs.
func (n *Notifier) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, w := range n.workers {
		all.Go(func() { n.work(ctx, w) })
	}
	all.Go(func() { n.tidy(ctx) })
	all.Wait()
}

// tidy removes old notices, hourly.
func (n *Notifier) tidy(ctx context.Context) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if err := n.store.RemoveNotices(ctx, time.Now().Add(-keep)); err != nil && ctx.Err() == nil {
			n.log.Warn("old notifications were not removed; the next hour does it", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
