package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	detect "sallyport.example/internal/screen"
	"sallyport.example/lab/screening"
)

// maxScanned bounds the text that is scanned.
const maxScanned = 64 << 20

// threatCommand holds the commands about screening, which need no running gateway.
func threatCommand(c *cli) *cobra.Command {
	return group("threat", "Screen texts for words that order an agent about, and measure what is found", c.threatScan(), c.threatEval())
}

// scanned is what screening says of one text.
type scanned struct {
	Channel     detect.Channel `json:"channel"`
	Hit         bool           `json:"hit"`
	Score       float32        `json:"score"`
	Rule        string         `json:"rule"`
	NotScreened bool           `json:"not_screened"`
	Detector    string         `json:"detector"`
}

func (c *cli) threatScan() *cobra.Command {
	var channel, patterns string
	cmd := c.command(about{
		use: "scan FILE|-", short: "Screen a text",
		long: `Says whether a text looks like an attempt to order an agent about. The gateway screens calls and results by the same detector. The score is above 0
where it is above the threshold of its channel and length. It exits with 1 on a hit. No hit proves nothing: an order in plain words looks like any other sentence.`,
		example: `sallyport threat scan page.txt
sallyport threat scan --channel request - < message.txt`,
		args: cobra.ExactArgs(1), prints: true, local: true,
	}, func(_ context.Context, args []string) error {
		if !slices.Contains(detect.Channels, detect.Channel(channel)) {
			return usagef("--channel is one of %v, not %q", detect.Channels, channel)
		}
		d, err := detector(patterns, false)
		if err != nil {
			return err
		}
		var text []byte
		if args[0] == "-" {
			text, err = io.ReadAll(io.LimitReader(c.in, maxScanned+1))
			if err == nil && len(text) > maxScanned {
				err = fmt.Errorf("the text has more than %d bytes", maxScanned)
			}
		} else {
			if text, err = readRegular(args[0], maxScanned); errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("there is no file %s: check the path", args[0])
			}
		}
		if err != nil {
			return unusable(err)
		}
		r := d.Scan(detect.Channel(channel), text)
		v := scanned{Channel: detect.Channel(channel), Hit: r.Hit, Score: r.Score, Rule: r.Rule, NotScreened: r.Partly, Detector: d.Version()}
		if err := c.print(v, func(t *table) {
			word := "no hit"
			if v.Hit {
				word = "hit"
			}
			t.line("%s, score %.2f, by %s (detector %s)", word, v.Score, v.Rule, v.Detector)
			if v.NotScreened {
				t.line("A part of it is encoded too deeply, and was not screened.")
			}
		}); err != nil {
			return err
		}
		if r.Hit {
			return &found{what: "the text looks like an attempt to order an agent about", printed: true}
		}
		return nil
	})
	cmd.Flags().StringVar(&channel, "channel", string(detect.Result), "by what way the text comes")
	cmd.Flags().StringVar(&patterns, "patterns", "", "file of an operator's own rules")
	return cmd
}

func (c *cli) threatEval() *cobra.Command {
	var channel, patterns string
	var without bool
	cmd := c.command(about{
		use: "eval FILE.jsonl…", short: "Measure what screening finds in labelled texts",
		long: `Each line of a FILE (.jsonl, or .jsonl.gz) is an object with text, label (1 an attack, 0 benign, anything else grey), source and kind. The rates of attacks found are
at the thresholds that give 1 % and 0.5 % false alarms on the benign rows: macro is the mean over sources, micro that over rows. Contextual attacks, which only
their place makes attacks, are in no figure but their own, and grey rows in none. The rates at the thresholds that ship stand beside them.`,
		example: `sallyport threat eval texts.jsonl
sallyport threat eval --without-templates -o json texts.jsonl more.jsonl.gz`,
		args: cobra.MinimumNArgs(1), prints: true, local: true,
	}, func(_ context.Context, args []string) error {
		if !slices.Contains(detect.Channels, detect.Channel(channel)) {
			return usagef("--channel is one of %v, not %q", detect.Channels, channel)
		}
		d, err := detector(patterns, without)
		if err != nil {
			return err
		}
		var rows []screening.Row
		for _, name := range args {
			if err := screening.Read(name, func(_ []byte, r screening.Row) error {
				rows = append(rows, r)
				return nil
			}); err != nil {
				return unusable(err)
			}
		}
		figures := screening.Evaluate(screening.Score(d, detect.Channel(channel), rows))
		all := figures["all"]
		return c.print(figures, func(t *table) {
			t.row("SOURCE", "ATTACKS", "BENIGN", "AUC", "AT 1 %", "AT 0.5 %", "SHIPPED", "FALSE ALARMS", "CONTEXTUAL")
			for _, name := range slices.Sorted(maps.Keys(figures)) {
				f := figures[name]
				share := func(x float64, of int) string {
					if of == 0 {
						return "-"
					}
					return fmt.Sprintf("%.1f %%", 100*x)
				}
				t.row(name, f.Attacks, f.Benign, fmt.Sprintf("%.3f", f.AUC), share(f.MicroAt1, f.Attacks), share(f.MicroAt05, f.Attacks), share(f.Shipped, f.Attacks), share(f.FalseAlarms, f.Benign), share(f.Contextual, f.ContextualRows))
			}
			t.line("macro over sources: %.1f %% at 1 %%, %.1f %% at 0.5 %%; %.1f µs for each KB", 100*all.MacroAt1, 100*all.MacroAt05, all.MicroSecond)
		})
	})
	cmd.Flags().StringVar(&channel, "channel", string(detect.Result), "by what way the texts come: says which thresholds ship")
	cmd.Flags().StringVar(&patterns, "patterns", "", "file of an operator's own rules")
	cmd.Flags().BoolVar(&without, "without-templates", false, "leave out the rules that have words of published benchmarks")
	return cmd
}

// detector is the program's detector, with an operator's own rules if there is a file of them.
func detector(patterns string, withoutTemplates bool) (*detect.Detector, error) {
	o := detect.Options{WithoutTemplates: withoutTemplates, Name: patterns}
	if patterns != "" {
		b, err := readRegular(patterns, detect.MaxRulesFile)
		if err != nil {
			return nil, unusable(fmt.Errorf("--patterns: %w", err))
		}
		o.Rules = b
	}
	d, err := detect.New(o)
	if err != nil {
		return nil, unusable(err)
	}
	return d, nil
}
