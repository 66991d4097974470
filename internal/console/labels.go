package console

import (
	"context"
	"net/http"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// LabelDesk proposes labels from recorded work, adds what a person takes to the configuration, and tries other rules on recorded work.
type LabelDesk interface {
	Tuner
	Proposed(ctx context.Context) (LabelList, error)
	// Take adds the answer with this digest, if it is still proposed. By is who takes it.
	Take(ctx context.Context, digest, by string) error
}

// LabelList is what recorded work proposes. Names of tools and arguments are servers' words.
type LabelList struct {
	Since   time.Time
	Work    string // how much there was
	Without string // what would be asked and refused without any of the answers
	Choices []LabelChoice
	Left    []LeftTool
	Notes   []string
}

// LabelChoice is one question about tools of a server.
type LabelChoice struct {
	Server  string
	Tools   []string
	Work    string // of these tools
	Why     string
	Answers []LabelAnswer
}

// LabelAnswer is one answer, with what would be asked and refused if it is taken.
type LabelAnswer struct {
	Digest, Means, With string
	Frees, Entries      []string
}

// LeftTool is a tool for which nothing is proposed.
type LeftTool struct{ Operation, Why string }

// labelsPage asks what tools are, from recorded work.
type labelsPage struct {
	Problem *problem
	Taken   bool // an answer was added to the configuration
	LabelList
}

func (c *Console) showLabels(w http.ResponseWriter, r *http.Request, p identity.Principal, d labelsPage, status int) {
	if c.o.Labels == nil {
		c.fail(w, r, p, errNoLabels())
		return
	}
	d.Taken = r.URL.Query().Has("taken")
	list, err := c.o.Labels.Proposed(r.Context())
	if err != nil {
		if d.Problem == nil {
			c.fail(w, r, p, err)
			return
		}
		list.Notes = append(list.Notes, problemOf(err).Text)
	}
	d.LabelList = list
	c.show(w, r, p, view{template: "labels", title: "Labels from recorded work", place: "/tools", status: status, data: d})
}

// takeLabels adds the answer whose button was pressed.
func (c *Console) takeLabels(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	if c.o.Labels == nil {
		c.fail(w, r, p, errNoLabels())
		return
	}
	digest := r.PostForm.Get("digest")
	if err := c.o.Labels.Take(r.Context(), digest, p.String()); err != nil {
		problem, status := c.refused(r, p, err, "label", "digest", shorten(digest, 80))
		c.showLabels(w, r, p, labelsPage{Problem: problem}, status)
		return
	}
	http.Redirect(w, r, "/tools/labels?taken", http.StatusSeeOther)
}

func errNoLabels() error {
	return fault.New(fault.NotFound, "This gateway has no configuration file that labels could be added to.").Try("Start it with one: sallyport serve --config sallyport.yaml")
}
