// Train trains the model that package screen has in it, from rows of text that stand outside of the repository. The same rows give the same file.
//
//	go run ./lab/train -data FOLDER -out internal/screen/model.bin
//	go run ./lab/train -data FOLDER -leave-out
//
// With -leave-out nothing is written: each source of attacks is left out in turn, with a third of the sources of benign texts, and the model trained without
// them is measured on them.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sort"

	"sallyport.example/internal/screen"
	"sallyport.example/lab/screening"
)

func main() {
	data := flag.String("data", "", "folder with train.jsonl.gz")
	out := flag.String("out", "", "file to write the model to")
	version := flag.String("version", "1", "version of the model")
	leaveOut := flag.Bool("leave-out", false, "measure with whole sources left out")
	flag.Parse()
	if err := run(*data, *out, *version, *leaveOut); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(data, out, version string, leaveOut bool) error {
	if data == "" || (out == "") == !leaveOut {
		return fmt.Errorf("give -data FOLDER, and either -out FILE or -leave-out")
	}
	var rows, all []screening.Row
	sum := sha256.New()
	err := screening.Read(filepath.Join(data, "train.jsonl.gz"), func(line []byte, r screening.Row) error {
		all = append(all, r)
		if t, ok := screening.ForTraining(r); ok {
			rows = append(rows, t)
			sum.Write(line)
			sum.Write([]byte{'\n'})
		}
		return nil
	})
	if err != nil {
		return err
	}
	h := screen.Header{Version: version, Data: hex.EncodeToString(sum.Sum(nil)), Rows: len(rows), Thresholds: map[string][]float64{"people": {0, 0, 0, 0}, "tools": {0, 0, 0, 0}}}
	if leaveOut {
		return measure(rows, all, h)
	}
	d, err := screen.New(screen.Options{})
	if err != nil {
		return err
	}
	t := screening.Train(d, rows, screening.Standard)
	if h.Thresholds, err = thresholds(h, rows); err != nil {
		return err
	}
	file, err := t.Model(h)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, file, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d bytes, %d rows, data sha256 %s\nthresholds %v\n", out, len(file), len(rows), h.Data, h.Thresholds)
	return nil
}

// A benign text of a source that the model has not seen scores higher than those it was trained on. So the thresholds come from models that had a third of the
// sources left out, in turn, each measured on what it has not seen.
func thresholds(h screen.Header, rows []screening.Row) (map[string][]float64, error) {
	scores := map[string][]float32{}
	for part := range parts {
		d, err := without(rows, h, func(r screening.Row) bool { return r.Label == screening.Benign && third(r.Source) == part })
		if err != nil {
			return nil, err
		}
		var unseen []screening.Row
		for _, r := range rows {
			if r.Label == screening.Benign && third(r.Source) == part {
				unseen = append(unseen, r)
			}
		}
		for _, s := range screening.Score(d, screen.Result, unseen) {
			scores[kind(s.Row)] = append(scores[kind(s.Row)], s.Score)
		}
	}
	out := map[string][]float64{}
	// By length: a long text has more windows, and what is rare in one is less so in all.
	longer := []float64{0, 0.4, 0.8, 1.6}
	for kind, share := range map[string]float64{"people": 0.005, "tools": 0.005} {
		sort.Slice(scores[kind], func(i, j int) bool { return scores[kind][i] < scores[kind][j] })
		base := float64(screening.Threshold(scores[kind], share))
		for _, more := range longer {
			out[kind] = append(out[kind], float64(int((base+more)*100))/100)
		}
	}
	return out, nil
}

// kind is who writes such texts.
func kind(r screening.Row) string {
	switch r.Source {
	case "tldr", "tr_docs", "tr_commits", "tr_discuss", "mcp_tools", "bipia_train", "ui_multilingual":
		return "tools"
	}
	switch r.Kind {
	case "benign_tool", "benign_tooldesc", "benign_doc", "benign_codeq_resp":
		return "tools"
	}
	return "people"
}

const parts = 3

func third(source string) int {
	h := fnv.New32a()
	h.Write([]byte(source))
	return int(h.Sum32() % parts)
}

// without trains on the rows that are not left out.
func without(rows []screening.Row, h screen.Header, left func(screening.Row) bool) (*screen.Detector, error) {
	d, err := screen.New(screen.Options{})
	if err != nil {
		return nil, err
	}
	var seen []screening.Row
	for _, r := range rows {
		if !left(r) {
			seen = append(seen, r)
		}
	}
	file, err := screening.Train(d, seen, screening.Standard).Model(h)
	if err != nil {
		return nil, err
	}
	return screen.New(screen.Options{Model: string(file)})
}

// measure leaves out each source of attacks in turn.
func measure(rows, all []screening.Row, h screen.Header) error {
	attacks := map[string]int{}
	var names []string
	for _, r := range rows {
		if r.Label != screening.Attack {
			continue
		}
		if attacks[r.Source]++; attacks[r.Source] == 1 {
			names = append(names, r.Source)
		}
	}
	sort.Strings(names)
	var macro1, macro05 float64
	n := 0
	for i, name := range names {
		if attacks[name] < 50 {
			continue
		}
		left := func(r screening.Row) bool {
			return r.Source == name || r.Label == screening.Benign && third(r.Source) == i%parts
		}
		d, err := without(rows, h, left)
		if err != nil {
			return err
		}
		var unseen []screening.Row
		for _, r := range all {
			if _, ok := screening.ForTraining(r); left(r) && (ok || r.Label == screening.Attack && screening.Contextual(r.Kind)) {
				unseen = append(unseen, r)
			}
		}
		f := screening.Evaluate(screening.Score(d, screen.Result, unseen))["all"]
		fmt.Printf("%-16s %5d attacks %5d benign  auc %.3f  at 1 %%: %.3f  at 0.5 %%: %.3f  contextual (%d): %.3f  %.1f us/KB\n", name, f.Attacks, f.Benign, f.AUC, f.MicroAt1, f.MicroAt05, f.ContextualRows, f.Contextual, f.MicroSecond)
		macro1, macro05, n = macro1+f.MicroAt1, macro05+f.MicroAt05, n+1
	}
	fmt.Printf("macro over %d sources: at 1 %%: %.3f  at 0.5 %%: %.3f\n", n, macro1/float64(n), macro05/float64(n))
	return nil
}
