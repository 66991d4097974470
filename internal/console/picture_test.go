package console

import (
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/session"
	"sallyport.example/internal/timeline"
)

// wellFormed parses the picture as XML and looks for what the page's policy forbids.
func wellFormed(t *testing.T, svg string) (elements int) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	d.Strict = true
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%.2000s", err, svg)
		}
		el, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		elements++
		if !slices.Contains([]string{"svg", "title", "desc", "g", "path", "rect", "text"}, el.Name.Local) {
			t.Fatalf("a <%s> in a picture", el.Name.Local)
		}
		for _, a := range el.Attr {
			if a.Name.Local == "style" || strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" || strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
				t.Fatalf("%s=%q in a picture", a.Name.Local, a.Value)
			}
		}
	}
	if !strings.Contains(svg, `role="img"`) || !strings.Contains(svg, "<title id=") || !strings.Contains(svg, "<desc id=") {
		t.Errorf("a picture without role, title or description: %.300s", svg)
	}
	return elements
}

const hostileText = "<img src=x onerror=alert(1)>\"'</title></desc></svg><script>alert(2)</script>\u202egpj.exe\x1b[31m\x00\xff{{.}}\u2028]]>"

// lineOf is a timeline of so many moments, in which everything is there that one can have.
func lineOf(r *rand.Rand, n int) timeline.Line {
	t := timeline.Line{Width: n, Earlier: true}
	lanes := []timeline.Lane{timeline.LaneSources, timeline.LanePlans, timeline.LaneSinks, timeline.LaneWrites, timeline.LaneOthers, timeline.LanePeople}
	fates := []timeline.Fate{
		timeline.FatePermitted, timeline.FateFailed, timeline.FateUnderWay, timeline.FateWaiting, timeline.FateAsked, timeline.FateRefused, timeline.FateDiscarded, timeline.FateUnknown, timeline.FateDone,
	}
	for i := range n {
		m := timeline.Moment{
			Column: i, At: time.Unix(int64(i), 0), Lane: lanes[r.IntN(len(lanes))], Fate: fates[r.IntN(len(fates))], Shadow: r.IntN(5) == 0,
			Operation: strings.Repeat(hostileText, 1+r.IntN(50)), Reason: strings.Repeat(hostileText, 50), Who: hostileText, Answers: []string{hostileText},
		}
		label := fmt.Sprintf("%s%d", hostileText, r.IntN(60))
		since := i + r.IntN(n-i)
		t.Bands = append(t.Bands, timeline.Band{Label: label, From: r.IntN(i+2) - 1, Since: since, To: since + r.IntN(n-since+1), Operation: hostileText, CallID: hostileText})
		m.Because = []timeline.Tie{{From: r.IntN(i+2) - 1, To: i, Label: label, Operation: hostileText, Fate: m.Fate}}
		t.Ties, t.Moments = append(t.Ties, m.Because...), append(t.Moments, m)
		t.Phases = append(t.Phases, timeline.Span{Phase: []session.Phase{session.Planning, session.Execution}[i%2], From: i, To: i + 1})
	}
	return t
}

// TestPictureOfATimeline: well-formed and small, however much there is and whatever it is called.
func TestPictureOfATimeline(t *testing.T) {
	const most = 512 << 10
	for _, n := range []int{0, 1, 2, 24, 200, maxMoments} {
		got := lineOf(rand.New(rand.NewPCG(uint64(n), 1)), n)
		svg := string(draw(got, onScreen).render())
		small := string(draw(got, onPhone).render())
		wellFormed(t, svg)
		wellFormed(t, small)
		if len(svg)+len(small) > most {
			t.Errorf("%d moments: %d bytes", n, len(svg))
		}
		for _, bad := range []string{"<script", "<img", "\u202e", "\x1b", "\x00", "\u2028", "\xff"} {
			if strings.Contains(svg+small, bad) {
				t.Errorf("%d moments: %q gets into the picture", n, bad)
			}
		}
		if wide, narrow := draw(got, onScreen).Width, draw(got, onPhone).Width; wide > 1400 || narrow > 346 {
			t.Errorf("%d moments: %d and %d pixels wide", n, wide, narrow)
		}
	}
}

// TestPictureInWords: people who can't see the picture are told what it shows.
func TestPictureInWords(t *testing.T) {
	desc := describe(timeline.Line{
		Moments: []timeline.Moment{
			{Lane: timeline.LanePeople, Fate: timeline.FateDone}, {Column: 1, Lane: timeline.LaneSources, Fate: timeline.FatePermitted}, {Column: 2, Lane: timeline.LaneWrites, Fate: timeline.FatePermitted},
			{Column: 3, Lane: timeline.LaneSinks, Fate: timeline.FateRefused},
		},
		Bands: []timeline.Band{{Label: "internal", From: 1, Since: 1, To: 4, Operation: "mail.search"}},
		Ties:  []timeline.Tie{{From: 1, To: 2, Label: "internal"}, {From: 1, To: 3, Label: "internal"}},
		Width: 4,
	})
	for _, want := range []string{"3 calls from left to right.", "2 permitted.", "1 refused.", "Label internal from number 2, mail.search.", "2 calls stopped, asked about"} {
		if !strings.Contains(desc, want) {
			t.Errorf("the description lacks %q: %s", want, desc)
		}
	}
}
