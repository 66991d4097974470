package gateway_test

import (
	"fmt"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/planned"
	"sallyport.example/provenance"
)

// After internal reads, a read outside runs if it is given only the person's words, or small choices of which the accepted definition lists the
// texts; check and validate-plan say the same. Once an outsider has spoken only the person's words will do. Where there is a sealed plan, what
// carries nothing out may stand beside it.
func TestReadsThatCarryNothingOut(t *testing.T) {
	w := newTracedWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			if server == "web" && tool == "weather" {
				return catalogue.Classification{Listed: true, Named: true, ExternalIO: true, Output: provenance.TrustedOutput, Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Read},
					Roles: map[string]string{"city": "query", "units": "flag"}}
			}
			return inner(server, tool)
		}
	})
	raw := []byte(`{"description":"Weather.","inputSchema":{"properties":{"city":{"type":"string"},"units":{"enum":["metric","imperial"],"type":"string"}},"type":"object"},"name":"weather"}`)
	w.offer("web", call.Definition{Server: "web", Name: "weather", Kind: call.Tool, JSON: raw, Hash: call.HashBytes(raw)})
	const words, choice, data = `{"city":"San Marino"}`, `{"city":"San Marino","units":"metric"}`, `{"city":"hunter2"}`
	judge := func(p identity.Principal, args string, permitted bool) {
		t.Helper()
		a := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "web_weather", Arguments: []byte(args), Door: "mcp", DryRun: true})
		b := w.do(p, "web_weather", args, "")
		if a.Verdict.Decision != b.Verdict.Decision || (b.Verdict.Decision == fault.Permit) != permitted || !permitted && b.Verdict.Code != fault.FlowContaminated {
			t.Errorf("%s: %+v, checked %+v", args, b.Verdict, a.Verdict)
		}
	}
	for _, sealed := range []bool{false, true} {
		p := w.open("worker", "erin", "What is the weather in San Marino?")
		if sealed {
			w.sealedBy(true, p, `[{"tool":"mail_crm","justification":"to look up the weather"}]`)
		}
		for args, valid := range map[string]bool{words: true, choice: false, data: false} {
			r, err := w.g.ValidatePlan(t.Context(), p, p.ID, []byte(fmt.Sprintf(`{"planned_calls":["mail_crm",{"tool":"web_weather","arguments":%s}]}`, args)))
			if report, ok := r.(planned.Report); err != nil || !ok || report.Valid != valid {
				t.Errorf("%s: %+v %v", args, r, err)
			}
		}
		w.mustPermit(w.do(p, "mail_crm", `{}`, ""))
		judge(p, words, true)
		judge(p, choice, true)
		judge(p, data, false)
		judge(p, `{"city":"San Marino","units":"hunter2"}`, false)
		w.says("mail.find", structured(`{"mails":`+inbox+`}`))
		w.mustPermit(w.do(p, "mail_find", `{"q":"weather"}`, ""))
		judge(p, words, true)
		judge(p, choice, false)
	}
}
