package replay

import (
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/store"
)

// Count says how often people would be asked: by the flow rules, for a tool that no entry names, and for the risk. What waits for the same answer is one
// question, and what another stage refused is none.
func TestCount(t *testing.T) {
	p := newPast(t, "Thank ann@books.example", nil)
	p.ran("book.lookup", `{"name":"ann"}`, mcp("x"), nil)
	p.ran("book.lookup", `{"name":"ben"}`, mcp("x"), nil)
	p.ran("mail.inbox", `{"folder":"new"}`, mcp("hello"), []string{"internal", "untrusted"})
	p.ran("mail.send", `{"to":"ann@books.example","body":"thanks"}`, mcp("sent"), nil)
	p.ran("mail.send", `{"to":"eve@evil.example","body":"thanks"}`, mcp("sent"), nil)
	p.refused("mail.send", `{"to":"mal@evil.example","body":"x"}`, "ask", "flow")
	p.refused("mail.send", `{"to":"mal@evil.example","body":"x"}`, "ask", "flow") // again, while it waits
	p.refused("mail.send", `{"to":"nobody@evil.example","body":"x"}`, "deny", "permit")
	log, err := store.OpenReadOnly(p.dir)
	p.must(err)
	defer log.Close()
	count := func(listed bool, unlisted, action string, since time.Time) Counted {
		t.Helper()
		keeps := int64(1 << 20)
		tape, err := Load(t.Context(), log, p.s.ID, 1000, &keeps)
		p.must(err)
		rules, err := policy.NewRules(0, 0, "", nil)
		p.must(err)
		classify := office(nil).Classify
		c := office(nil)
		c.Unlisted, c.Risk = unlisted, rules
		c.Classify = func(server, tool string) catalogue.Classification {
			class := classify(server, tool)
			class.Listed = listed || server == "mail"
			if tool == "lookup" {
				class.Action, class.Level = action, 2
			}
			return class
		}
		n, err := tape.Count(t.Context(), c, since)
		p.must(err)
		again, err := tape.Count(t.Context(), c, since)
		p.must(err)
		if again != n {
			t.Errorf("counted again it is %+v, not %+v", again, n)
		}
		return n
	}
	for name, c := range map[string]struct {
		got, want Counted
	}{
		"the flow rules":             {count(true, "deny", "", time.Time{}), Counted{6, 2, 0}},
		"asked about a tool":         {count(false, "ask", "", time.Time{}), Counted{6, 4, 0}},
		"once a session":             {count(false, "ask_once", "", time.Time{}), Counted{6, 3, 0}},
		"no entry, so refused":       {count(false, "deny", "", time.Time{}), Counted{6, 2, 2}},
		"for its risk":               {count(true, "deny", "delete_data", time.Time{}), Counted{6, 4, 0}},
		"a call that can be stopped": {count(true, "deny", "send_email", time.Time{}), Counted{6, 2, 0}},
		"nothing since tomorrow":     {count(true, "deny", "", time.Now().Add(24*time.Hour)), Counted{}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
	keeps := int64(1 << 20)
	tape, err := Load(t.Context(), log, p.s.ID, 2, &keeps)
	p.must(err)
	if entries, whole := tape.Recorded(); !tape.Cut() || len(entries) != 2 || !whole || entries[0].Kind != audit.Change {
		t.Errorf("cut to 2: %d, %v", len(entries), whole)
	}
}
