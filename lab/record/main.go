// Command record writes what a gateway has seen of a server into the catalogue of labels: the definitions of its tools, with their hashes, and for
// a server that has no entry yet a skeleton of one, for a person to complete. docs/labels.md says how to use it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/store"
	"sallyport.example/lab/suggest"
	"sallyport.example/provenance"
)

func main() {
	data := flag.String("data", "sallyport-data", "the gateway's data `DIR`ectory")
	server := flag.String("server", "", "the `ID` of the server in the gateway's configuration")
	pkg := flag.String("package", "", "the package of npm that it is, as `NAME@VERSION`")
	entry := flag.String("entry", "", "the entry's file without its ending, as internal/labels/entries/`NAME`")
	flag.Parse()
	if err := record(context.Background(), *data, *server, *pkg, *entry); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func record(ctx context.Context, data, server, pkg, entry string) error {
	at := strings.LastIndexByte(pkg, '@')
	if server == "" || entry == "" || at <= 0 {
		return errors.New("say --server ID, --package NAME@VERSION and --entry internal/labels/entries/NAME")
	}
	r, err := store.OpenReadOnly(data)
	if err != nil {
		return err
	}
	defer r.Close()
	pins, err := r.Pins(ctx)
	if err != nil {
		return err
	}
	definitions := map[string]json.RawMessage{}
	for _, p := range pins {
		of, tool, _ := strings.Cut(p.Operation, ".")
		definition := p.Definition
		if p.Pending != "" {
			definition = p.PendingDef
		}
		if of == server && definition != nil {
			definitions[tool] = definition
		}
	}
	if len(definitions) == 0 {
		return fmt.Errorf("the gateway of %s has seen no tool of a server %q", data, server)
	}
	all, err := recorded(entry + ".json")
	if err != nil {
		return err
	}
	for tool, definition := range definitions {
		if !slices.ContainsFunc(all[tool], func(d json.RawMessage) bool { return bytes.Equal(d, definition) }) {
			all[tool] = append(all[tool], definition)
		}
	}
	if err := os.WriteFile(entry+".json", lines(all), 0o644); err != nil {
		return err
	}
	text, err := os.ReadFile(entry + ".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte(skeleton(server, pkg[:at], pkg[at+1:], definitions)), nil
	}
	if err != nil {
		return err
	}
	head, _, _ := bytes.Cut(text, []byte("\ndefinitions:\n"))
	var b strings.Builder
	fmt.Fprintf(&b, "%s\ndefinitions:\n", bytes.TrimRight(head, "\n"))
	for _, tool := range slices.Sorted(maps.Keys(all)) {
		var hashes []string
		for _, definition := range all[tool] {
			hashes = append(hashes, call.HashBytes(definition))
		}
		fmt.Fprintf(&b, "  %s: [%s]\n", strconv.Quote(tool), strings.Join(hashes, ", "))
	}
	return os.WriteFile(entry+".yaml", []byte(b.String()), 0o644)
}

// recorded are the definitions that an entry has, by tool; the gateway's canonical form of each.
func recorded(file string) (map[string][]json.RawMessage, error) {
	all := map[string][]json.RawMessage{}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(data, &all)
}

// lines is an object with a line for each definition.
func lines(all map[string][]json.RawMessage) []byte {
	var b bytes.Buffer
	b.WriteString("{")
	for i, tool := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n%s:[\n%s\n]", strconv.Quote(tool), bytes.Join(raw(all[tool]), []byte(",\n")))
	}
	b.WriteString("\n}\n")
	return b.Bytes()
}

func raw(all []json.RawMessage) (lines [][]byte) {
	for _, d := range all {
		lines = append(lines, d)
	}
	return lines
}

// skeleton is an entry with the labels that "sallyport flow suggest" proposes, which never call a tool a read, and with what a person has to say of it.
func skeleton(server, pkg, version string, definitions map[string]json.RawMessage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Read each line before it goes into the catalogue: docs/labels.md says how.\nserver: %s\npackages: [%q]\nversion: %q\ntested: stub\nsandbox: partial\nconfined: nobody has tried it in full\negress: any\nunasked: nothing\noperations:\n",
		server, pkg, version)
	for _, tool := range slices.Sorted(maps.Keys(definitions)) {
		p := suggest.For(server, suggest.Tool{Name: tool, Definition: definitions[tool]})
		label, err := json.Marshal(struct {
			Sensitivity flow.Sensitivity           `json:"sensitivity"`
			Level       int                        `json:"level"`
			Action      string                     `json:"action,omitempty"`
			IDKind      string                     `json:"id_kind,omitempty"`
			EgressURL   bool                       `json:"egress_url,omitempty"`
			Args        map[string]provenance.Role `json:"args"`
		}{cmp.Or(p.Sensitivity, flow.External), 2, p.Action, p.IDKind, p.EgressURL, p.Args})
		if err != nil {
			continue // of plain words: can't be
		}
		fmt.Fprintf(&b, "  %s: %s\n", strconv.Quote(tool), label)
	}
	return b.String()
}
