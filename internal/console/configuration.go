package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/web"
)

// Configuration says since when the configuration is in force, who loaded it, and whether the files differ from it.
type Configuration struct {
	File     string         `json:"file,omitempty" doc:"As the gateway was given it; left out: the defaults."`
	LoadedAt time.Time      `json:"loaded_at"`
	LoadedBy string         `json:"loaded_by" doc:"gateway:start, gateway:signal, or the person who reloaded it."`
	Differs  bool           `json:"differs" doc:"The files differ from what is in force."`
	Changed  []string       `json:"changed,omitempty" doc:"The fields that differ, at most 100."`
	Unusable bool           `json:"unusable,omitempty" doc:"The files can't be loaded as they are: sallyport lint says why."`
	Refused  *ReloadRefusal `json:"refused,omitempty" doc:"The last reload since then that was refused."`
}

// HowLoaded says how a configuration was loaded, by its LoadedBy: in words for people.
func HowLoaded(by string) string {
	switch by {
	case "gateway:start":
		return "when the gateway started"
	case "gateway:signal":
		return "by a signal (SIGHUP)"
	}
	return "by " + identity.Shown(by)
}

// ReloadRefusal is a reload that changed nothing.
type ReloadRefusal struct {
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	Text string    `json:"text"`
}

// Reloaded is what a reload put in force.
type Reloaded struct {
	Configuration
	Changes []ChangedField `json:"changes"`
}

// ChangedField is one field that a reload changed. Of what may hold a secret there are no values.
type ChangedField struct {
	Agent string          `json:"agent,omitempty" doc:"The agent in whose declaration the field is; left out: it is in the configuration."`
	Field string          `json:"field"`
	From  json.RawMessage `json:"from,omitempty"`
	To    json.RawMessage `json:"to,omitempty"`
}

// FileProblem is what is wrong with a field of a file, or with a file.
type FileProblem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Field   string `json:"field,omitempty"`
	Problem string `json:"problem,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

// String says it in a line.
func (p FileProblem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Problem)
	if p.Remedy != "" {
		b.WriteString(" (" + p.Remedy + ")")
	}
	return b.String()
}

// ReloadRefused is the error of a reload that changed nothing.
type ReloadRefused struct {
	Problems []FileProblem // at least one
	Restart  bool          // they are no mistakes, but need a restart
}

// Fault is the error for who asked: about the first problem, with the number of all.
func (r *ReloadRefused) Fault() *fault.Error {
	first, code, why := r.Problems[0], fault.ConfigurationInvalid, "The configuration was not reloaded, and nothing changed"
	if r.Restart {
		code = fault.Conflict
	}
	if n := len(r.Problems); n > 1 {
		why += fmt.Sprintf(" (%d problems)", n)
	}
	f := fault.New(code, "%s: %s.", why, FileProblem{File: first.File, Line: first.Line, Problem: first.Problem}.String()).At(first.Field)
	if first.Remedy != "" {
		f = f.Try("%s.", strings.ToUpper(first.Remedy[:1])+first.Remedy[1:])
	}
	return f
}

func (r *ReloadRefused) Error() string { return r.Fault().Error() }

// Unwrap gives it the status of a request that is understood and can't be met: the gateway has not failed.
func (r *ReloadRefused) Unwrap() error {
	if r.Restart {
		return r.Fault()
	}
	return web.WithStatus(http.StatusUnprocessableEntity, r.Fault())
}

// reload reads the configuration again. The page it shows after is the overview, where what changed stands.
func (c *Console) reload(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	if _, err := c.o.Reload(context.WithoutCancel(r.Context()), p.String()); err != nil {
		d := c.overviewOf(r, p)
		var status int
		d.Problem, status = c.refused(r, p, err, "reload")
		c.show(w, r, p, view{template: "overview", title: "Overview", place: "/", status: status, data: d})
		return
	}
	http.Redirect(w, r, "/#configuration", http.StatusSeeOther)
}
