package daemon

import (
	"cmp"
	"fmt"
	"os"

	"sallyport.example/internal/judge"
	"sallyport.example/internal/screen"
)

// ThreatConfig says what screening does: where a text looks like an attempt to order an agent about.
type ThreatConfig struct {
	Input    string `yaml:"input,omitempty" json:"input,omitempty" jsonschema:"What a hit in the arguments of a call does: ask (default), deny or observe."`
	Results  string `yaml:"results,omitempty" json:"results,omitempty" jsonschema:"What a hit in a result does: label (default) makes it untrusted, observe notes it."`
	Patterns string `yaml:"patterns,omitempty" json:"patterns,omitempty" jsonschema:"A file of rules of your own, read at the start."`
}

func (c *ThreatConfig) input() judge.Screening {
	return judge.Screening(cmp.Or(c.Input, string(judge.ScreenAsk)))
}

func (c *ThreatConfig) results() judge.Screening { return judge.Screening(c.Results) }

// check reports words that mean nothing.
func (c *ThreatConfig) check(bad func(field, remedy, format string, args ...any)) {
	switch c.input() {
	case judge.ScreenAsk, judge.ScreenDeny, judge.ScreenObserve:
	default:
		bad("threat.input", "write ask, deny or observe", "%q is none of them", c.Input)
	}
	if c.Results != "" && c.Results != "label" && c.Results != string(judge.ScreenObserve) {
		bad("threat.results", "write label or observe", "%q is neither", c.Results)
	}
}

// detector reads the rules, with the operator's own.
func (c *ThreatConfig) detector() (*screen.Detector, error) {
	o := screen.Options{Name: "threat.patterns: " + c.Patterns}
	if c.Patterns != "" {
		st, err := os.Stat(c.Patterns)
		switch {
		case err != nil:
			return nil, fmt.Errorf("threat.patterns: %w", err)
		case !st.Mode().IsRegular() || st.Size() > screen.MaxRulesFile:
			return nil, fmt.Errorf("threat.patterns: %s is not a regular file of at most %d bytes", c.Patterns, screen.MaxRulesFile)
		}
		if o.Rules, err = os.ReadFile(c.Patterns); err != nil {
			return nil, fmt.Errorf("threat.patterns: %w", err)
		}
	}
	return screen.New(o)
}
