package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/clients"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/display"
	"sallyport.example/internal/sentence"
	"sallyport.example/internal/store"
	"sallyport.example/lab/propose"
	"sallyport.example/lab/replay"
)

// fromLog is what flow suggest --from-log is asked for.
type fromLog struct {
	wanted, yes  bool
	from, config string
}

const (
	maxConfigText  = 1 << 20
	maxNamedTools  = 8   // in the head of a question; "?" shows all
	maxShownTool   = 100 // bytes of a tool's name
	maxShownReason = 400
)

func (c *cli) suggestFromLog(ctx context.Context, f *fromLog, args []string) error {
	switch {
	case len(args) > 0:
		return usagef("--from-log looks at every server that was used: leave out %s", args[0])
	case f.yes && c.output != "table":
		return usagef("--output %s writes nothing: leave out --yes, or --output", c.output)
	case os.Getenv(envURL) != "":
		return usagef("--from-log reads the data directory (--data): unset %s", envURL)
	}
	if err := refuseGoverned(); err != nil {
		return err
	}
	since, err := moment("--from", f.from, func(d time.Duration) time.Time { return time.Now().Add(-d) })
	if err != nil {
		return err
	}
	text, err := readRegular(f.config, maxConfigText)
	if err != nil {
		return unusable(fmt.Errorf("--config: %w", err))
	}
	cfg, err := daemon.ParseConfig(f.config, text, filepath.Dir(f.config))
	if err != nil {
		return unusable(err)
	}
	log, err := store.OpenReadOnly(c.data)
	if err != nil {
		return unusable(err)
	}
	err = c.confirmLabels(ctx, f, text, cfg, log, since)
	return errors.Join(err, log.Close())
}

func (c *cli) confirmLabels(ctx context.Context, f *fromLog, text []byte, cfg *daemon.Config, log *store.Reader, since time.Time) error {
	list, err := propose.From(ctx, log, cfg, since)
	if err != nil {
		return err
	}
	if c.output != "table" {
		return c.print(list, nil)
	}
	s := &labelSheet{out: c.out, width: c.columns(), count: list.Count}
	s.summary(list, f.config)
	var taken []propose.Option
	switch {
	case len(list.Choices) == 0:
		return nil
	case f.yes:
		for i := range list.Choices {
			s.choice(list, i, list.Now)
			if choice := list.Choices[i]; choice.Sure {
				s.text("  ", "Taken: "+choice.Options[0].Key)
				taken = append(taken, choice.Options[0])
			} else {
				s.text("  ", "Not taken: it needs your answer.")
			}
		}
	case !terminal(c.in):
		for i := range list.Choices {
			s.choice(list, i, list.Now)
		}
		return &found{what: "nothing was written: answer on a terminal, or use --yes for what the catalogue or clean work supports; -o json prints the list"}
	default:
		lines := make(chan string)
		go readLines(ctx, c.in, lines) // ends with the program: reading can't be broken off
		if taken, err = s.ask(ctx, list, f.config, lines); err != nil {
			return err
		}
	}
	if len(taken) == 0 {
		return &found{what: "nothing was taken, and nothing was written"}
	}
	a := propose.Additions(taken...)
	a.Note = "from recorded work, " + time.Now().UTC().Format(time.DateOnly)
	next, err := daemon.Added(f.config, text, filepath.Dir(f.config), a)
	if err != nil {
		return unusable(err)
	}
	if err := clients.Replace(f.config, text, next); err != nil {
		return unusable(err)
	}
	fmt.Fprintf(c.err, "Written to %s: %s. To put it in force: sallyport reload. sallyport lint --data %s says what it allows.\n",
		printable(f.config), sentence.Count(len(a.Operations)+len(a.Catalogue), "label"), printable(c.data))
	return nil
}

// labelSheet shows choices and takes answers. Every row of it is printable: names and words of servers are in it.
type labelSheet struct {
	out   io.Writer
	width int
	count func(ctx context.Context, taken ...propose.Option) (replay.Counted, error) // what would be asked with these answers
}

func (s *labelSheet) text(indent, text string) {
	fmt.Fprint(s.out, indent)
	s.hang(indent, text)
}

// hang is text whose first row has begun already.
func (s *labelSheet) hang(indent, text string) {
	for i, row := range display.Wrap(display.Terminal(text, maxProposed), max(s.width, leastWidth)-len(indent), true) {
		if i > 0 {
			row = indent + row
		}
		fmt.Fprintln(s.out, row)
	}
}

func (s *labelSheet) summary(l *propose.List, config string) {
	s.text("", fmt.Sprintf("Recorded work since %s: %s. With %s as it is now, enforced: %s.", show(l.Since), l.Work(), config, propose.Figures(l.Now)))
	for _, note := range l.Notes {
		s.text("", "Note: "+note)
	}
	for _, left := range l.Left {
		s.text("", "Nothing is proposed for "+display.Terminal(left.Operation, maxShownTool)+": "+left.Why)
	}
	switch {
	case len(l.Choices) > 0:
	case len(l.Left) > 0:
		s.text("", "There is nothing to propose.")
	default:
		s.text("", "There is nothing to propose: every tool that was called has a label, or none was called.")
	}
}

// choice shows one question. without are the figures as long as it is not answered; its options have theirs.
func (s *labelSheet) choice(l *propose.List, i int, without replay.Counted) {
	choice := &l.Choices[i]
	var names []string
	for _, operation := range choice.Operations[:min(maxNamedTools, len(choice.Operations))] {
		_, tool, _ := strings.Cut(operation, ".")
		names = append(names, display.Terminal(tool, maxShownTool))
	}
	if more := len(choice.Operations) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	fmt.Fprintln(s.out)
	s.text("", fmt.Sprintf("%d of %d  %s: %s (%s)", i+1, len(l.Choices), choice.Server, strings.Join(names, ", "), choice.Work()))
	s.text("  ", display.Terminal(choice.Why, maxShownReason))
	for _, o := range choice.Options {
		fmt.Fprintf(s.out, "  %s  ", o.Key)
		s.hang("     ", o.Means)
		if len(o.Frees) > 0 {
			s.text("     ", "These arguments need no confirmation: "+display.Terminal(strings.Join(o.Frees, ", "), maxShownReason))
		}
		s.text("     ", "With this: "+propose.Figures(o.With))
	}
	s.text("  ", "n  No. Without: "+propose.Figures(without))
}

// ask asks about each choice, and at last about all that was taken. The figures are those with what was taken before.
func (s *labelSheet) ask(ctx context.Context, l *propose.List, config string, lines <-chan string) (taken []propose.Option, err error) {
	without := l.Now
	for i := range l.Choices {
		choice := &l.Choices[i]
		keys := []string{}
		for j := range choice.Options {
			o := &choice.Options[j]
			if keys = append(keys, o.Key); len(taken) > 0 {
				if o.With, err = s.count(ctx, append(slices.Clone(taken), *o)...); err != nil {
					return nil, err
				}
			}
		}
		s.choice(l, i, without)
		answer, err := s.key(ctx, fmt.Sprintf("%s, n (no), ? (the entries), q (quit): ", strings.Join(keys, ", ")), lines, append(keys, "n", "q"), func() { s.entries(choice.Options) })
		if err != nil {
			return nil, err
		}
		if answer == "q" {
			return nil, nil
		}
		if j := slices.Index(keys, answer); j >= 0 {
			taken, without = append(taken, choice.Options[j]), choice.Options[j].With
		}
	}
	if len(taken) == 0 {
		return nil, nil
	}
	fmt.Fprintln(s.out)
	s.text("", fmt.Sprintf("With all that you took: %s. Without: %s. These entries are added to %s:", propose.Figures(without), propose.Figures(l.Now), config))
	s.entries([]propose.Option{{Operations: propose.Additions(taken...).Operations, Catalogue: propose.Additions(taken...).Catalogue}})
	answer, err := s.key(ctx, "Write it? y, n: ", lines, []string{"y", "n", "q"}, func() {})
	if err != nil || answer != "y" {
		return nil, err
	}
	return taken, nil
}

// key reads lines until one is a key. The end of the input is quitting.
func (s *labelSheet) key(ctx context.Context, prompt string, lines <-chan string, keys []string, help func()) (string, error) {
	for {
		fmt.Fprint(s.out, prompt)
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case line, ok := <-lines:
			word := strings.ToLower(strings.TrimSpace(line))
			switch {
			case !ok:
				fmt.Fprintln(s.out)
				return "q", nil
			case slices.Contains(keys, word):
				return word, nil
			case word == "?":
				help()
			}
		}
	}
}

// entries shows what would be written.
func (s *labelSheet) entries(options []propose.Option) {
	for _, o := range options {
		a := propose.Additions(o)
		for _, server := range a.Catalogue {
			s.text("    ", o.Key+"  upstreams."+server+".labels: catalogue")
		}
		for _, entry := range a.Entries() {
			s.text("    ", strings.TrimSpace(o.Key+"  "+entry))
		}
	}
}
