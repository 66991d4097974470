package daemon

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/screen"
)

// ThreatConfig says what screening does: where a text looks like an attempt to order an agent about.
type ThreatConfig struct {
	Input    string `yaml:"input,omitempty" json:"input,omitempty" jsonschema:"What a hit in the arguments of a call does: ask (default), deny or observe."`
	Results  string `yaml:"results,omitempty" json:"results,omitempty" jsonschema:"What a hit in a result does: label (default) makes it untrusted, observe notes it."`
	Judge    string `yaml:"judge,omitempty" json:"judge,omitempty" jsonschema:"Id of a model of models that is asked about a result in which screening found something, or nearly did. It can make a hit of a text, and lowers none. It sees no text with labels that are not among the model's. Default none."`
	Patterns string `yaml:"patterns,omitempty" json:"patterns,omitempty" jsonschema:"A file of rules of your own, read at the start and at a reload."`
}

func (c *ThreatConfig) input() judge.Screening {
	return judge.Screening(cmp.Or(c.Input, string(judge.ScreenAsk)))
}

func (c *ThreatConfig) results() judge.Screening { return judge.Screening(c.Results) }

// checkJudge reports a judge that is no model, or not one model.
func (c *Config) checkJudge(p *complaints, field, id string) {
	if id == "" {
		return
	}
	if m := c.model(id); m == nil {
		p.bad(field, "add it to models, with a pinned name and the labels that it may have", "%q is no model of models", id)
	} else if m.Fallback != "" {
		p.bad(field, "name a model without a fallback", "it is not known whether %s or its fallback would judge", id)
	}
}

// checkThreat reports words that mean nothing, and a judge that can't be asked.
func (c *Config) checkThreat(p *complaints) {
	switch c.Threat.input() {
	case judge.ScreenAsk, judge.ScreenDeny, judge.ScreenObserve:
	default:
		p.bad("threat.input", "write ask, deny or observe", "%q is none of them", c.Threat.Input)
	}
	if c.Threat.Results != "" && c.Threat.Results != "label" && c.Threat.Results != string(judge.ScreenObserve) {
		p.bad("threat.results", "write label or observe", "%q is neither", c.Threat.Results)
	}
	c.checkJudge(p, "threat.judge", c.Threat.Judge)
}

// ownRules are the operator's own rules, and what screens with them. They are read once for each reading of the configuration, so that what is checked, on record and
// in force is one text.
type ownRules struct {
	text     []byte // nil: there are none, or err says why they can't be used
	detector *screen.Detector
	err      error
}

// readRules reads them.
func (c *Config) readRules() (r ownRules) {
	if r.text, r.err = c.rulesFile(); r.err == nil {
		r.detector, r.err = screen.New(screen.Options{Name: "threat.patterns: " + c.Threat.Patterns, Rules: r.text})
	}
	return r
}

// rulesFile is what their file has; nil: there is none.
func (c *Config) rulesFile() ([]byte, error) {
	if c.Threat.Patterns == "" {
		return nil, nil
	}
	path := c.path(c.Threat.Patterns)
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("threat.patterns: %w", err)
	case !st.Mode().IsRegular() || st.Size() > screen.MaxRulesFile:
		return nil, fmt.Errorf("threat.patterns: %s is not a regular file of at most %d bytes", c.Threat.Patterns, screen.MaxRulesFile)
	}
	rules, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("threat.patterns: %w", err)
	}
	return rules, nil
}

// oldRules is the age at which somebody should look whether rules still meet what is tried.
const oldRules = 180 * 24 * time.Hour

// patternProblems says what is wrong with the operator's own rules, and whether rules are old.
func (c *Config) patternProblems(file string, now time.Time) (all []Problem) {
	own := c.rules()
	if own.err != nil {
		p := c.problem(file, "threat.patterns", agent.Error, "mend the file, or leave the key out", "%s", strings.TrimPrefix(own.err.Error(), "threat.patterns: "))
		p.Stops = true
		return []Problem{p}
	}
	program, operator := own.detector.Dated()
	if now.Sub(program) > oldRules {
		all = append(all, c.problem(file, "threat", agent.P2, "use a newer version of sallyport", "this version's rules of screening are of %s, over 180 days ago", program.Format(time.DateOnly)))
	}
	if c.Threat.Patterns != "" && now.Sub(operator) > oldRules {
		all = append(all, c.problem(file, "threat.patterns", agent.P2, "look whether its rules still meet what is tried, and give it today's date", "its date is %s, over 180 days ago", operator.Format(time.DateOnly)))
	}
	return all
}
