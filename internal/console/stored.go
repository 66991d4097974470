package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"sallyport.example/internal/identity"
	"sallyport.example/internal/stored"
)

// pageOfStored bounds the marks on a page.
const pageOfStored = 100

// storedPage shows which data of servers carries labels.
type storedPage struct {
	refusedAct
	ID       string // of what the act was about
	Operator bool
	Server   string
	Servers  []string
	Rows     []storedRow
	Found    int // how many match the filter
	All      int
	Refresh  string
}

// storedRow is one mark.
type storedRow struct{ stored.Mark }

// What names the data.
func (r storedRow) What() string {
	switch {
	case r.Making != "":
		return fmt.Sprintf("Every %s of %s", shorten(r.Kind, 40), r.Server)
	case r.Record != "":
		return fmt.Sprintf("%s %s of %s", shorten(r.Kind, 40), shorten(r.Record, 80), r.Server)
	case r.Kind != "":
		return fmt.Sprintf("Every %s of %s", shorten(r.Kind, 40), r.Server)
	}
	return "All that " + r.Server + " gives back"
}

func (c *Console) showStored(w http.ResponseWriter, r *http.Request, p identity.Principal, d storedPage, status int) {
	all := c.o.Gateway.Stored().List()
	d.All, d.Server, d.Operator = len(all), r.URL.Query().Get("server"), p.Has(identity.Operator)
	d.Refresh = link("/tools/stored", "server", d.Server)
	for _, mark := range all {
		if !slices.Contains(d.Servers, mark.Server) {
			d.Servers = append(d.Servers, mark.Server)
		}
		if d.Server != "" && mark.Server != d.Server {
			continue
		}
		if d.Found++; len(d.Rows) < pageOfStored {
			d.Rows = append(d.Rows, storedRow{mark})
		}
	}
	c.show(w, r, p, view{template: "stored", title: "Stored labels", place: "/tools", status: status, data: d})
}

// releaseStored takes the ticked labels off what the path names.
func (c *Console) releaseStored(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	refused := c.act(r, p, "release", func(ctx context.Context, id, reason string) error {
		labels, err := tickedLabels(r)
		if err == nil {
			_, err = c.o.Gateway.ReleaseStored(ctx, id, labels, p.String(), reason)
		}
		return err
	})
	if refused != nil {
		c.showStored(w, r, p, storedPage{refusedAct: *refused, ID: r.PathValue("id")}, refused.status)
		return
	}
	http.Redirect(w, r, "/tools/stored", http.StatusSeeOther)
}
