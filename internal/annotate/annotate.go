// Package annotate writes what lint found in the forms that other programs read: SARIF 2.1.0, and the annotations of GitHub's workflows.
package annotate

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/display"
)

// maxText bounds the text of one problem, in bytes.
const maxText = 4000

// Unseen names the violations that no file shows for certain, and who decides them.
func Unseen() string {
	return "can't be seen from here, only in a running gateway: " + strings.Join(agent.Elsewhere(), ", ") + " (sallyport agents audit)"
}

// levels are the words of SARIF and of GitHub for a severity. What blocks is an error in both.
func levels(p agent.Problem) (sarif, github string) {
	switch {
	case p.Stops:
		return "error", "error"
	case p.Severity == agent.P1:
		return "warning", "warning"
	}
	return "note", "notice"
}

// text is what a problem says, safe to show.
func text(p agent.Problem) string {
	plain := p
	plain.File, plain.Line, plain.Column = "", 0, 0
	return display.Line(strings.TrimPrefix(plain.String(), ": "), maxText)
}

type (
	message struct {
		Text string `json:"text"`
	}
	rule struct {
		ID       string  `json:"id"`
		Short    message `json:"shortDescription"`
		Full     message `json:"fullDescription"`
		Help     message `json:"help"`
		Defaults struct {
			Level string `json:"level"`
		} `json:"defaultConfiguration"`
	}
	region struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn,omitempty"`
	}
	location struct {
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region *region `json:"region,omitempty"`
		} `json:"physicalLocation"`
	}
	notification struct {
		Level   string  `json:"level"`
		Message message `json:"message"`
	}
	invocation struct {
		Successful    bool           `json:"executionSuccessful"`
		Notifications []notification `json:"toolExecutionNotifications"`
	}
	result struct {
		RuleID    string     `json:"ruleId"`
		Level     string     `json:"level"`
		Message   message    `json:"message"`
		Locations []location `json:"locations"`
	}
)

// otherRule is the rule of problems that are none of the twelve violations, by their severity: "lint/P1".
func otherRule(s agent.Severity) string { return "lint/" + string(s) }

// rules are the twelve violations, and one for all else of a severity.
func rules() (all []rule) {
	level := map[agent.Severity]string{agent.Error: "error", agent.P0: "error", agent.P1: "warning", agent.P2: "note", agent.Note: "note"}
	add := func(id, short, full, help string, s agent.Severity) {
		r := rule{ID: id, Short: message{short}, Full: message{full}, Help: message{help}}
		r.Defaults.Level = level[s]
		all = append(all, r)
	}
	for _, v := range agent.Violations {
		help := v.Resolution + "."
		if v.Elsewhere {
			help += " A file doesn't show this for certain: sallyport agents audit decides it from the running gateway."
		}
		add(v.Code, v.Title, v.Impact+".", help, v.Severity)
	}
	for _, s := range []agent.Severity{agent.Error, agent.P0, agent.P1, agent.P2, agent.Note} {
		add(otherRule(s), "Problem of severity "+string(s), "A problem of a configuration or a declaration.", "See the message.", s)
	}
	return all
}

// uri is a file's path as SARIF has it.
func uri(file string) string {
	u := url.URL{Path: filepath.ToSlash(file)}
	if filepath.IsAbs(file) {
		u.Scheme = "file"
	}
	return u.String()
}

// SARIF is the problems as a log of SARIF 2.1.0. version is the program's.
func SARIF(version string, problems []agent.Problem) ([]byte, error) {
	results := []result{}
	for _, p := range problems {
		level, _ := levels(p)
		r := result{RuleID: p.Code, Level: level, Message: message{text(p)}}
		if r.RuleID == "" {
			r.RuleID = otherRule(p.Severity)
		}
		var at location
		at.Physical.Artifact.URI = uri(p.File)
		if p.Line > 0 {
			at.Physical.Region = &region{p.Line, p.Column}
		}
		r.Locations = []location{at}
		results = append(results, r)
	}
	type driver struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		Rules   []rule `json:"rules"`
	}
	type run struct {
		Tool struct {
			Driver driver `json:"driver"`
		} `json:"tool"`
		Invocations []invocation `json:"invocations"`
		ColumnKind  string       `json:"columnKind"`
		Results     []result     `json:"results"`
	}
	one := run{ColumnKind: "unicodeCodePoints", Results: results, Invocations: []invocation{{true, []notification{{"note", message{Unseen()}}}}}}
	one.Tool.Driver = driver{"sallyport", version, rules()}
	return json.MarshalIndent(struct {
		Schema  string `json:"$schema"`
		Version string `json:"version"`
		Runs    []run  `json:"runs"`
	}{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []run{one}}, "", "  ")
}

// data and property escape what stands in a command of a workflow.
var (
	data     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// GitHub is the problems as annotations of a workflow, one on each line.
func GitHub(problems []agent.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		_, level := levels(p)
		title := string(p.Severity)
		if p.Code != "" {
			title += " " + p.Code
		}
		fmt.Fprintf(&b, "::%s file=%s", level, property.Replace(display.Line(filepath.ToSlash(p.File), maxText)))
		if p.Line > 0 {
			fmt.Fprintf(&b, ",line=%d,col=%d", p.Line, p.Column)
		}
		fmt.Fprintf(&b, ",title=%s::%s\n", property.Replace(title), data.Replace(text(p)))
	}
	fmt.Fprintf(&b, "::notice title=sallyport lint::%s\n", data.Replace(Unseen()))
	return b.String()
}
