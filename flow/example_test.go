package flow_test

import (
	"encoding/json"
	"fmt"
	"log"

	"sallyport.example/flow"
)

// catalogue is what an operator might write in a configuration file.
func catalogue() (mail, web, pr flow.Operation) {
	labels := []flow.Label{"internal", "pii", "secret"}
	resolve := func(s flow.Spec) flow.Operation {
		op, err := flow.Resolve(s, labels)
		if err != nil {
			log.Fatal(err)
		}
		return op
	}
	mail = resolve(flow.Spec{ID: "mail.search_email", Name: "search_email", Sensitivity: flow.InternalSource, Effect: flow.Read})
	web = resolve(flow.Spec{ID: "web.web_search", Name: "web_search", Effect: flow.Read}) // external by default
	pr = resolve(flow.Spec{ID: "github.create_pr", Name: "github_create_pr", BlockedBy: &[]flow.Label{}})
	return mail, web, pr
}

// The words of an operator become an operation; words nobody knows are refused.
func ExampleResolve() {
	op, _ := flow.Resolve(flow.Spec{ID: "crm.sync", Name: "crm_sync", Sensitivity: flow.Both, Untrusted: true}, []flow.Label{"internal", "pii"})
	fmt.Println("emits", op.Emits, "blocked by", op.BlockedBy)

	_, err := flow.Resolve(flow.Spec{ID: "crm.sync", Name: "crm_sync", Emits: &[]flow.Label{"intrenal"}}, []flow.Label{"internal", "pii"})
	fmt.Println(err)
	// Output:
	// emits [internal untrusted] blocked by [internal pii]
	// operation "crm.sync": emits: "intrenal" is not in flow.labels; add it there or use one of internal, pii, untrusted
}

// Enforcement: ask before the call, raise before the result is released.
func ExampleJudge() {
	mail, web, _ := catalogue()
	var held []flow.Held

	fmt.Println(flow.Judge(web, held).Allowed)
	held = flow.Raise(held, mail, "call_7")
	d := flow.Judge(web, held)
	fmt.Println(d.Allowed, d.Reason)
	// Output:
	// true
	// false web_search is blocked for the rest of this session: mail.search_email (call_7) loaded internal data
}

// A detector found a card number in a result of an operation that isn't a source.
func ExampleRaise() {
	_, web, pr := catalogue()
	held := flow.Raise(nil, pr, "call_1", "pii")
	fmt.Println(held)
	fmt.Println(flow.Judge(web, held).Allowed)
	// Output:
	// [{pii github.create_pr call_1 }]
	// false
}

func ExampleManifest() {
	mail, web, pr := catalogue()
	ops := []flow.Operation{mail, web, pr}
	for _, t := range flow.Manifest(ops, nil) {
		fmt.Printf("%s: %s\n", t.Name, t.Consequence)
	}
	fmt.Println(flow.OrderingHint(ops))
	// Output:
	// search_email: calling this tool will block: web_search
	// web_search: none — safe to call before internal tools
	// github_create_pr: none — safe to call before internal tools
	// complete all external tool calls before calling internal_source tools
}

func ExampleSystemPrompt() {
	mail, web, pr := catalogue()
	fmt.Println(flow.SystemPrompt([]flow.Operation{mail, web, pr}, nil))
	// Output:
	// Tool ordering constraint (enforced by authorization layer):
	// - Tools marked [internal] will restrict your access to tools marked [external] for the remainder of this session.
	// - If your task requires both internal and external tools, call external tools first.
	// - Affected tools: search_email [internal] → blocks web_search
	// - Safe to call in any order: github_create_pr
}

func ExampleValidate() {
	mail, web, pr := catalogue()
	r, err := flow.Validate([]flow.Step{{Op: mail}, {Op: web}, {Op: pr}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	b, _ := json.MarshalIndent(r, "", "  ")
	fmt.Println(string(b))
	// Output:
	// {
	//   "valid": false,
	//   "violations": [
	//     {
	//       "at_step": 1,
	//       "tool": "web_search",
	//       "code": "flow.contaminated",
	//       "reason": "web_search is blocked after search_email (step 0) loads internal data",
	//       "suggestion": "move web_search before search_email"
	//     }
	//   ],
	//   "safe_ordering": [
	//     "web_search",
	//     "search_email",
	//     "github_create_pr"
	//   ]
	// }
}

// The search needs what the mail says, so no order is safe.
func ExampleValidate_impossible() {
	mail, web, _ := catalogue()
	r, err := flow.Validate([]flow.Step{{Op: mail}, {Op: web, After: []int{0}}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Impossible.Because)
	fmt.Println(r.Impossible.Ways)
	// Output:
	// no order is safe: search_email (step 0) must come before web_search (step 1), which needs its result; web_search (step 1) must come before search_email (step 0), which loads internal data
	// [ask a person about web_search (step 1)]
}
