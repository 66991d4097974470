package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/screen"
)

const (
	// screeningLooks bounds how many entries of the log the page of screening goes over, the newest, and pageOfScreened how many of each kind it shows.
	screeningLooks = 10_000
	pageOfScreened = 20
)

// screeningPage shows what screening found lately and a sample of what it found nothing in, and what people said of both.
type screeningPage struct {
	Problem        *problem
	Hits, Sample   []screenedRow // that nobody has judged, the newest first
	Alarms, Missed measured
	SampleOf       int
	Looks          int
}

// screenedRow is one of them.
type screenedRow struct {
	audit.Entry
	Found screen.Found
}

// measured is a rate as the page says it.
type measured struct {
	screen.Rate
	Unjudged int // others like these on the page
}

func (m measured) Words() string {
	if m.Of == 0 {
		return fmt.Sprintf("none judged yet, %d to judge", m.Unjudged)
	}
	words := fmt.Sprintf("%d of %d judged: %s (95 %% confidence: %s to %s)", m.Are, m.Of, percent(float64(m.Are)/float64(m.Of)), percent(m.Low), percent(m.High))
	if m.Unjudged > 0 {
		words += fmt.Sprintf("; %d to judge", m.Unjudged)
	}
	return words
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

func (c *Console) showScreening(w http.ResponseWriter, r *http.Request, p identity.Principal, d screeningPage, status int) {
	if err := c.lookAtScreening(r.Context(), &d); err != nil {
		c.fail(w, r, p, err)
		return
	}
	c.show(w, r, p, view{template: "screening", title: "Screening", place: "/audit", status: status, data: d})
}

func (c *Console) lookAtScreening(ctx context.Context, d *screeningPage) error {
	size, err := c.o.Store.Size(ctx)
	if err != nil {
		return err
	}
	var all []screen.Judged
	judged := map[int64]bool{}
	for next := max(0, size-screeningLooks); next >= 0; {
		var page []audit.Entry
		if page, next, err = c.o.Store.Entries(ctx, audit.Filter{Min: next, End: size}); err != nil {
			return err
		}
		if next >= 0 {
			next++ // the filter wants the first, and the store names the last
		}
		for _, e := range page {
			var detail struct {
				Threat screen.Found `json:"threat"`
				screen.Judged
			}
			switch {
			case e.Action == screen.VerdictAction:
				if json.Unmarshal(e.Detail, &detail) == nil {
					all, judged[detail.Entry] = append(all, detail.Judged), true
				}
			case e.Event == audit.ThreatHit:
				_ = json.Unmarshal(e.Detail, &detail) // many refusals in one entry name no finding
				d.Hits = append(d.Hits, screenedRow{e, detail.Threat})
			case gateway.InSample(e):
				d.Sample = append(d.Sample, screenedRow{Entry: e})
			}
		}
	}
	alarms, missed := screen.Rates(all)
	d.Alarms, d.Missed, d.SampleOf, d.Looks = measured{Rate: alarms}, measured{Rate: missed}, screen.SampleOf, screeningLooks
	for _, rows := range []*[]screenedRow{&d.Hits, &d.Sample} {
		*rows = slices.DeleteFunc(*rows, func(r screenedRow) bool { return judged[r.Index] })
		slices.Reverse(*rows)
	}
	d.Alarms.Unjudged, d.Missed.Unjudged = len(d.Hits), len(d.Sample)
	d.Hits, d.Sample = d.Hits[:min(len(d.Hits), pageOfScreened)], d.Sample[:min(len(d.Sample), pageOfScreened)]
	return nil
}

// judgeScreened puts on record what the person says of one of them.
func (c *Console) judgeScreened(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	d, _, err := c.oneEntry(r)
	verdict := r.PostForm.Get("verdict")
	if err == nil && verdict != "attack" && verdict != "none" {
		err = fault.New(fault.RequestMalformed, "It must be attack or none.").At("verdict")
	}
	if err == nil {
		err = c.o.Gateway.SayOfScreening(r.Context(), d.Entry, verdict == "attack", p.String())
	}
	if err != nil {
		var page screeningPage
		status := 0
		page.Problem, status = c.refused(r, p, err, "judge", "index", r.PathValue("index"))
		c.showScreening(w, r, p, page, status)
		return
	}
	http.Redirect(w, r, "/audit/screening", http.StatusSeeOther)
}
