package console

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/threat"
)

const (
	// pageOfUnread and unreadBytes bound the definitions on a page: people read a long page less carefully.
	pageOfUnread = 40
	unreadBytes  = 256 << 10
)

// unreadPage shows definitions that no person has accepted, as many as fit on a page.
type unreadPage struct {
	Problem  *problem
	Operator bool
	Rows     []unreadRow
	All      int
	Accepted int      // how many the person has just accepted
	Changed  []string // the operations that were not accepted, and why
}

type unreadRow struct {
	catalogue.Tool
	Path       string
	Accept     string // the hash of the definition to accept
	Exact      []piece
	Difference []change
}

// unreadTools are the tools with a definition that nobody has accepted: first those in which something was found, then those that wait.
func (c *Console) unreadTools() []catalogue.Tool {
	all := slices.DeleteFunc(c.o.Gateway.Catalogue().Tools(), func(t catalogue.Tool) bool { return t.PendingHash == "" && !t.Unread })
	urgency := func(t catalogue.Tool) int { return threat.ReadingOrder(len(t.Suspicions), t.PendingHash != "") }
	slices.SortStableFunc(all, func(a, b catalogue.Tool) int {
		return cmp.Or(urgency(a)-urgency(b), cmp.Compare(a.Operation, b.Operation))
	})
	return all
}

func (c *Console) showUnread(w http.ResponseWriter, r *http.Request, p identity.Principal, d unreadPage, status int) {
	all := c.unreadTools()
	d.All, d.Operator = len(all), p.Has(identity.Operator)
	size := 0
	for _, t := range all {
		size += len(t.Definition) + len(t.Pending)
		if len(d.Rows) == pageOfUnread || size > unreadBytes && len(d.Rows) > 0 {
			break
		}
		row := unreadRow{Tool: t, Path: rowOfTool(catalogue.ToolView{Tool: t}, nil).Path, Accept: cmp.Or(t.PendingHash, t.Hash)}
		switch {
		case t.Pending != nil && t.Definition != nil:
			row.Difference = difference(inOrder(t.Definition), inOrder(t.Pending))
		case t.Pending != nil:
			row.Exact = exactly(inOrder(t.Pending))
		default:
			row.Exact = exactly(inOrder(t.Definition))
		}
		d.Rows = append(d.Rows, row)
	}
	c.show(w, r, p, view{template: "unread", title: "Definitions to read", place: "/tools", status: status, data: d})
}

// acceptUnread accepts the definitions that were on the page, each named by its hash.
func (c *Console) acceptUnread(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	var shown []catalogue.Acceptance
	for _, name := range slices.Sorted(maps.Keys(r.PostForm)) {
		if operation, ok := strings.CutPrefix(name, "hash."); ok {
			shown = append(shown, catalogue.Acceptance{Operation: operation, Hash: r.PostForm.Get(name)})
		}
	}
	errs, err := c.o.Gateway.Catalogue().AcceptTools(r.Context(), shown, p.String())
	if err == nil && len(shown) == 0 {
		err = fault.New(fault.RequestMalformed, "No definition was named.").Try("Go back to the page and send its form.")
	}
	if err != nil {
		refused, status := c.refused(r, p, err, "accept definitions")
		c.showUnread(w, r, p, unreadPage{Problem: refused}, status)
		return
	}
	var d unreadPage
	for i, err := range errs {
		if err != nil {
			d.Changed = append(d.Changed, shown[i].Operation+": "+problemOf(err).Text)
		} else {
			d.Accepted++
		}
	}
	c.showUnread(w, r, p, d, http.StatusOK)
}
