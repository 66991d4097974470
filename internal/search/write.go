package search

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// Formats are the forms that Write knows, each with its media type.
var Formats = map[string]string{"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}

// columns are the columns of CSV.
var columns = []string{"index", "at", "severity", "what", "kind", "action", "agent", "session", "requester", "actor", "operation", "action_type", "call_id", "decision", "code", "reason",
	"risk", "amount", "approvers", "arguments", "result"}

// Write writes all entries that the filter selects, the oldest first: as JSON, one a line, each as the HTTP API has it, or as CSV.
func (l *Log) Write(ctx context.Context, w io.Writer, format string, f audit.Filter) error {
	if Formats[format] == "" {
		return fault.New(fault.RequestMalformed, "format is csv or jsonl, not %.40q.", format).At("format")
	}
	f.Limit = maxPage
	table := csv.NewWriter(w)
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	for head := true; ; head = false {
		page, next, err := l.Entries(ctx, f)
		if err != nil {
			return err
		}
		if head && format == "csv" {
			err = table.Write(columns)
		}
		for _, e := range page {
			if err != nil {
				return err
			}
			if format == "csv" {
				err = table.Write(cells(e))
			} else {
				err = lines.Encode(e)
			}
		}
		if table.Flush(); err == nil {
			err = table.Error()
		}
		if err != nil || next < 0 {
			return err
		}
		f.Min = next + 1
	}
}

// cells are an entry as a row. Texts are hostile: none can be a formula for a spreadsheet, nor hide or reorder what stands beside it.
func cells(e audit.Entry) []string {
	row := []string{strconv.FormatInt(e.Index, 10), e.At.UTC().Format(time.RFC3339), string(e.Severity), audit.Plain(e), string(e.Kind), e.Action, e.Agent, e.Session, e.Requester, e.Actor,
		e.Operation, e.Type, e.CallID, e.Decision, e.Code, e.Reason, e.Risk, e.Amount, strings.Join(e.Approvers, ", "), shown(e.Arguments), shown(e.Result)}
	for i, cell := range row {
		cell = display.Line(cell, maxText)
		if start := strings.TrimLeft(cell, " \u00a0"); start != "" && strings.ContainsRune("=+-@＝＋－＠\t\r", []rune(start)[0]) {
			cell = "'" + cell
		}
		row[i] = cell
	}
	return row
}

// shown is a payload as the entry has it, or its digest.
func shown(p *audit.Payload) string {
	switch {
	case p == nil:
		return ""
	case p.Shown != nil:
		return string(p.Shown)
	}
	return "sha256 " + p.SHA256
}

// Serve answers a request with all entries that its query selects, in the form that its parameter format names. A failure after the answer began cuts the
// connection, since half of it must not look like the whole.
func (l *Log) Serve(w http.ResponseWriter, r *http.Request, log *slog.Logger) error {
	query := r.URL.Query()
	format := query.Get("format")
	query.Del("format")
	f, err := audit.ParseFilter(query, time.Now())
	if err == nil && Formats[format] == "" {
		err = fault.New(fault.RequestMalformed, "format is csv or jsonl, not %.40q.", format).At("format")
	}
	if err == nil && f.Text != "" && l.index == nil {
		err = off()
	}
	if err == nil && f.Text != "" && parsed(f.Text) == "" {
		err = noWord()
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", Formats[format])
	w.Header().Set("Content-Disposition", `attachment; filename="sallyport-audit.`+format+`"`)
	if err := l.Write(r.Context(), w, format, f); err != nil {
		log.Error("a download was broken off", "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}
