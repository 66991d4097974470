package console

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/search"
	"sallyport.example/provenance"
)

const (
	pageOfTools = 100
	// usedWithin is how many of the newest entries are searched for calls of an operation.
	usedWithin = 10_000
)

// usage knows which operations were called lately. It reads each entry once.
type usage struct {
	mu   sync.Mutex // guards the rest
	upTo int64      // entries before this have been read
	last map[string]int64
}

// recent reads the entries that are new since the last time. It returns for each operation the index of its last call among the newest usedWithin
// entries, and how many entries those are. Only permitted calls count: a refused one can have any name.
func (u *usage) recent(ctx context.Context, s Store) (last map[string]int64, entries int64, err error) {
	size, err := s.Size(ctx)
	if err != nil {
		return nil, 0, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	first := max(0, size-usedWithin)
	read, err := search.Between(ctx, s, audit.Filter{Kind: string(audit.Intent)}, max(first, u.upTo), size)
	if err != nil {
		return nil, 0, err
	}
	if u.last == nil {
		u.last = map[string]int64{}
	}
	for _, e := range read {
		u.last[e.Operation] = e.Index
	}
	maps.DeleteFunc(u.last, func(_ string, index int64) bool { return index < first })
	u.upTo = max(u.upTo, size)
	return maps.Clone(u.last), size - first, nil
}

// toolRow is one operation in the catalogue.
type toolRow struct {
	catalogue.ToolView
	Path string
	Used bool  // it was called of late
	Last int64 // index of the entry of its last call
}

// Classified says which entry of the configuration classifies the tool.
func (t toolRow) Classified() string {
	switch {
	case t.BuiltIn:
		return "built in"
	case t.Named:
		return "by name"
	case t.Listed:
		return "by " + t.Server + ".*"
	case t.AskOnce:
		return "not listed: the first call in a session is asked about"
	case t.AskFirst:
		return "not listed: each call is asked about"
	case t.Denied:
		return "not listed: refused once the gateway enforces"
	}
	return "not listed"
}

// toolsPage is the catalogue.
type toolsPage struct {
	Server    string
	Standing  catalogue.Standing
	Servers   []string
	Standings []catalogue.Standing
	Rows      []toolRow
	All       int // how many the catalogue has
	Found     int // how many match the filter
	Next      string
	First     string // link to the first page, or "" on it
	Refresh   string
	Coverage  []coverage
	Picture   template.HTML
	Within    int64 // how many entries were searched for calls
	Missing   string
	Unread    int  // definitions that no person has accepted
	Stored    int  // places of servers whose data carries labels
	Proposes  bool // the person may look at what recorded work proposes
}

// standings is the closed list. Those that need attention come first.
var standings = []catalogue.Standing{catalogue.Quarantined, catalogue.Unfit, catalogue.Unlisted, catalogue.Active, catalogue.Gone}

func (c *Console) tools(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	q := r.URL.Query()
	d := toolsPage{Server: q.Get("server"), Standing: catalogue.Standing(q.Get("standing")), Standings: standings}
	if d.Standing != "" && !slices.Contains(standings, d.Standing) {
		c.fail(w, r, p, fault.New(fault.NotFound, "There is no such standing of tools.").Try("Choose one from the list."))
		return
	}
	all := c.o.Gateway.Catalogue().ToolViews()
	used, within, err := c.used(r.Context())
	if err != nil {
		d.Missing = problemOf(err).Text
	}
	d.All, d.Within, d.Unread = len(all), within, len(c.unreadTools())
	d.Proposes = c.o.Labels != nil && p.Has(identity.Operator)
	d.Stored = len(c.o.Gateway.Stored().List())
	d.Coverage = coverageOf(all, used)
	if len(d.Coverage) > 0 {
		d.Picture = drawCoverage(d.Coverage, within).render()
	}
	page := func(after string) string {
		return link("/tools", "server", d.Server, "standing", string(d.Standing), "after", after)
	}
	after := q.Get("after")
	for _, t := range all {
		if !slices.Contains(d.Servers, t.Server) {
			d.Servers = append(d.Servers, t.Server)
		}
		if d.Server != "" && t.Server != d.Server || d.Standing != "" && t.Standing != d.Standing {
			continue
		}
		if d.Found++; t.Operation <= after && after != "" {
			continue
		}
		if len(d.Rows) == pageOfTools {
			if d.Next == "" {
				d.Next = page(d.Rows[pageOfTools-1].Operation)
			}
			continue
		}
		d.Rows = append(d.Rows, rowOfTool(t, used))
	}
	if d.Refresh = page(after); after != "" {
		d.First = page("")
	}
	c.show(w, r, p, view{template: "tools", title: "Tools", place: "/tools", data: d})
}

// used tells which operations were called lately.
func (c *Console) used(ctx context.Context) (map[string]int64, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	used, within, err := c.usage.recent(ctx, c.o.Store)
	if err != nil {
		c.missing("which tools are used", err)
	}
	return used, within, err
}

func rowOfTool(t catalogue.ToolView, used map[string]int64) toolRow {
	last, ok := used[t.Operation]
	return toolRow{ToolView: t, Path: "/tools/" + url.PathEscape(t.Operation), Used: ok, Last: last}
}

// coverage counts how the tools of one server are classified.
type coverage struct {
	Server  string
	All     int
	Parts   []part // in the order of the picture; none is 0
	Unused  int    // tools that could be called and were not
	Counted bool   // Unused is known
}

// part is some of a server's tools.
type part struct {
	Class, Name string
	N           int
}

// partOf returns the part of its server's bar that a tool belongs to. A reason why it can't be called comes before its classification.
func partOf(t catalogue.ToolView) part {
	switch {
	case t.Standing == catalogue.Quarantined:
		return part{"quarantined", "quarantined", 1}
	case t.Standing == catalogue.Unfit:
		return part{"unfit", "unfit", 1}
	case t.Standing == catalogue.Gone:
		return part{"gone", "gone", 1}
	case t.BuiltIn:
		return part{"builtin", "built in", 1}
	case t.Named:
		return part{"named", "by name", 1}
	case t.Listed:
		return part{"default", "by server.*", 1}
	}
	return part{"unlisted", "not listed", 1}
}

var partOrder = []string{"builtin", "named", "default", "unlisted", "quarantined", "unfit", "gone"}

// coverageOf counts by server. With used nil it is not known which tools were called.
func coverageOf(all []catalogue.ToolView, used map[string]int64) []coverage {
	byServer := map[string]*coverage{}
	for _, t := range all {
		s := byServer[t.Server]
		if s == nil {
			s = &coverage{Server: t.Server, Counted: used != nil}
			byServer[t.Server] = s
		}
		s.All++
		p := partOf(t)
		if i := slices.IndexFunc(s.Parts, func(have part) bool { return have.Class == p.Class }); i >= 0 {
			s.Parts[i].N++
		} else {
			s.Parts = append(s.Parts, p)
		}
		if _, ok := used[t.Operation]; !ok && t.Standing == catalogue.Active {
			s.Unused++
		}
	}
	var out []coverage
	for _, server := range slices.Sorted(maps.Keys(byServer)) {
		s := byServer[server]
		slices.SortFunc(s.Parts, func(a, b part) int {
			return cmp.Compare(slices.Index(partOrder, a.Class), slices.Index(partOrder, b.Class))
		})
		out = append(out, *s)
	}
	return out
}

// Words tells the coverage of one server.
func (s coverage) Words() string {
	var words []string
	for _, p := range s.Parts {
		words = append(words, fmt.Sprintf("%d %s", p.N, p.Name))
	}
	text := fmt.Sprintf("%s: %s", plural(s.All, "tool"), strings.Join(words, ", "))
	if s.Counted {
		text += fmt.Sprintf("; %d not used", s.Unused)
	}
	return text
}

const shownServers = 40 // bars; the rest are in the list

// drawCoverage draws a bar for each server. Its length shows the number of tools, its parts how they are classified, and a thin bar below it the
// tools that were not used.
func drawCoverage(all []coverage, within int64) picture {
	const left, width, height = 140.0, 560.0, 40.0
	p := picture{ID: "coverage", Title: "How the tools are classified, by server"}
	largest := 1
	for _, s := range all {
		largest = max(largest, s.All)
	}
	var words []string
	y := 4.0
	for i, s := range all {
		if i == shownServers {
			words = append(words, fmt.Sprintf("And %s more.", plural(len(all)-i, "server")))
			break
		}
		words = append(words, fmt.Sprintf("%s: %s.", shorten(s.Server, 40), s.Words()))
		p.text("bar-name", 6, y+18, shorten(s.Server, 18))
		x, one := left, width*math.Max(float64(s.All)/float64(largest), 0.12)/float64(s.All)
		for _, part := range s.Parts {
			w := float64(part.N) * one
			p.rect("part "+part.Class, fmt.Sprintf("%s: %d %s", shorten(s.Server, 40), part.N, part.Name), x, y+4, w, 20)
			if n := strconv.Itoa(part.N); w > 9*float64(len(n)) {
				p.text("part-name "+part.Class, x+w/2, y+18.5, n)
			}
			x += w
		}
		if s.Counted && s.Unused > 0 {
			p.rect("part unused", fmt.Sprintf("%s: %d not used in the last %d entries", shorten(s.Server, 40), s.Unused, within), left, y+27, float64(s.Unused)*one, 5)
		}
		p.text("bar-words", x+8, y+18, plural(s.All, "tool"))
		y += height
	}
	p.Desc = strings.Join(words, " ") + " The table below says the same."
	p.Width, p.Height = int(left+width+80), int(y)+2
	return p
}

// toolPage shows one operation.
type toolPage struct {
	toolRow
	Problem    *problem
	Operator   bool
	Auditor    bool
	Meaning    []string // sentences about what the classification means
	Exact      []piece  // the accepted definition
	Waiting    []piece  // the definition that waits, if none was accepted before
	Difference []change // between the two
	Agents     []string // who may call it
	Within     int64
	UsedKnown  bool
}

func (c *Console) showTool(w http.ResponseWriter, r *http.Request, p identity.Principal, d toolPage, status int) {
	id := r.PathValue("operation")
	all := c.o.Gateway.Catalogue().ToolViews()
	i := slices.IndexFunc(all, func(t catalogue.ToolView) bool { return t.Operation == id })
	if i < 0 {
		c.fail(w, r, p, fault.New(fault.NotFound, "No server that is or was connected offers %.80q.", id).Try("See all of them under Tools."))
		return
	}
	used, within, err := c.used(r.Context())
	d.toolRow, d.Within, d.UsedKnown = rowOfTool(all[i], used), within, err == nil
	d.Operator, d.Auditor = p.Has(identity.Operator), p.Has(identity.Auditor)
	d.Meaning = sentences(d.ToolView)
	switch {
	case d.Pending != nil && d.Definition != nil:
		d.Difference = difference(inOrder(d.Definition), inOrder(d.Pending))
	case d.Pending != nil:
		d.Waiting = exactly(inOrder(d.Pending))
	}
	if d.Definition != nil {
		d.Exact = exactly(inOrder(d.Definition))
	}
	for _, a := range c.o.Agents().All() {
		if a.Permits(d.Operation, d.Effect != string(flow.Read)) {
			d.Agents = append(d.Agents, a.AgentID)
		}
	}
	c.show(w, r, p, view{template: "tool", title: d.Operation, place: "/tools", status: status, data: d})
}

// inOrder sorts the members of a definition, so that two that differ only in their order look the same. What is not strict JSON stays as it is.
func inOrder(definition []byte) []byte {
	if canonical, err := call.Canonical(definition, call.DefaultLimits()); err == nil {
		return canonical
	}
	return definition
}

// Labelled says whether the operator has classified the arguments.
func (t toolRow) Labelled() string {
	switch {
	case !t.Traced:
		return "not traced"
	case t.Profile.HasRoles():
		return "labelled"
	case t.Profile != nil && t.Level == 0 && !t.Profile.EgressURL:
		return "reads"
	}
	return "no label"
}

// sentences say what the classification of a tool means for a session. Allows says what its label allows.
func sentences(t catalogue.ToolView) (says []string) {
	list := func(labels []flow.Label) string {
		var words []string
		for _, l := range labels {
			words = append(words, string(l))
		}
		return strings.Join(words, ", ")
	}
	say := func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
	switch t.Standing {
	case catalogue.Quarantined:
		say("It can’t be called: its definition changed, or it is new, and an operator has to look at it first.")
	case catalogue.Unlisted:
		say("It can’t be called: no entry under operations in sallyport.yaml covers it.")
	case catalogue.Unfit:
		say("It can’t be called: %s.", strings.TrimSuffix(t.Fault, "."))
	case catalogue.Gone:
		say("It can’t be called: its server no longer offers it.")
	}
	switch {
	case len(t.Emits) == 0 && len(t.BlockedBy) == 0:
		say("Its results bring no label into the session, and no label keeps it from being called.")
	default:
		if len(t.Emits) > 0 {
			say("Its results bring %s into the session.", list(t.Emits))
		} else {
			say("Its results bring no label into the session.")
		}
		if len(t.BlockedBy) > 0 && t.Profile.HasRoles() {
			say("While the session holds %s it runs only as far as its label allows.", list(t.BlockedBy))
		} else if len(t.BlockedBy) > 0 {
			say("It is refused while the session holds %s.", list(t.BlockedBy))
		} else {
			say("No label keeps it from being called.")
		}
	}
	if t.Effect == string(flow.Read) {
		say("It reads.")
	} else {
		say("It changes something%s.", map[int]string{1: ", which only the person sees and can undo"}[t.Level])
	}
	if t.ExternalIO {
		say("It reaches outside, so it is refused while the session is planning.")
	}
	say("%s", map[provenance.Output]string{
		provenance.TrustedOutput:   "What it answers is trusted and handed over as it is.",
		provenance.UntrustedOutput: "What it answers is not trusted: its text is fenced, and says where it is from.",
		provenance.TypedOutput:     "What it answers is trusted only while each of its strings has the shape that the operator gave.",
		provenance.EchoOutput:      "What it answers repeats what it was asked.",
	}[t.Output])
	switch {
	case t.AskOnce:
		say("A person is asked about the first call in each session, since no entry of the configuration covers it; a yes covers later calls of it there.")
	case t.AskFirst:
		say("A person is asked about every call, since no entry of the configuration covers it.")
	case t.Denied:
		say("It is refused once the gateway enforces, since no entry of the configuration covers it.")
	}
	if t.Admin {
		say("A person decides about every call, and only one with the role admin.")
	}
	if t.Risk != "" {
		say("Its risk is %s. Amounts, and what the session has read or does for the first time, can raise that. Nothing lowers it.", t.Risk)
	}
	return slices.DeleteFunc(says, func(s string) bool { return s == "" })
}

// acceptTool accepts the definition that was on the page; the form names its hash.
func (c *Console) acceptTool(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	id := r.PathValue("operation")
	if err := c.o.Gateway.Catalogue().AcceptTool(r.Context(), id, r.PostForm.Get("hash"), p.String()); err != nil {
		refused, status := c.refused(r, p, err, "accept", "operation", id)
		c.showTool(w, r, p, toolPage{Problem: refused}, status)
		return
	}
	http.Redirect(w, r, "/tools/"+url.PathEscape(id), http.StatusSeeOther)
}
