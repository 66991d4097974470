package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/run"
)

const (
	exportPrefix = "export_"
	// maxImported bounds the recommendations of one imported text.
	maxImported = 1000
)

// exported is a line of an export: a recommendation that people answered, and which export it is of.
type exported struct {
	run.Recommendation
	Snapshot string `json:"snapshotId"`
}

// ExportOf names the export of what people have answered by now; "" where that is nothing. The name follows from what is in it, and pins it: what is
// answered later is in another export.
func (r *Runner) ExportOf(ctx context.Context) (id string, err error) {
	return r.exportBy(ctx, time.Unix(1<<40, 0))
}

// exportBy names the export of what people had answered by then.
func (r *Runner) exportBy(ctx context.Context, then time.Time) (id string, err error) {
	h, newest := sha256.New(), int64(0)
	for after := ""; ; {
		page, err := r.o.Store.Recommendations(ctx, run.RecommendationFilter{After: after, Limit: 100})
		if err != nil {
			return "", err
		}
		for _, rec := range page {
			if after = rec.ID; rec.State.Validated() && !rec.DecidedAt.After(then) {
				newest = max(newest, rec.DecidedAt.UnixNano())
				fmt.Fprintf(h, "%s\x00%s\x00%s\x00%d\x00%q\n", rec.ID, call.HashBytes(rec.Output), rec.State, rec.DecidedAt.UnixNano(), rec.DecidedBy)
			}
		}
		if len(page) < 100 {
			break
		}
	}
	if newest == 0 {
		return "", nil
	}
	return exportPrefix + strconv.FormatInt(newest, 36) + "_" + hex.EncodeToString(h.Sum(nil)[:20]), nil
}

// answeredBy is the time up to which an export has what people answered.
func answeredBy(export string) (time.Time, bool) {
	at, _, ok := strings.Cut(strings.TrimPrefix(export, exportPrefix), "_")
	nanos, err := strconv.ParseInt(at, 36, 64)
	return time.Unix(0, nanos), ok && err == nil && strings.HasPrefix(export, exportPrefix)
}

func notExported(format string, args ...any) error {
	return fault.New(fault.RequestMalformed, format, args...).At("content").
		Try("The collection %s takes what sallyport recommendations export prints, line by line, and nothing else.", knowledge.ExportCollection)
}

// Imported reads lines of an export that come back as a document, and returns what is kept of them: each recommendation as it is on record, with who answered
// it, in the words of the record and not of the file. labels are those of the sessions that the recommendations were made in. export names the export where
// the lines do not.
func (r *Runner) Imported(ctx context.Context, export, content string) (text, from string, labels []string, err error) {
	var kept strings.Builder
	n := 0
	for line := range strings.Lines(content) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if n++; n > maxImported {
			return "", "", nil, notExported("There are more than %d lines.", maxImported)
		}
		rec, of, err := r.exportedLine(ctx, n, line)
		if err != nil {
			return "", "", nil, err
		}
		if of != "" && export == "" {
			export = of
		}
		if of != "" && of != export {
			return "", "", nil, notExported("Line %d is of another export.", n)
		}
		then, ok := answeredBy(export)
		if !ok || rec.DecidedAt.After(then) {
			return "", "", nil, fault.New(fault.RequestMalformed, "Line %d names no export that it is of.", n).At("snapshotId").Try("Give the snapshotId of the export.")
		}
		b, err := call.Encode(exported{rec, export})
		if err != nil {
			return "", "", nil, err
		}
		kept.Write(b)
		kept.WriteByte('\n')
		labels = append(labels, rec.Labels...)
	}
	if n == 0 {
		return "", "", nil, notExported("There is no line.")
	}
	then, _ := answeredBy(export)
	switch is, err := r.exportBy(ctx, then); {
	case err != nil:
		return "", "", nil, err
	case is != export:
		return "", "", nil, fault.New(fault.RequestMalformed, "There was no export %.80q.", export).At("snapshotId").Try("Export the recommendations again.")
	}
	slices.Sort(labels)
	labels = slices.DeleteFunc(slices.Compact(labels), func(l string) bool { return l == string(flow.Untrusted) })
	return kept.String(), export, labels, nil
}

// exportedLine reads a line of an export, and returns the recommendation as it is on record.
func (r *Runner) exportedLine(ctx context.Context, n int, line string) (rec run.Recommendation, export string, err error) {
	canonical, err := call.Canonical([]byte(line), call.DefaultLimits())
	if err != nil || !call.IsObject(canonical) {
		return rec, "", notExported("Line %d is no JSON object.", n)
	}
	id, _ := call.GetText(canonical, "recommendation_id")
	export, _ = call.GetText(canonical, "snapshotId")
	if rec, err = r.o.Store.Recommendation(ctx, id); err != nil {
		if fault.Is(err, fault.NotFound) {
			err = notExported("Line %d is of no recommendation here.", n)
		}
		return rec, "", err
	}
	if !rec.State.Validated() || len(rec.DecidedBy) == 0 {
		return rec, "", notExported("Line %d: nobody has answered the recommendation %s.", n, id)
	}
	is, err := call.Canonical(rec.Output, call.DefaultLimits())
	if err != nil {
		return rec, "", err
	}
	decided, err := json.Marshal(rec.DecidedBy)
	if err != nil {
		return rec, "", err
	}
	output, _ := call.Get(canonical, "output")
	by, _ := call.Get(canonical, "decided_by")
	state, _ := call.GetText(canonical, "state")
	if string(output) != string(is) || state != string(rec.State) || string(by) != string(decided) {
		return rec, "", notExported("Line %d is not what was exported of %s.", n, id)
	}
	return rec, export, nil
}
