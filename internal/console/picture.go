package console

import (
	"bytes"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/display"
	"sallyport.example/internal/session"
	"sallyport.example/internal/timeline"
)

// picture is an SVG made of a few kinds of shapes. All looks come from classes of the style sheet, and all words are escaped: the pages'
// policy allows no inline style, and most words are an agent's or a server's.
type picture struct {
	Class         string
	ID            string // of the element, its title and its description. "": the picture is decoration, and says nothing new
	Title, Desc   string
	Width, Height int
	Shapes        []shape
}

// shape is a path if D is set, a text if Text is, and a rectangle if W is.
type shape struct {
	Class, Tip string
	D          string
	X, Y, W, H string
	Text       string
}

var svg = template.Must(template.New("picture").Parse(
	`<svg class="picture{{with .Class}} {{.}}{{end}}" {{if .ID}}id="{{.ID}}" role="img" aria-labelledby="{{.ID}}-title" aria-describedby="{{.ID}}-desc"{{else}}aria-hidden="true"{{end}} ` +
		`xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}">` +
		`{{if .ID}}<title id="{{.ID}}-title">{{.Title}}</title><desc id="{{.ID}}-desc">{{.Desc}}</desc>{{end}}` +
		`{{range .Shapes}}<g class="{{.Class}}">{{with .Tip}}<title>{{.}}</title>{{end}}` +
		`{{if .D}}<path d="{{.D}}"></path>{{else if .Text}}<text x="{{.X}}" y="{{.Y}}">{{.Text}}</text>` +
		`{{else if .W}}<rect x="{{.X}}" y="{{.Y}}" width="{{.W}}" height="{{.H}}"></rect>{{end}}</g>
{{end}}</svg>`))

// render writes the picture. It can fail only if the template is wrong, which a test would show.
func (p picture) render() template.HTML {
	var b bytes.Buffer
	if err := svg.Execute(&b, p); err != nil {
		panic(err) // the transport's recover answers
	}
	return template.HTML(b.String()) // made by a template that escapes
}

// num writes a coordinate.
func num(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// shorten makes hostile text visible and no longer than max characters.
func shorten(s string, max int) string {
	runes := []rune(display.Line(s, 4*max))
	if len(runes) > max {
		return string(runes[:max-1]) + "…"
	}
	return string(runes)
}

func (p *picture) rect(class, tip string, x, y, w, h float64) {
	p.Shapes = append(p.Shapes, shape{Class: class, Tip: tip, X: num(x), Y: num(y), W: num(math.Max(w, 0.5)), H: num(h)})
}

func (p *picture) path(class, tip, format string, at ...float64) {
	words := make([]any, len(at))
	for i, v := range at {
		words[i] = num(v)
	}
	p.Shapes = append(p.Shapes, shape{Class: class, Tip: tip, D: fmt.Sprintf(format, words...)})
}

func (p *picture) text(class string, x, y float64, text string) {
	if text != "" {
		p.Shapes = append(p.Shapes, shape{Class: class, X: num(x), Y: num(y), Text: text})
	}
}

// The measures of the timeline, in pixels.
const (
	laneHeight  = 52.0
	laneHead    = 14.0 // of a small one, where the name stands above
	bandHeight  = 20.0
	stripHeight = 22.0
	maxRows     = 24  // labels with a row of their own; the rest are in the list
	maxTies     = 400 // curves drawn; the rest are in the list
)

// measure holds what differs between a screen and a phone.
type measure struct {
	small             bool    // the names of the rows stand above them, and not before
	share             float64 // width that the columns share
	widest, narrowest float64 // a column
	left              float64 // margin
}

var (
	onScreen = measure{share: 940, widest: 104, narrowest: 5, left: 118}
	onPhone  = measure{small: true, share: 324, widest: 50, narrowest: 1, left: 4}
)

// laneWords name the rows, in the order in which they are drawn.
var laneWords = []struct {
	lane        timeline.Lane
	name, words string
}{
	{timeline.LanePeople, "People", "and the gateway"},
	{timeline.LanePlans, "Plans", "declarations"},
	{timeline.LaneSources, "Sources", "bring labels in"},
	{timeline.LaneOthers, "Others", "neither"},
	{timeline.LaneSinks, "Sinks", "could carry out"},
	{timeline.LaneWrites, "Writes", "change something"},
}

// drawing holds the geometry of one timeline.
type drawing struct {
	picture
	measure
	t      timeline.Line
	column float64 // width of one
	laneY  map[timeline.Lane]float64
	rowY   map[string]float64 // by label
	bottom float64
}

func (d *drawing) x(column int) float64 {
	return d.left + (float64(column)+0.5)*d.column
}

// edge is the left edge of a column. A column before the timeline has the edge of the first.
func (d *drawing) edge(column int) float64 {
	return d.left + float64(max(column, 0))*d.column
}

// draw makes the picture. Calls that bring data in stand above, the labels that they bring run on from there as bands, and calls that could carry
// data out stand below. A curve leads from the call that brought a label to each call that was stopped because of it.
func draw(t timeline.Line, m measure) picture {
	d := &drawing{measure: m, t: t, laneY: map[timeline.Lane]float64{}, rowY: map[string]float64{}}
	d.column = math.Min(m.widest, math.Max(m.narrowest, m.share/float64(max(t.Width, 1))))
	y := 6 + stripHeight + 6
	used := func(l timeline.Lane) bool {
		return slices.ContainsFunc(t.Moments, func(m timeline.Moment) bool { return m.Lane == l })
	}
	var labels []string
	for _, b := range t.Bands {
		if !slices.Contains(labels, b.Label) && len(labels) < maxRows {
			labels = append(labels, b.Label)
		}
	}
	right := d.left + float64(t.Width)*d.column
	lanes := func(which ...timeline.Lane) {
		for _, w := range laneWords {
			if !slices.Contains(which, w.lane) || !used(w.lane) {
				continue
			}
			if d.small {
				d.rect("lane", "", 0, y, math.Max(right+4, 170), laneHeight)
				d.text("lane-words", 4, y+12, w.name+": "+w.words)
				d.laneY[w.lane] = y + laneHead + (laneHeight-laneHead)/2
			} else {
				d.rect("lane", "", 0, y, right+8, laneHeight)
				d.text("lane-name", 6, y+22, w.name)
				d.text("lane-words", 6, y+38, w.words)
				d.laneY[w.lane] = y + laneHeight/2 - 4
			}
			y += laneHeight + 4
		}
	}
	lanes(timeline.LanePeople, timeline.LanePlans, timeline.LaneSources)
	if len(labels) > 0 {
		if y += 4; d.small {
			d.text("lane-words", 4, y+10, "Labels held")
			y += laneHead
		} else {
			d.text("lane-name", 6, y+15, "Labels held")
		}
		for i, l := range labels {
			d.rowY[l] = y + float64(i)*bandHeight
		}
		y += float64(len(labels))*bandHeight + 8
	}
	lanes(timeline.LaneOthers, timeline.LaneSinks, timeline.LaneWrites)
	d.bottom = y
	d.phases()
	d.bands()
	d.ties()
	for _, m := range t.Moments {
		d.mark(m)
	}
	d.axis()
	d.Class, d.ID, d.Title, d.Desc = "large", "timeline", "Timeline of the session", describe(t)
	d.Width, d.Height = int(right)+16, int(y)+34
	if d.small {
		d.Class, d.ID, d.Width = "small", "timeline-small", int(math.Max(right, 170))+6
	}
	return d.picture
}

func (d *drawing) phases() {
	for _, s := range d.t.Phases {
		x, w := d.edge(s.From), float64(s.To-s.From)*d.column
		d.rect("phase "+phaseClass(s.Phase), string(s.Phase), x, 6, w, stripHeight)
		if word := string(s.Phase); w > 7.5*float64(len(word)) {
			d.text("phase-name", x+5, 6+stripHeight-7, word)
		}
		if s.From > 0 {
			d.path("phase-line", "", "M%s %sV%s", x, 6, d.bottom)
		}
	}
	if !d.small {
		d.text("lane-name", 6, 6+stripHeight-7, "Phase")
	}
}

// phaseClass is the style class of a phase. No other text becomes a class.
func phaseClass(p session.Phase) string {
	if p == session.Execution || p == session.Planning {
		return string(p)
	}
	return "unknown"
}

func (d *drawing) bands() {
	for _, b := range d.t.Bands {
		y, ok := d.rowY[b.Label]
		if !ok {
			continue
		}
		x := d.edge(-1)
		if b.Since >= 0 {
			x = d.x(b.Since)
		}
		end := d.edge(b.To)
		if b.To < d.t.Width {
			end = d.x(b.To)
		}
		from := "before this"
		if b.From >= 0 {
			from = fmt.Sprintf("by number %d, %s", b.From+1, shorten(b.Operation, 60))
		}
		class, name := "band", "band-name"
		if b.Label == string(flow.Untrusted) {
			class, name = "band integrity", "band-name integrity"
		}
		d.rect(class, fmt.Sprintf("%s, brought %s", shorten(b.Label, 40), from), x, y+3, end-x, bandHeight-5)
		if word, right := shorten(b.Label, 24), d.edge(d.t.Width); x+5+7.5*float64(len([]rune(word))) <= right || b.To < d.t.Width {
			d.text(name, x+5, y+14.5, word)
		} else { // the name does not fit after the beginning of the band
			d.text(name+" end", right-3, y+14.5, word)
		}
		if b.From >= 0 { // a line from the call that brought it
			if m := d.t.Moments[b.From]; d.laneY[m.Lane] > 0 {
				d.path("rise", "", "M%s %sL%s %s", d.x(b.From), d.laneY[m.Lane], math.Max(x, d.x(b.From)), y+bandHeight/2)
			}
		}
		if b.To < d.t.Width {
			d.path("release", "released", "M%s %sv%s", end, y+1, bandHeight-2)
		}
	}
}

func (d *drawing) ties() {
	for i, t := range d.t.Ties {
		if i == maxTies {
			break
		}
		to := d.t.Moments[t.To]
		x1, y1 := d.edge(-1), d.rowY[t.Label]+bandHeight/2
		if t.From >= 0 {
			x1, y1 = d.x(t.From), d.laneY[d.t.Moments[t.From].Lane]
		}
		x2, y2 := d.x(t.To), d.laneY[to.Lane]
		bend := math.Max(18, (x2-x1)/2)
		class := "tie " + string(t.Fate)
		if len(d.t.Ties) > 20 {
			class += " many"
		}
		if t.From < 0 {
			bend = math.Max(8, (x2-x1)/2)
		}
		if y1 == y2 { // the same row: over it
			d.path(class, "", "M%s %sC%s %s %s %s %s %s", x1, y1-8, x1+bend/3, y1-44, x2-bend/3, y2-44, x2, y2-10)
			continue
		}
		d.path(class, "", "M%s %sC%s %s %s %s %s %s", x1, y1, x1+bend, y1, x2, y2-(y2-y1)/2, x2, y2)
	}
}

// mark draws one moment. The form shows its lane, the sign in it its outcome. In narrow columns it is a stroke.
func (d *drawing) mark(m timeline.Moment) {
	x, y := d.x(m.Column), d.laneY[m.Lane]
	r := math.Min(10, d.column*0.42)
	tip := ""
	if d.t.Width > 0 { // the legend needs no tip
		tip = fmt.Sprintf("%d. %s", m.Number(), shorten(m.Title(), 80))
		if v := m.Verdict(); v != "" {
			tip += ": " + v
		}
		if m.Who != "" {
			tip += " by " + shorten(m.Who, 40)
		}
	}
	class := "mark " + string(m.Fate) + " " + string(m.Lane)
	tall := r
	if r < 6 { // narrow, but still tall
		tall = 9
	}
	d.Shapes = append(d.Shapes, shape{Class: class, Tip: tip, D: outline(m.Lane, x, y, r, tall)})
	in := math.Min(r*0.55, 5)
	switch m.Fate {
	case timeline.FateRefused, timeline.FateDiscarded:
		d.path("sign "+string(m.Fate), "", "M%s %sL%s %sM%s %sL%s %s", x-in, y-in, x+in, y+in, x-in, y+in, x+in, y-in)
	case timeline.FateWaiting, timeline.FateAsked, timeline.FateUnknown:
		if r >= 6 {
			d.text("sign-text "+string(m.Fate), x, y+4.5, "?")
		} else {
			d.path("sign "+string(m.Fate), "", "M%s %sv%s", x, y-2, 4)
		}
	case timeline.FateFailed:
		d.path("sign failed", "", "M%s %sv%sM%s %sv%s", x, y-in, in*1.1, x, y+in*0.7, 0.8)
	case timeline.FateUnderWay:
		d.path("sign underway", "", "M%s %sh%s", x-in, y, 2*in)
	}
	if len(m.Answers) > 0 && m.Lane != timeline.LanePeople { // a person answered it
		d.path("answer", "", "M%s %sh%s", x-math.Min(r, 6), y+13, 2*math.Min(r, 6))
	}
	if d.column >= 56 && !d.small {
		d.text("mark-name", x, y+25, shorten(shortName(m), int(d.column/6.6)))
	}
}

// shortName is the text under a mark: the tool's name without its server.
func shortName(m timeline.Moment) string {
	if m.Lane == timeline.LanePeople {
		if word, ok := map[string]string{"session.open": "opened", "session.definitions": "listed", "session.close": "closed", "session.release": "released", "session.phase": string(m.Phase),
			"plan.approve": "plan approved", "plan.reject": "plan rejected", "token.create": "token"}[m.Operation]; ok {
			return word
		}
		return strings.TrimPrefix(m.Title(), "Request ")
	}
	_, tool, ok := strings.Cut(m.Operation, ".")
	if !ok {
		return m.Operation
	}
	return tool
}

// outline is the form of a lane, as a path around x, y. rx and ry are half its width and half its height.
func outline(l timeline.Lane, x, y, rx, ry float64) string {
	corners := func(at ...float64) string {
		var b strings.Builder
		for i := 0; i < len(at); i += 2 {
			b.WriteString(map[bool]string{true: "M", false: "L"}[i == 0] + num(x+at[i]*rx) + " " + num(y+at[i+1]*ry))
		}
		return b.String() + "Z"
	}
	switch l {
	case timeline.LaneSinks: // a diamond
		return corners(0, -1.1, 1.1, 0, 0, 1.1, -1.1, 0)
	case timeline.LaneWrites: // a square
		return corners(-0.9, -0.9, 0.9, -0.9, 0.9, 0.9, -0.9, 0.9)
	case timeline.LanePlans: // a sheet with a corner off
		return corners(-0.75, -1, 0.35, -1, 0.75, -0.5, 0.75, 1, -0.75, 1)
	case timeline.LanePeople: // a hexagon
		return corners(-1, 0, -0.5, -0.87, 0.5, -0.87, 1, 0, 0.5, 0.87, -0.5, 0.87)
	case timeline.LaneOthers:
		rx, ry = 0.7*rx, 0.7*ry
	}
	return fmt.Sprintf("M%s %sa%s %s 0 1 0 %s 0a%s %s 0 1 0 %s 0Z", num(x-rx), num(y), num(rx), num(ry), num(2*rx), num(rx), num(ry), num(-2*rx))
}

func (d *drawing) axis() {
	step := max(1, int(math.Ceil(26/d.column)))
	for _, m := range d.t.Moments {
		if m.Column%step == 0 || m.Column == d.t.Width-1 && m.Column%step > step/2 {
			d.text("tick", d.x(m.Column), d.bottom+14, strconv.Itoa(m.Number()))
		}
	}
	if n := len(d.t.Moments); n > 0 {
		first, last := d.t.Moments[0].At.UTC(), d.t.Moments[n-1].At.UTC()
		d.text("time", d.left, d.bottom+29, first.Format("2006-01-02 15:04:05"))
		if float64(d.t.Width)*d.column > 300 {
			d.text("time end", d.left+float64(d.t.Width)*d.column, d.bottom+29, last.Format("2006-01-02 15:04:05")+" UTC")
		}
	}
}

// describe tells what the picture shows, for people who can't see it.
func describe(t timeline.Line) string {
	count := map[timeline.Fate]int{}
	calls := 0
	for _, m := range t.Moments {
		if m.Lane != timeline.LanePeople && m.Lane != timeline.LanePlans {
			calls++
			count[m.Fate]++
		}
	}
	words := []string{fmt.Sprintf("%s from left to right.", plural(calls, "call"))}
	for _, f := range []timeline.Fate{timeline.FatePermitted, timeline.FateFailed, timeline.FateUnderWay, timeline.FateWaiting, timeline.FateAsked, timeline.FateRefused, timeline.FateDiscarded, timeline.FateUnknown} {
		if n := count[f]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s.", n, timeline.Moment{Fate: f}.Verdict()))
		}
	}
	for i, b := range t.Bands {
		if i == 8 {
			words = append(words, fmt.Sprintf("And %s more.", plural(len(t.Bands)-i, "label")))
			break
		}
		from := "since before this timeline"
		if b.From >= 0 {
			from = fmt.Sprintf("from number %d, %s", b.From+1, shorten(b.Operation, 40))
		}
		until := ""
		if b.To < t.Width {
			until = fmt.Sprintf(", until number %d", b.To+1)
		}
		words = append(words, fmt.Sprintf("Label %s %s%s.", shorten(b.Label, 40), from, until))
	}
	stopped := map[int]bool{}
	for _, x := range t.Ties {
		stopped[x.To] = true
	}
	if len(stopped) > 0 {
		words = append(words, fmt.Sprintf("%s stopped, asked about or noted because of a label; the curves lead there from what brought it.", plural(len(stopped), "call")))
	}
	return strings.Join(words, " ") + " The list below says the same."
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return strconv.Itoa(n) + " " + word + "s"
}

// sign is one entry of the legend.
type sign struct {
	Picture template.HTML
	Words   string
}

// signs are the legend of the timeline.
var signs = legend()

func legend() (all []sign) {
	for _, one := range []struct {
		words string
		m     timeline.Moment
	}{
		{"source", timeline.Moment{Lane: timeline.LaneSources, Fate: timeline.FatePermitted}}, {"sink", timeline.Moment{Lane: timeline.LaneSinks, Fate: timeline.FatePermitted}},
		{"write", timeline.Moment{Lane: timeline.LaneWrites, Fate: timeline.FatePermitted}}, {"other call", timeline.Moment{Lane: timeline.LaneOthers, Fate: timeline.FatePermitted}},
		{"plan or declaration", timeline.Moment{Lane: timeline.LanePlans, Fate: timeline.FatePermitted}}, {"person’s act", timeline.Moment{Lane: timeline.LanePeople, Fate: timeline.FateDone}},
		{"refused", timeline.Moment{Lane: timeline.LaneSinks, Fate: timeline.FateRefused}}, {"waits for, or asked, a person", timeline.Moment{Lane: timeline.LaneWrites, Fate: timeline.FateWaiting}},
		{"permitted, failed", timeline.Moment{Lane: timeline.LaneSinks, Fate: timeline.FateFailed}}, {"under way", timeline.Moment{Lane: timeline.LaneSinks, Fate: timeline.FateUnderWay}},
		{"outcome unknown", timeline.Moment{Lane: timeline.LaneSinks, Fate: timeline.FateUnknown}},
		{"a person answered", timeline.Moment{Lane: timeline.LaneWrites, Fate: timeline.FatePermitted, Answers: []string{""}}},
	} {
		d := drawing{measure: measure{left: 2}, column: 22, laneY: map[timeline.Lane]float64{one.m.Lane: 13}}
		d.mark(one.m)
		d.Width, d.Height = 26, 30
		all = append(all, sign{d.render(), one.words})
	}
	return all
}
