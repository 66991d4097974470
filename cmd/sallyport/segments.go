package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/store"
)

// segments is what audit segments prints.
type segments struct {
	Sealed []store.Segment `json:"sealed"`
	First  int64           `json:"first"` // own entry of the file that is written to
	Size   int64           `json:"size"`  // of the log
}

func (c *cli) auditSegments() *cobra.Command {
	return c.command(about{
		use: "segments", short: "List the files that the log is in, without any server",
		long: `A file of the log with enough entries (audit.segment_entries in the configuration) is sealed, and the log goes on in a new one. A sealed file
changes no more. The sizes and the SHA-256 are those that it was sealed with; sallyport audit verify compares them.`,
		example: "sallyport audit segments\nsallyport audit segments --output json", prints: true,
	}, func(ctx context.Context, _ []string) (err error) {
		r, err := store.OpenReadOnly(c.data)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		var s segments
		if s.Size, err = r.Size(ctx); err != nil {
			return err
		}
		s.Sealed, s.First = r.Segments()
		return c.print(s, func(t *table) {
			t.row("FILE", "ENTRIES", "NEWEST", "BYTES", "SHA-256", "STATE")
			for _, f := range s.Sealed {
				t.row(f.Name, fmt.Sprintf("%d-%d", f.First, f.End-1), f.At, f.Bytes, f.SHA256, stateOf(f))
			}
			t.row(store.NewestFile(s.First), fmt.Sprintf("%d-%d", s.First, s.Size-1), "", "", "", "written to")
		})
	})
}

func stateOf(s store.Segment) string {
	switch {
	case s.ArchivedTo != "":
		return "archived to " + s.ArchivedTo
	case !s.Present:
		return "GONE"
	case s.SHA256 == "":
		return "being sealed"
	}
	return "sealed"
}

// archived is what audit archive prints.
type archived struct {
	Moved []store.Segment `json:"moved"`
	From  int64           `json:"from"` // the first entry that is still here
}

func (c *cli) auditArchive() *cobra.Command {
	var to, before, reason string
	cmd := c.command(about{
		use: "archive", short: "Move sealed files of the log to another folder, on record",
		long: `It is done while no gateway runs on the directory. Each file is copied to the folder, compared with the SHA-256 that it was sealed with, put on
record with its entries, root and SHA-256, and then removed here. The log is proved without it from the checkpoint at its end on. What was archived is
not found by queries any more; sallyport audit verify --segments FOLDER checks it together with the rest. Without --before all sealed files are moved.`,
		example: `sallyport audit archive --to /archive/sallyport --before 8760h
sallyport audit archive --to /archive/sallyport --reason "the disk is full"`, prints: true,
	}, func(ctx context.Context, _ []string) (err error) {
		if to == "" {
			return usagef("--to names the folder")
		}
		limit, err := moment("--before", before, func(d time.Duration) time.Time { return time.Now().Add(-d) })
		if err != nil {
			return err
		}
		if err := c.hasDatabase(); err != nil {
			return err
		}
		if store.InUse(c.data) != nil {
			return fault.New(fault.ConfigurationInvalid, "A gateway runs on %s, and files of the log are archived only while none does.", c.data).Try("Stop it, archive, and start it again.")
		}
		db, err := store.Open(c.data, store.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		var out archived
		moved, stays, err := db.Archive(ctx, to, limit, localPerson(), reason)
		if err != nil {
			return err
		}
		if stays != nil && len(moved) == 0 {
			return stays
		}
		out.Moved = moved
		out.From = db.Oldest()
		return c.print(out, func(t *table) {
			for _, s := range out.Moved {
				t.line("%s: entries %d to %d are in %s", s.Name, s.First, s.End-1, s.ArchivedTo)
			}
			if len(out.Moved) == 0 {
				t.line("nothing was moved: no sealed file is old enough")
			}
			if stays != nil {
				t.line("the next one stays: %s", stays)
			}
			if out.From > 0 {
				t.line("The log here is proved from the checkpoint at the end of what was moved on. To check all of it: sallyport audit verify --segments %s", to)
			}
		})
	})
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "folder outside the data directory")
	f.StringVar(&before, "before", "", "only files whose newest entry is older than a time, or than so long ago (2026-01-31T08:00:00Z, 720h)")
	f.StringVar(&reason, "reason", "", "why, for the record")
	must(cmd.MarkFlagDirname("to"))
	return cmd
}
