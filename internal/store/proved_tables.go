package store

import (
	"slices"
	"strings"
)

// table is a table whose rows decide something: who may act, what was answered, what a session holds. Each of its rows is proved: it has the
// columns entry (the index of the entry that changed it last) and mac.
//
// A migration that adds a column adds its name to columns; the next start proves the rows anew, with an entry "state.adopt". It may set the new column in
// the rows that are there, and must leave the columns alone that were there before: their MACs would not fit.
type table struct {
	name    string
	key     string   // the column that names a row
	columns []string // all others that decide, in the order in which the MAC covers them
	// ordered tables have a column n by which their rows are listed. It is set when a row is made.
	ordered bool
	// zero is a column that a new row has as 0, and that is proved apart: see tx.settle.
	zero string
	// chained tables have many rows of one key, numbered by seq. Only the last is in the digest; its MAC covers the MAC of the one before, and so on.
	chained bool

	index                       int      // in proved
	nth                         string   // the column of a row's place in order or in its chain; the key where there is none
	put                         []string // of one row, of two, and so on
	list, all, one, prove, drop string
}

var (
	sessionRows           = &table{name: "sessions", key: "id", columns: []string{"agent", "own", "phase", "state", "version", "plan_waits", "body"}, ordered: true, zero: "used_ns"}
	tokenRows             = &table{name: "tokens", key: "id", columns: []string{"hash", "kind", "subject", "agent", "roles", "created", "expires", "revoked"}}
	pinRows               = &table{name: "pins", key: "operation", columns: []string{"hash", "definition", "pending", "pending_def", "accepted_by", "accepted_at", "confirmed_by", "launch", "pending_launch"}}
	switchRows            = &table{name: "switches", key: "one", columns: []string{"epoch", "body"}}
	declarationRows       = &table{name: "declarations", key: "id", columns: []string{"session", "state", "body"}}
	approvalRows          = &table{name: "approvals", key: "id", columns: []string{"session", "agent", "operation", "call_digest", "state", "expires", "until", "silence", "spoken", "body"}, ordered: true}
	spentRows             = &table{name: "audit_spent", key: "id", columns: []string{"call_id"}}
	usedRows              = &table{name: "used", key: "key"}
	quarantineRows        = &table{name: "quarantines", key: "agent", columns: []string{"since", "by", "reason"}}
	quarantineCountRows   = &table{name: "quarantine_counts", key: "agent", columns: []string{"times"}}
	drillRows             = &table{name: "drills", key: "id"}
	storedLabelRows       = &table{name: "stored_labels", key: "id", columns: []string{"body"}}
	writtenRows           = &table{name: "written_values", key: "id", columns: []string{"body"}}
	segmentRows           = &table{name: "segments", key: "name", columns: []string{"body"}}
	knowledgeEventRows    = &table{name: "knowledge_events", key: "key", columns: []string{"body"}}
	knowledgeSnapshotRows = &table{name: "knowledge_snapshots", key: "id", columns: []string{"body"}}
	knowledgeIndexRows    = &table{name: "knowledge_indexes", key: "name", columns: []string{"digest"}}
	knowledgePinRows      = &table{name: "knowledge_pins", key: "session", columns: []string{"snapshot"}}
	agentApprovalRows     = &table{name: "agent_approvals", key: "agent", columns: []string{"digest", "body"}}
	runRows               = &table{name: "runs", key: "id", columns: []string{"agent", "status", "idem", "body"}, ordered: true}
	recommendationRows    = &table{name: "recommendations", key: "id", columns: []string{"agent", "state", "body"}, ordered: true}
	promptRows            = &table{name: "session_prompts", key: "session", columns: []string{"body"}}
	quotaRows             = &table{name: "quota_use", key: "key", columns: []string{"start", "used", "reserved"}}
	evidenceRows          = &table{name: "evidence", key: "session_id", columns: []string{"seq", "call_id", "rules", "total", "body"}, chained: true}
)

// proved are the tables that decide.
var proved = []*table{sessionRows, tokenRows, pinRows, switchRows, declarationRows, approvalRows, spentRows, usedRows, quarantineRows, quarantineCountRows, drillRows, evidenceRows, storedLabelRows, writtenRows, segmentRows,
	knowledgeEventRows, knowledgeSnapshotRows, knowledgeIndexRows, knowledgePinRows, agentApprovalRows, runRows, recommendationRows, quotaRows, promptRows}

// unproved are the other tables of the schema, each with the reason why its rows need no MAC.
var unproved = map[string]string{
	"audit_entries":         "the signed tree covers them",
	"audit_tiles":           "they follow from the entries",
	"audit_blocks":          "they follow from the entries, and state_proof has a digest of them, too",
	"audit_payloads":        "their keys are their hashes, which entries name",
	"audit_checkpoints":     "they are signed",
	"approval_destinations": "they follow from the approvals, and only tell people what else was asked about a destination",
	"low_water":             "state_proof holds its value, too",
	"state_proof":           "it has a MAC of its own, and the signed checkpoint names its digest",
	"notices":               "messages on their way to people: they permit nothing, and an answer takes signing in",
	"notice_channels":       "counts that are shown",
	"pulse":                 "it only shows that the store takes writes",
	"schema_version":        "a wrong one makes the migrations fail, or the start",
}

// Where columns stand that are read by themselves.
var sessionBody, approvalBody, declarationBody, tokenRevoked, switchEpoch, switchBody, runBody, recommendationBody int

func init() {
	for i, t := range proved {
		t.index = i
		t.prepare()
	}
	sessionBody, approvalBody, declarationBody = sessionRows.place("body"), approvalRows.place("body"), declarationRows.place("body")
	tokenRevoked, switchEpoch, switchBody, runBody, recommendationBody = tokenRows.place("revoked"), switchRows.place("epoch"), switchRows.place("body"), runRows.place("body"), recommendationRows.place("body")
}

// putAtOnce bounds the rows of one statement: the windows of all quotas of an agent.
const putAtOnce = 8

// prepare writes the table's statements.
func (t *table) prepare() {
	switch t.nth = t.key; {
	case t.ordered:
		t.nth = "n"
	case t.chained:
		t.nth = "seq"
	}
	cover := t.covered()
	all := append(slices.Clone(cover), "entry", "mac")
	t.list = strings.Join(all, ", ")
	t.all = "SELECT " + t.list
	if t.zero != "" {
		t.all += ", " + t.zero
	}
	t.all += " FROM " + t.name
	t.one = t.all + " WHERE " + t.key + " = $1"
	places := make([]string, len(all))
	var set []string
	for i, c := range all {
		places[i] = "?" // numbers would cost the driver ten allocations
		if c != t.key && c != "n" {
			set = append(set, c+" = excluded."+c)
		}
	}
	into, values := t.list, strings.Join(places, ", ")
	if t.zero != "" {
		into, values = into+", "+t.zero, values+", 0"
	}
	head, row, conflict := "INSERT INTO "+t.name+" ("+into+") VALUES ", "("+values+")", ""
	where := t.key + " = $1"
	if t.chained {
		where += " AND seq = $4"
	} else {
		conflict = " ON CONFLICT (" + t.key + ") DO UPDATE SET " + strings.Join(set, ", ")
	}
	t.put = make([]string, putAtOnce)
	for i := range t.put {
		t.put[i] = head + row + strings.Repeat(", "+row, i) + conflict
	}
	t.prove = "UPDATE " + t.name + " SET entry = $2, mac = $3 WHERE " + where
	t.drop = "DELETE FROM " + t.name + " WHERE " + t.key + " = $1"
}

// covered are the columns that the MAC covers, the key first.
func (t *table) covered() []string {
	cover := []string{t.key}
	if t.ordered {
		cover = append(cover, "n")
	}
	return append(cover, t.columns...)
}

// place is where a column stands in a row that was read.
func (t *table) place(column string) int { return slices.Index(t.covered(), column) }

// layout says which columns are covered, for all tables: "sessions(id,n,agent,…) tokens(…) …".
func layout() string {
	var b strings.Builder
	for i, t := range proved {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t.name + "(" + strings.Join(t.covered(), ",") + ")")
	}
	return b.String() + " " + blocksLaidOut
}

// blocksLaidOut is in the layout of a proof that covers audit_blocks, too.
const blocksLaidOut = "audit_blocks(n,keys)"

// laidOut are the tables with the columns that a layout names. A table that it doesn't name has no rows with a MAC.
func laidOut(layout string) (tables []*table, ok bool) {
	for part := range strings.FieldsSeq(layout) {
		if part == blocksLaidOut {
			continue
		}
		name, columns, found := strings.Cut(strings.TrimSuffix(part, ")"), "(")
		i := slices.IndexFunc(proved, func(t *table) bool { return t.name == name })
		if !found || i < 0 {
			return nil, false
		}
		t := *proved[i]
		t.columns = slices.DeleteFunc(strings.Split(columns, ","), func(c string) bool { return c == t.key || c == "n" })
		t.prepare()
		tables = append(tables, &t)
	}
	return tables, true
}
