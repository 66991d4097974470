// Command benign measures how often screening finds something in texts that order nobody about: what agents read on a machine where people work, and what official
// MCP servers answer. It screens each text once, as a result of a tool, and says which ones had a hit, so that a person can look whether they are false alarms.
//
//	go run ./lab/benign -npm test/npm/node_modules /usr/share/doc /usr/share/man /var/log
//
// Nothing of the texts is written but to the file that -out names: rows for sallyport threat eval.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"

	"sallyport.example/internal/screen"
)

// long is the length from which texts have a figure of their own: they have more windows, each of which can be a false alarm.
const long = 16 << 10

// text is one that was collected.
type text struct {
	source string // what kind of text, for the table
	name   string // where it is from
	body   []byte
}

func main() {
	npm := flag.String("npm", "", "the `FOLDER` node_modules with official servers, whose answers are screened, too")
	out := flag.String("out", "", "a `FILE` for the texts, as rows for sallyport threat eval")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *npm, *out, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benign:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, npm, out string, folders []string, w io.Writer) error {
	if len(folders) == 0 {
		return fmt.Errorf("say which folders have the texts, such as /usr/share/doc")
	}
	d, err := screen.New(screen.Options{})
	if err != nil {
		return err
	}
	m := &measured{d: d, w: w, seen: map[[sha256.Size]byte]bool{}, rows: io.Discard, by: map[string]*counts{}}
	if out != "" {
		f, err := os.OpenFile(out, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		m.rows = f
	}
	for _, folder := range folders {
		if err := files(ctx, folder, m.add); err != nil {
			return err
		}
	}
	if npm != "" {
		if err := answers(ctx, npm, folders[0], m.add); err != nil {
			return err
		}
	}
	return m.table()
}

// counts are of one source; judged are those that a judge of results would be asked about.
type counts struct{ texts, hits, long, longHits, judged int }

type measured struct {
	d    *screen.Detector
	w    io.Writer
	rows io.Writer
	seen map[[sha256.Size]byte]bool
	by   map[string]*counts
}

// add screens a text that was not there before.
func (m *measured) add(t text) error {
	digest := sha256.Sum256(t.body)
	if len(t.body) == 0 || m.seen[digest] {
		return nil
	}
	m.seen[digest] = true
	row, err := json.Marshal(map[string]any{"text": string(t.body), "label": 0, "source": t.source, "kind": "benign"})
	if err != nil {
		return err
	}
	if _, err := m.rows.Write(append(row, '\n')); err != nil {
		return err
	}
	r := m.d.Scan(screen.Result, t.body)
	if m.by[t.source] == nil {
		m.by[t.source] = &counts{}
	}
	c := m.by[t.source]
	c.texts++
	if len(t.body) > long {
		c.long++
	}
	if r.Hit || r.Partly || r.Score > -screen.Grey {
		c.judged++
	}
	if r.Hit {
		c.hits++
		if len(t.body) > long {
			c.longHits++
		}
		fmt.Fprintf(m.w, "hit %5.2f  %-24s %7d bytes  %s\n", r.Score, r.Rule, len(t.body), t.name)
	}
	return nil
}

func (m *measured) table() error {
	all := counts{}
	line := func(name string, c counts) {
		fmt.Fprintf(m.w, "%-26s %6d texts %4d hits %6.2f %%   over 16 KiB: %5d texts %4d hits %6.2f %%   for a judge: %4d\n",
			name, c.texts, c.hits, share(c.hits, c.texts), c.long, c.longHits, share(c.longHits, c.long), c.judged)
	}
	for _, name := range slices.Sorted(maps.Keys(m.by)) {
		c := *m.by[name]
		line(name, c)
		all = counts{all.texts + c.texts, all.hits + c.hits, all.long + c.long, all.longHits + c.longHits, all.judged + c.judged}
	}
	line("all", all)
	_, err := fmt.Fprintf(m.w, "detector %s\n", m.d.Version())
	return err
}

func share(part, of int) float64 { return 100 * float64(part) / float64(cmp.Or(of, 1)) }
