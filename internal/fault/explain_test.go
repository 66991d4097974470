package fault_test

import (
	"testing"

	"sallyport.example/internal/fault"
)

// TestExplain reads verdicts as a model does.
func TestExplain(t *testing.T) {
	id := "appr_7"
	ask := fault.Refuse("risk", fault.ApprovalRequired, "comm_exec is of risk HIGH, so a person must decide.", fault.Remedy{Kind: "approve", Text: "A person has been asked. Make the same call again later."})
	ask.Decision, ask.ApprovalID = fault.Ask, &id
	ask.Because = []fault.Because{
		{Code: fault.ApprovalRequired, Detail: "risk: " + ask.Reason}, {Code: fault.ApprovalRequired, Detail: "listed: nobody classified it."},
	}
	traced := fault.Refuse("flow", fault.ApprovalRequired, "to is not confirmed; mail.find (call_1) loaded untrusted data")
	traced.Decision = fault.Ask
	traced.Because = []fault.Because{
		{Label: "untrusted", Operation: "mail.find", CallID: "call_1"}, {Detail: "to is not confirmed"},
		{Operation: "mail.people", CallID: "call_2", Detail: "cc is from record 3 of mail.people, which the person's request names"},
		{Code: fault.FlowUntrusted, Detail: "flow: " + traced.Reason}, {Code: fault.ApprovalRequired, Detail: "risk: it is of risk MEDIUM"},
	}
	inline := fault.Refuse("declare", fault.DeclarationInvalid, "justification.expected_use: is vague: say what for")
	inline.Because = []fault.Because{{Code: fault.DeclarationInvalid, Detail: "justification.expected_use"}}
	carried := fault.Refuse("flow", fault.FlowContaminated, "It carries mail.")
	carried.Because = []fault.Because{{Operation: "mail.read", CallID: "call_3", Detail: "the arguments carry text from mail.read"}}
	for _, c := range []struct {
		name string
		v    fault.Verdict
		want string
	}{
		{"ask", ask, `Not done yet: comm_exec is of risk HIGH, so a person must decide.
Asked by listed: nobody classified it.
The question to the person is appr_7. Nothing runs by itself when it is answered: the very same call has to be made again.
What you can do:
- A person has been asked. Make the same call again later.
The same call can succeed later.`},
		{"traced", traced, `Not done yet: to is not confirmed; mail.find (call_1) loaded untrusted data
The session holds the label untrusted since mail.find was called (call_1).
Detail: cc is from record 3 of mail.people, which the person's request names (mail.people, call_2).
Asked by risk: it is of risk MEDIUM
The same call can succeed later.`},
		{"a field", fault.RefuseErr("declare", fault.New(fault.DeclarationInvalid, "This session has no such declaration.").At("declaration_id").Try("Declare it first.")),
			`Refused: This session has no such declaration. Declare it first.
The field at fault: declaration_id.
Repeating the same call will not help.`},
		{"in the call", inline, `Refused: justification.expected_use: is vague: say what for
Repeating the same call will not help.`},
		{"carried", carried, `Refused: It carries mail.
Detail: the arguments carry text from mail.read (mail.read, call_3).
Repeating the same call will not help.`},
	} {
		c.v.RequestID = "req_1"
		if got, want := c.v.Explain(), c.want+"\nCode "+string(c.v.Code)+", request req_1."; got != want {
			t.Errorf("%s:\n%s\nnot\n%s", c.name, got, want)
		}
	}
}
