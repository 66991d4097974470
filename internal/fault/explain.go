package fault

import "strings"

// Explain tells a model the verdict: what happened, why, and what it can do.
func (v Verdict) Explain() string {
	var b strings.Builder
	switch {
	case v.Status != "":
		b.WriteString(v.Status + ": ")
	case v.Decision == Ask:
		b.WriteString("Not done yet: ")
	case v.Stage == "act", v.Stage == "inspect", v.Stage == "outcome":
		b.WriteString("Failed: ")
	default:
		b.WriteString("Refused: ")
	}
	b.WriteString(v.Reason)
	for _, c := range v.Because {
		switch {
		case c.Label != "" && c.Operation != "":
			b.WriteString("\nThe session holds the label " + c.Label + " since " + c.Operation + " was called")
			if c.CallID != "" {
				b.WriteString(" (" + c.CallID + ")")
			}
			b.WriteString(".")
		case c.Label != "":
			b.WriteString("\nThe session holds the label " + c.Label + ".")
		case c.Detail != "" && (strings.Contains(v.Reason, c.Detail) || strings.HasSuffix(c.Detail, ": "+v.Reason)): // the reason has it
		case c.Detail != "" && c.Code != "" && v.Decision == Ask:
			b.WriteString("\nAsked by " + c.Detail)
		case c.Detail != "" && c.Code == DeclarationInvalid && strings.Contains(c.Detail, ": "):
			b.WriteString("\n- " + c.Detail)
		case c.Detail != "" && c.Code != "" && c.Code == v.Code:
			b.WriteString("\nThe field at fault: " + c.Detail + ".")
		case c.Detail != "" && c.CallID != "":
			b.WriteString("\nDetail: " + c.Detail + " (" + c.Operation + ", " + c.CallID + ").")
		case c.Detail != "":
			b.WriteString("\nDetail: " + c.Detail + ".")
		case c.Code != "":
			b.WriteString("\nBecause of " + string(c.Code) + ".")
		}
	}
	switch {
	case v.ApprovalID == nil:
	case v.Decision == Ask:
		b.WriteString("\nThe question to the person is " + *v.ApprovalID + ". Nothing runs by itself when it is answered: the very same call has to be made again.")
	default: // a person wants another call instead
		b.WriteString("\nThe question about the call that the person wants instead is " + *v.ApprovalID + ". It does not run by itself either.")
	}
	if len(v.Remedies) > 0 {
		b.WriteString("\nWhat you can do:")
		for _, r := range v.Remedies {
			b.WriteString("\n- " + r.Text)
		}
	}
	if v.Retriable {
		b.WriteString("\nThe same call can succeed later.")
	} else {
		b.WriteString("\nRepeating the same call will not help.")
	}
	b.WriteString("\nCode " + string(v.Code) + ", request " + v.RequestID + ".")
	return b.String()
}
