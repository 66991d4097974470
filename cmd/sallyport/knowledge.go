package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge"
)

func (c *cli) knowledge() *cobra.Command {
	return group("knowledge", "Add, find and take out what agents may know",
		c.knowledgeAdd(), c.knowledgeList(), c.knowledgeGet(), c.knowledgeHistory(), c.knowledgeDiff(), c.knowledgeSnapshot(), c.knowledgeSearch(),
		c.knowledgeDelete(), c.knowledgeRestore(), c.knowledgeLabel(), c.knowledgeWithdraw(), c.knowledgeErase(), c.knowledgeErasures())
}

// added is what became of the files that were added.
type added struct {
	Added     int64    `json:"added"`
	Versions  int64    `json:"new_versions"`
	Unchanged int64    `json:"unchanged"`
	Refused   []string `json:"refused"`

	mu      sync.Mutex // guards Refused and doubted
	doubted []doubted
}

// doubted is a file that is like what an agent said, and was refused for that.
type doubted struct {
	fileToAdd
	why error
}

func (a *added) refuse(path string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Refused = append(a.Refused, path+": "+err.Error())
}

// failed notes a file that was not added.
func (a *added) failed(f fileToAdd, err error) {
	var p *client.Problem
	if !errors.As(err, &p) || p.Code != string(fault.ContentSynthetic) {
		a.refuse(f.key, err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.doubted = append(a.doubted, doubted{f, err})
}

// sentAtOnce bounds the files that are sent at once.
const sentAtOnce = 4

func (c *cli) knowledgeAdd() *cobra.Command {
	var source, key string
	var labels []string
	var own bool
	cmd := c.asPerson(about{
		use: "add FILE|DIR|URL|-", short: "Add documents, or new versions of them", args: cobra.ExactArgs(1), prints: true,
		long: `A file's document is known by the collection (--source) and the file's path below DIR, or its name. Adding it again is safe: what is unchanged
stays as it is, what changed is a new version, and what an interrupted add left out is added. Text in UTF-8 is taken: Markdown, CSV, source and plain
text, up to 2 MiB; and of HTML, PDF and DOCX, up to 16 MiB, the text. Hidden files and links are passed over. - reads one document from standard input, with --key.
The gateway fetches a URL by the rules of comm.fetch, up to 5 MiB; its type decides how it is read, and it is known by the URL, unless --key says otherwise.
What is like an agent's words is refused unless you say that it is yours: you are asked at a terminal, or give --own. Agents find documents once a snapshot has them: sallyport knowledge snapshot.`,
		example: "sallyport knowledge add --source handbook ./handbook\nsallyport knowledge add --source handbook --label internal salaries.csv\nsallyport knowledge add --source vendor https://example.com/terms.html",
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		files, err := c.filesToAdd(args[0], key)
		if err != nil {
			return err
		}
		a := &added{Refused: []string{}}
		as := client.NewDocument{Source: source, Labels: labels, Own: own}
		c.sendAll(ctx, cl, a, files, as)
		c.askWhose(ctx, cl, a, as)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted after %d documents: add the same again to go on", a.Added+a.Versions+a.Unchanged)
		}
		return c.judged(a, len(a.Refused) == 0, func(t *table) {
			t.field("added", a.Added)
			t.field("new versions", a.Versions)
			t.field("unchanged", a.Unchanged)
			for _, r := range a.Refused {
				t.field("refused", r)
			}
		})
	})
	needed(cmd, &source, "source", "the collection")
	cmd.Flags().StringVar(&key, "key", "", "what the document is known by (needed with -)")
	cmd.Flags().StringSliceVar(&labels, "label", nil, "a confidentiality label of the documents")
	cmd.Flags().BoolVar(&own, "own", false, "the texts are yours, though they are like what an agent said; it goes on the record")
	return cmd
}

// askWhose asks the person at the terminal whether texts that are like an agent's words are theirs, and sends them again if so. Where nobody can be asked they
// stay refused.
func (c *cli) askWhose(ctx context.Context, cl *client.Client, a *added, as client.NewDocument) {
	theirs := false
	if len(a.doubted) > 0 && ctx.Err() == nil && c.output == "table" && a.doubted[0].path+a.doubted[0].url != "" && hasTerminal() {
		for _, d := range a.doubted {
			fmt.Fprintf(c.err, "%s: %s\n", printable(d.key), printable(d.why.Error()))
		}
		fmt.Fprint(c.err, "Are these words yours? Your answer goes on the record. [y/N] ")
		line, _ := answer(ctx, bufio.NewReader(io.LimitReader(c.in, 100)))
		word := strings.ToLower(strings.TrimSpace(line))
		theirs = word == "y" || word == "yes"
	}
	var files []fileToAdd
	for _, d := range a.doubted {
		if theirs {
			files = append(files, d.fileToAdd)
		} else {
			a.refuse(d.key, d.why)
		}
	}
	as.Own = true
	c.sendAll(ctx, cl, a, files, as)
}

// fileToAdd is a file, an address, or standard input where both are empty.
type fileToAdd struct{ path, key, url string }

func isURL(s string) bool {
	return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://")
}

func (c *cli) filesToAdd(from, key string) (files []fileToAdd, err error) {
	if from == "-" {
		if key == "" {
			return nil, usagef("standard input has no name: give the document one with --key")
		}
		return []fileToAdd{{path: "", key: key}}, nil
	}
	if isURL(from) {
		from, _, _ = strings.Cut(from, "#") // a place in the page, and no other document
		return []fileToAdd{{url: from, key: cmp.Or(key, from)}}, nil
	}
	info, err := os.Stat(from)
	if err != nil {
		return nil, usagef("%v", err)
	}
	if !info.IsDir() {
		if key == "" {
			key = filepath.Base(from)
		}
		return []fileToAdd{{path: from, key: key}}, nil
	}
	if key != "" {
		return nil, usagef("--key is for one document, and %s is a folder", from)
	}
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(d.Name(), ".") && path != from:
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		rel, err := filepath.Rel(from, path)
		files = append(files, fileToAdd{path: path, key: filepath.ToSlash(rel)})
		return err
	})
	return files, err
}

// sendAll sends files, some at once, and shows how far it is at a terminal.
func (c *cli) sendAll(ctx context.Context, cl *client.Client, a *added, files []fileToAdd, as client.NewDocument) {
	var done atomic.Int64
	work := make(chan fileToAdd)
	var workers sync.WaitGroup
	for range sentAtOnce {
		workers.Go(func() {
			for f := range work {
				if err := c.send(ctx, cl, a, f, as); err != nil && ctx.Err() == nil {
					a.failed(f, err)
				}
				if n := done.Add(1); len(files) > 100 && n%100 == 0 && hasTerminal() {
					fmt.Fprintf(c.err, "\r%d of %d", n, len(files))
				}
			}
		})
	}
	for _, f := range files {
		if ctx.Err() != nil {
			break
		}
		work <- f
	}
	close(work)
	workers.Wait()
	if len(files) > 100 && hasTerminal() {
		fmt.Fprintln(c.err)
	}
}

// send adds one file: as a document, or as a version of the one that is there.
func (c *cli) send(ctx context.Context, cl *client.Client, a *added, f fileToAdd, d client.NewDocument) error {
	if f.url != "" {
		got, err := cl.FetchDocument(ctx, client.FetchDocument{URL: f.url, Key: f.key, Source: d.Source, Labels: d.Labels, Own: d.Own})
		if err != nil {
			return err
		}
		switch got.Saved {
		case "added":
			atomic.AddInt64(&a.Added, 1)
		case "unchanged":
			atomic.AddInt64(&a.Unchanged, 1)
		default:
			atomic.AddInt64(&a.Versions, 1)
		}
		return nil
	}
	d.Key, d.Type = f.key, knowledge.TypeOf(f.key)
	content, err := c.readDocument(f.path, d.Type)
	if err != nil {
		return err
	}
	if knowledge.Foreign(d.Type) {
		d.File = content
	} else {
		d.Content = string(content)
	}
	_, err = cl.AddDocument(ctx, d)
	var p *client.Problem
	if !errors.As(err, &p) || p.Code != string(fault.Conflict) {
		if err == nil {
			atomic.AddInt64(&a.Added, 1)
		}
		return err
	}
	id := knowledge.DocumentID(d.Source, d.Key)
	have, err := cl.Document(ctx, id, time.Time{})
	if err != nil {
		return err
	}
	now, err := cl.AddDocumentVersion(ctx, id, client.NewVersion{Expected: have.Version, Content: d.Content, File: d.File, Type: d.Type, Labels: d.Labels, Own: d.Own, UnlessSame: true})
	switch {
	case err != nil:
		return err
	case now.Version == have.Version:
		atomic.AddInt64(&a.Unchanged, 1)
	default:
		atomic.AddInt64(&a.Versions, 1)
	}
	return nil
}

// readDocument reads a file, or standard input for "".
func (c *cli) readDocument(path, mediaType string) (b []byte, err error) {
	most := int64(knowledge.MaxContent)
	if knowledge.Foreign(mediaType) {
		most = knowledge.MaxFile
	}
	if path == "" {
		b, err = io.ReadAll(io.LimitReader(c.in, most+1))
	} else {
		b, err = readRegular(path, most)
	}
	switch {
	case err != nil:
		return nil, err
	case int64(len(b)) > most:
		return nil, fmt.Errorf("it has more than %d bytes: split it into several documents", most)
	case !knowledge.Foreign(mediaType) && !utf8.Valid(b):
		return nil, errors.New("it is not text in UTF-8: convert it")
	}
	return b, nil
}

func (c *cli) knowledgeList() *cobra.Command {
	var source string
	cmd := printing(c, about{use: "list", short: "List documents", example: "sallyport knowledge list --source handbook"},
		func(ctx context.Context, cl *client.Client, _ []string) ([]client.KnowledgeDocument, error) {
			all := []client.KnowledgeDocument{}
			for after := ""; ; {
				page, err := cl.Documents(ctx, source, after)
				if err != nil {
					return nil, err
				}
				all = append(all, page.Documents...)
				if after = page.Next; after == "" {
					return all, nil
				}
			}
		}, func(t *table, all []client.KnowledgeDocument) {
			t.row("DOCUMENT", "VERSION", "SOURCE", "KEY", "LABELS", "STATE", "BY", "AT")
			for _, d := range all {
				t.row(d.DocumentID, d.Version, d.Metadata.Source, d.Key, d.Labels, documentState(&d), identity.Shown(d.Metadata.CreatedBy), d.Metadata.CreatedAt)
			}
		})
	cmd.Flags().StringVar(&source, "source", "", "of one collection")
	return cmd
}

func documentState(d *client.KnowledgeDocument) string {
	switch {
	case d.Erased:
		return "erased"
	case d.Withdrawn:
		return "withdrawn"
	case d.DeletedAt != nil:
		return "deleted"
	}
	return ""
}

func documentFields(t *table, d *client.KnowledgeDocument) {
	t.field("document", d.DocumentID)
	t.field("version", d.Version)
	t.field("source", d.Metadata.Source)
	t.field("key", d.Key)
	t.field("labels", d.Labels)
	t.field("state", documentState(d))
	t.field("by", identity.Shown(d.Metadata.CreatedBy))
	t.field("at", d.Metadata.CreatedAt)
	if d.EraseAsked != "" && !d.Erased {
		t.field("erasure", "asked for by "+identity.Shown(d.EraseAsked)+"; a second admin has to ask, too")
	}
}

func (c *cli) knowledgeGet() *cobra.Command {
	var asOf string
	var version int
	cmd := printing(c, about{use: "get DOCUMENT", short: "Show a document, as it is or as it was", args: cobra.ExactArgs(1),
		example: "sallyport knowledge get doc_4f…\nsallyport knowledge get doc_4f… --version 2\nsallyport knowledge get doc_4f… --as-of 2026-01-31T12:00:00Z"},
		func(ctx context.Context, cl *client.Client, args []string) (*client.KnowledgeDocument, error) {
			if version > 0 {
				return cl.DocumentVersion(ctx, args[0], version)
			}
			var at time.Time
			if asOf != "" {
				var err error
				if at, err = time.Parse(time.RFC3339, asOf); err != nil {
					return nil, usagef("--as-of is a time like 2026-01-31T12:00:00Z")
				}
			}
			return cl.Document(ctx, args[0], at)
		}, func(t *table, d *client.KnowledgeDocument) {
			documentFields(t, d)
			t.line("")
			for line := range strings.Lines(d.Content) {
				t.line("%s", strings.TrimRight(line, "\n"))
			}
		})
	cmd.Flags().StringVar(&asOf, "as-of", "", "as it was at this time")
	cmd.Flags().IntVar(&version, "version", 0, "this version")
	cmd.MarkFlagsMutuallyExclusive("as-of", "version")
	return cmd
}

func (c *cli) knowledgeHistory() *cobra.Command {
	return printing(c, about{use: "history DOCUMENT", short: "List all that happened to a document", args: cobra.ExactArgs(1), example: "sallyport knowledge history doc_4f…"},
		func(ctx context.Context, cl *client.Client, args []string) (*client.KnowledgeHistory, error) {
			return cl.DocumentHistory(ctx, args[0])
		}, func(t *table, h *client.KnowledgeHistory) {
			t.row("AT", "WHAT", "VERSION", "SIZE", "LABELS", "BY", "REASON")
			for _, e := range h.Events {
				v := ""
				if e.Version > 0 {
					v = strconv.Itoa(e.Version)
				}
				why := e.Reason
				if e.Own != "" {
					why = "says that the words are theirs, and not those of " + e.Own
				}
				t.row(e.At, e.Kind, v, e.Size, e.Labels, identity.Shown(e.By), why)
			}
		})
}

func (c *cli) knowledgeDiff() *cobra.Command {
	var from, to int
	cmd := printing(c, about{use: "diff DOCUMENT", short: "Show what two versions of a document differ in", args: cobra.ExactArgs(1),
		long:    "Without --from and --to: what the newest version changed.",
		example: "sallyport knowledge diff doc_4f…\nsallyport knowledge diff doc_4f… --from 1 --to 3"},
		func(ctx context.Context, cl *client.Client, args []string) (*client.KnowledgeDiff, error) {
			return cl.DocumentDiff(ctx, args[0], from, to)
		}, func(t *table, d *client.KnowledgeDiff) {
			t.line("%s, version %d to %d", d.DocumentID, d.From, d.To)
			for _, l := range d.Lines {
				switch l.Kind {
				case "del":
					t.line("- %s", l.Text)
				case "ins":
					t.line("+ %s", l.Text)
				case "skip":
					t.line("  (%d lines of both)", l.Left)
				default:
					t.line("  %s", l.Text)
				}
			}
		})
	cmd.Flags().IntVar(&from, "from", 0, "the older version (default: the one before)")
	cmd.Flags().IntVar(&to, "to", 0, "the newer version (default: the newest)")
	return cmd
}

func (c *cli) knowledgeSnapshot() *cobra.Command {
	var list bool
	cmd := printing(c, about{use: "snapshot", short: "Make a snapshot, which agents then search", example: "sallyport knowledge snapshot\nsallyport knowledge snapshot --list",
		long: `A snapshot pins the documents that are there now, each in its newest version; where nothing changed it is the newest one again. A session reads the
newest snapshot of the moment of its first reading, to its end. What is withdrawn or erased is gone from every snapshot at once.`},
		func(ctx context.Context, cl *client.Client, _ []string) ([]client.KnowledgeSnapshot, error) {
			if list {
				all, err := cl.Snapshots(ctx)
				if err != nil {
					return nil, err
				}
				return all.Snapshots, nil
			}
			s, err := cl.MakeSnapshot(ctx)
			if err != nil {
				return nil, err
			}
			return []client.KnowledgeSnapshot{*s}, nil
		}, func(t *table, all []client.KnowledgeSnapshot) {
			t.row("SNAPSHOT", "DOCUMENTS", "ROOT", "BY", "AT")
			for _, s := range all {
				t.row(s.ID, s.Documents, s.Root, identity.Shown(s.By), s.At)
			}
		})
	cmd.Flags().BoolVar(&list, "list", false, "list those that there are")
	return cmd
}

func (c *cli) knowledgeSearch() *cobra.Command {
	var snapshot string
	var k int
	cmd := printing(c, about{use: "search WORD…", short: "Search a snapshot, as agents do", args: cobra.MinimumNArgs(1), example: "sallyport knowledge search travel expenses abroad"},
		func(ctx context.Context, cl *client.Client, args []string) (*client.KnowledgeFound, error) {
			return cl.SearchKnowledge(ctx, strings.Join(args, " "), snapshot, k)
		}, func(t *table, f *client.KnowledgeFound) {
			for _, h := range f.Hits {
				t.field(fmt.Sprintf("%s v%d %d-%d", h.DocumentID, h.Version, h.Span.Start, h.Span.End), h.Source+"/"+h.Key)
				for line := range strings.Lines(h.Text) {
					t.line("  %s", strings.TrimRight(line, "\n"))
				}
				t.line("")
			}
			how := "by words and by meaning"
			if f.TextOnly != "" {
				how = "by words alone: " + f.TextOnly
			}
			t.line("%d hits in %s, %s", len(f.Hits), f.Snapshot, how)
		})
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "this snapshot, and not the newest")
	cmd.Flags().IntVarP(&k, "hits", "k", 0, "how many (default 10)")
	return cmd
}

// documentAct is a command on one document that takes a reason.
func (c *cli) documentAct(a about, act func(ctx context.Context, cl *client.Client, id, reason string) (*client.KnowledgeDocument, error)) *cobra.Command {
	var reason string
	a.args, a.reasoned = cobra.ExactArgs(1), true
	cmd := printing(c, a, func(ctx context.Context, cl *client.Client, args []string) (*client.KnowledgeDocument, error) {
		return act(ctx, cl, args[0], reason)
	}, func(t *table, d *client.KnowledgeDocument) { documentFields(t, d) })
	reasonFlag(cmd, &reason)
	return cmd
}

func (c *cli) knowledgeDelete() *cobra.Command {
	return c.documentAct(about{use: "delete DOCUMENT", short: "Delete a document softly: the next snapshot is without it", example: "sallyport knowledge delete doc_4f… --reason \"replaced by the new handbook\""},
		func(ctx context.Context, cl *client.Client, id, reason string) (*client.KnowledgeDocument, error) {
			return cl.DeleteDocument(ctx, id, reason)
		})
}

func (c *cli) knowledgeRestore() *cobra.Command {
	return c.documentAct(about{use: "restore DOCUMENT", short: "Restore a document that was deleted or withdrawn", example: "sallyport knowledge restore doc_4f… --reason \"deleted by mistake\""},
		func(ctx context.Context, cl *client.Client, id, reason string) (*client.KnowledgeDocument, error) {
			return cl.RestoreDocument(ctx, id, reason)
		})
}

func (c *cli) knowledgeLabel() *cobra.Command {
	var labels []string
	cmd := c.documentAct(about{use: "label DOCUMENT", short: "Give a document other labels", example: "sallyport knowledge label doc_4f… --label internal --reason \"it names customers\"",
		long: "The labels that are given are all that the document has from now on. It takes the role operator."},
		func(ctx context.Context, cl *client.Client, id, reason string) (*client.KnowledgeDocument, error) {
			return cl.LabelDocument(ctx, id, labels, reason)
		})
	cmd.Flags().StringSliceVar(&labels, "label", nil, "a label; none: it has none any more")
	return cmd
}

func readersFields(t *table, r *client.KnowledgeReaders) {
	t.field("documents", r.Documents)
	t.field("agents that read them", r.Agents)
	t.field("sessions", r.Sessions)
	t.field("runs", r.Runs)
	t.field("recommendations", r.Recommendations)
	t.field("calls", r.Calls)
	t.field("calls afterwards", r.Sent)
	t.field("snapshots", r.Snapshots)
	t.field("exports", r.Exports)
}

func (c *cli) knowledgeWithdraw() *cobra.Command {
	var w client.KnowledgeWithdrawal
	var from, to string
	cmd := printing(c, about{use: "withdraw", short: "Take a poisoned source out of every snapshot at once, and say who read it", reasoned: true,
		long:    "All that is given has to hold for one version of a document. Running sessions find nothing of it any more. It takes the role operator.",
		example: "sallyport knowledge withdraw --source wiki --author bob --from 2026-01-31T00:00:00Z --reason \"bob's account was stolen\""},
		func(ctx context.Context, cl *client.Client, _ []string) (*client.KnowledgeReaders, error) {
			for _, given := range []struct {
				name, text string
				at         *time.Time
			}{{"from", from, &w.From}, {"to", to, &w.To}} {
				if given.text == "" {
					continue
				}
				var err error
				if *given.at, err = time.Parse(time.RFC3339, given.text); err != nil {
					return nil, usagef("--%s is a time like 2026-01-31T12:00:00Z", given.name)
				}
			}
			return cl.WithdrawDocuments(ctx, w)
		}, readersFields)
	cmd.Flags().StringVar(&w.Source, "source", "", "documents of this collection")
	cmd.Flags().StringVar(&w.Author, "author", "", "with a version by this person")
	cmd.Flags().StringVar(&from, "from", "", "with a version of this time or later")
	cmd.Flags().StringVar(&to, "to", "", "with a version from before this time")
	reasonFlag(cmd, &w.Reason)
	return cmd
}

func (c *cli) knowledgeErase() *cobra.Command {
	var reason string
	cmd := printing(c, about{use: "erase DOCUMENT", short: "Erase a document for good; two admins have to ask for it", args: cobra.ExactArgs(1), reasoned: true,
		long: `The key of its texts is destroyed, and the indexes are built again without it. That it was there, what it was known by and who added it stay on the
record. A backup from before still holds the key of its texts: remove it, too, or have restore erase the document again (knowledge erasures).`,
		example: "sallyport knowledge erase doc_4f… --reason \"request of 3 March by the person it is about\""},
		func(ctx context.Context, cl *client.Client, args []string) (*client.Erasure, error) {
			return cl.EraseDocument(ctx, args[0], reason)
		}, func(t *table, e *client.Erasure) {
			t.field("document", e.DocumentID)
			if !e.Done {
				t.field("erasure", "asked for by "+identity.Shown(e.AskedBy)+"; a second admin has to ask, too")
				return
			}
			t.field("erasure", "done")
			if e.Left != nil {
				readersFields(t, e.Left)
			}
		})
	reasonFlag(cmd, &reason)
	return cmd
}

func (c *cli) knowledgeErasures() *cobra.Command {
	return printing(c, about{use: "erasures", short: "List the documents that were erased, so that restore can erase them again", args: cobra.NoArgs,
		long:    `Keep what it writes with -o json beside the backups, anew after each erasure. It names documents by their ids, and has nothing of them.`,
		example: "sallyport knowledge erasures -o json > erasures.json\nsallyport restore old.tar --data new --keys keys --erasures erasures.json"},
		func(ctx context.Context, cl *client.Client, _ []string) ([]knowledge.Erasure, error) {
			all := []knowledge.Erasure{}
			for after := ""; ; {
				page, err := cl.Documents(ctx, "", after)
				if err != nil {
					return nil, err
				}
				for _, d := range page.Documents {
					if !d.Erased {
						continue
					}
					h, err := cl.DocumentHistory(ctx, d.DocumentID)
					if err != nil {
						return nil, err
					}
					all = append(all, erasureOf(h))
				}
				if after = page.Next; after == "" {
					return all, nil
				}
			}
		}, func(t *table, all []knowledge.Erasure) {
			t.row("DOCUMENT", "ASKED BY", "ERASED BY", "AT")
			for _, e := range all {
				t.row(e.Document, identity.Shown(e.AskedBy), identity.Shown(e.By), e.At)
			}
		})
}

// erasureOf is the erasure of a document, of all that happened to it.
func erasureOf(h *client.KnowledgeHistory) knowledge.Erasure {
	e := knowledge.Erasure{Document: h.DocumentID}
	for _, what := range h.Events {
		switch what.Kind {
		case string(knowledge.EraseAsk):
			e.AskedBy, e.AskedAt = what.By, what.At
		case string(knowledge.Erased):
			e.By, e.At = what.By, what.At
		}
	}
	return e
}
