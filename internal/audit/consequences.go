package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// consequences are what the entries themselves must bear out, whoever keeps the state: an approval is used once, by a call that was asked about,
// after as many people approved as its risk needs; a token is made once and revoked once.
type consequences struct {
	approvals map[string]*answered
	tokens    map[string]*token
	partial   bool // entries before these are archived: what they say is not known
}

// answered is what the log has of a question.
type answered struct {
	yes   map[string]bool // people who approved
	ended string          // what ended it, or ""
	spent int64           // the intent that used it, or -1
	part  bool            // it may have been asked, and answered, in entries that are archived
}

type token struct{ revoked bool }

// approvalDetail is what an entry's detail says of a question.
type approvalDetail struct {
	ID          string `json:"approval_id"`
	PermittedBy string `json:"permitted_by"`
}

// The table of approvals that were used up, and the field by which entries name one.
const spentTable = "audit_spent"

var approvalField = []byte(`"approval_id"`)

// add returns what an entry contradicts.
func (c *consequences) add(e *Entry) (problems []string) {
	var d approvalDetail
	if bytes.Contains(e.Detail, approvalField) {
		if err := json.Unmarshal(e.Detail, &d); err != nil {
			d = approvalDetail{} // the detail of another action, of another form
		}
	}
	if e.Kind == Intent {
		used := d.ID
		for _, r := range e.Rows {
			if r.Table == spentTable {
				used = r.Key
			}
		}
		if used != "" {
			problems = c.spend(e, used, d.PermittedBy == "silence")
		}
		return problems
	}
	if d.ID != "" {
		c.answer(e, d.ID)
	}
	if e.Kind == Change && e.Decision == "ok" {
		problems = c.token(e)
	}
	return problems
}

// spend checks that an approval may be used by a call.
func (c *consequences) spend(e *Entry, id string, silence bool) (problems []string) {
	say := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf("entry %d uses the approval %.80q", e.Index, id)+fmt.Sprintf(format, args...))
	}
	a := c.approvals[id]
	if a == nil {
		if !c.partial {
			say(", and no entry before it asked for one")
		}
		a = &answered{spent: -1, yes: map[string]bool{}, part: c.partial}
		c.approvals[id] = a
	}
	least := 1
	if e.Risk == "CRITICAL" {
		least = 2
	}
	switch {
	case a.spent >= 0:
		say(", which entry %d has used", a.spent)
	case a.ended != "":
		say(", which had ended by then (%s)", a.ended)
	case a.part:
	case silence && len(a.yes) == 0 && e.Risk == "MEDIUM": // what silence permits by rule
	case len(a.yes) < least:
		say(", and %d people had approved it, not %d", len(a.yes), least)
	}
	for _, person := range e.Approvers {
		if !a.yes[person] && !a.part {
			say(" of %.80q, who had not approved it", person)
		}
	}
	a.spent = e.Index
	return problems
}

// answer takes over what an entry says of a question.
func (c *consequences) answer(e *Entry, id string) {
	a := c.approvals[id]
	if a == nil {
		a = &answered{spent: -1, yes: map[string]bool{}, part: c.partial && e.Kind != Decision}
		c.approvals[id] = a
	}
	if e.Kind != Change || e.Decision != "ok" {
		return
	}
	switch e.Action {
	case "approval.approve":
		if person, ok := strings.CutPrefix(e.Actor, "person:"); ok {
			a.yes[person] = true
		}
	case "approval.reject", "approval.supersede", "approval.withdraw", "approval.modify":
		a.ended = e.Action
	}
}

// token checks that tokens are made and revoked once.
func (c *consequences) token(e *Entry) (problems []string) {
	t := c.tokens[e.CallID]
	switch e.Action {
	case "token.create":
		if t != nil {
			problems = append(problems, fmt.Sprintf("entry %d makes the token %.80q, which was made before", e.Index, e.CallID))
		}
		c.tokens[e.CallID] = &token{}
	case "token.revoke":
		switch {
		case t == nil && c.partial:
			c.tokens[e.CallID] = &token{revoked: true}
		case t == nil:
			problems = append(problems, fmt.Sprintf("entry %d revokes the token %.80q, which no entry made", e.Index, e.CallID))
		case t.revoked:
			problems = append(problems, fmt.Sprintf("entry %d revokes the token %.80q, which was revoked before", e.Index, e.CallID))
		default:
			t.revoked = true
		}
	}
	return problems
}
