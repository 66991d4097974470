package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/httpapi"
)

// types are the schemas of the server's document and what they are here. "-" is a request that is built from a method's arguments, or
// a list that a method takes apart.
var types = map[string]any{
	"AlertList": "-", "Alert": client.Alert{}, "AlertInvolved": client.AlertInvolved{}, "CommentBody": "-", "Security": client.Security{}, "Figure": client.Figure{},
	"BreakerList": "-", "BreakerState": client.Breaker{}, "BreakerTest": client.BreakerTest{},
	"ReviewReview": client.Review{}, "ReviewObjection": client.Objection{}, "ReviewValue": client.ReviewValue{}, "ReviewSighting": client.Sighting{},
	"GatewayStatus": client.Session{}, "SessionPlan": client.Plan{}, "SessionStep": client.PlanStep{}, "FlowHeld": client.Held{},
	"OpenBody": client.OpenSession{}, "OpenedSession": client.OpenedSession{}, "GatewayManifest": client.Manifest{}, "AgentDegraded": client.Degraded{}, "FlowTool": client.ManifestTool{},
	"PlannedReport": client.PlanReport{}, "FlowViolation": client.Violation{}, "FlowImpossible": client.Impossible{}, "PlannedAsk": client.PlanAsk{},
	"ProvenanceSource": client.StepSource{}, "ProvenanceDone": client.StepDone{}, "ProvenanceRecord": client.StepRecord{},
	"GatewayPlanAnswer": client.PlanAnswer{}, "GatewayWords": client.AddedWords{}, "GatewayPlanStep": client.JudgedStep{},
	"FaultVerdict": client.Verdict{}, "FaultBecause": client.Because{}, "FaultRemedy": client.Remedy{},
	"DeclareBody": client.NewDeclaration{}, "DeclareJustification": client.Justification{}, "GatewayDeclareAnswer": client.DeclareAnswer{},
	"DeclareDeclaration": client.Declaration{}, "DeskQuestion": client.Approval{}, "ApprovalReason": client.ApprovalReason{}, "ApprovalFinding": client.Finding{}, "ApprovalVote": client.Vote{},
	"ApprovalPage": client.ApprovalPage{}, "DeskVoteCounts": client.VoteCounts{}, "DeskEarlier": client.Earlier{}, "DeskDescribed": client.Described{}, "AnchorStatus": client.Anchor{}, "ModeStatus": client.Mode{}, "GatewayObserved": client.Observed{}, "SessionOpening": client.PhaseOpening{}, "SessionNext": client.OrderedNext{}, "GatewayNextSession": client.NextSession{}, "HookKey": client.HookKey{}, "StandingQuarantine": client.Quarantine{}, "SignInLink": client.SignInLink{}, "BatchItem": client.ApprovalRef{}, "DeskBatched": client.Batched{},
	"CallAnswer": client.CallAnswer{}, "CallOutcome": client.CallOutcome{}, "SessionPage": client.SessionPage{}, "StoredList": client.StoredList{}, "StoredMark": client.StoredLabels{}, "SessionDamaged": client.DamagedSession{},
	"TrialHere": client.Trial{}, "TrialAgent": client.TrialAgent{}, "Switch": client.Switch{}, "Replica": client.Replica{}, "KillStatus": client.KillStatus{}, "Agent": client.Agent{}, "ApprovedStanding": client.AgentApproval{}, "QuotaStatus": client.Quota{}, "LimitThrottle": client.Throttle{}, "QuotaList": "-", "AgentAmounts": "-", "AgentCalls": "-", "DeployedReport": client.Deployment{}, "DeployedBox": client.DeploymentBox{}, "DeployedDecided": client.FoundViolation{}, "ApprovedVote": client.AgentVote{}, "ExportApprovalsBody": "-", "ImportApprovalsBody": "-", "ApprovedBundle": client.ApprovalBundle{}, "ApprovedImported": client.ImportedApprovals{}, "ApprovedTakenOver": client.ImportedApproval{}, "ApprovedDifference": client.AgentDifference{}, "DiffField": client.ChangedValue{},
	"ThreatSuspicion": client.Suspicion{}, "CatalogueAcceptance": client.Acceptance{}, "Accepted": client.Accepted{},
	"CallInputs": client.Inputs{}, "CallInputFile": client.InputFile{}, "CallInputFolder": client.InputFolder{}, "CatalogueTool": client.Tool{}, "ServerStatus": client.Server{}, "Token": client.Token{}, "TokenBody": client.NewToken{}, "CreatedToken": client.CreatedToken{},
	"AuditPage": client.AuditPage{}, "AuditArchived": client.ArchivedEntries{}, "Searched": client.Searched{}, "AuditEntry": client.Entry{}, "AuditPayload": client.Payload{}, "AuditRow": client.Row{}, "EntryLeaf": client.EntryLeaf{},
	"Proof": struct {
		client.Inclusion
		From     int64
		FromRoot string `json:"from_root_hash"`
	}{}, "Configuration": client.Configuration{}, "ReloadRefusal": client.ReloadRefusal{}, "Reloaded": client.Reloaded{}, "ChangedField": client.ChangedField{}, "Problem": client.Problem{}, "FieldError": client.FieldError{},

	"RunRun": client.Run{}, "RunChecked": client.Citation{}, "RunConfirmed": client.ConfirmedClaim{}, "RunQuality": client.Quality{}, "RunnerFigures": client.RunFigures{}, "RunPage": client.RunPage{}, "RunBody": "-", "RunRecommendation": client.Recommendation{}, "RunRecommended": client.RecommendedCall{}, "RecommendationPage": client.RecommendationPage{}, "Recommended": client.Recommended{}, "RefuseBody": "-", "PutOffBody": "-", "OutputBody": "-",
	"KnowledgeDocument": client.KnowledgeDocument{}, "KnowledgeMetadata": client.KnowledgeMetadata{}, "KnowledgePage": client.KnowledgePage{}, "KnowledgeHistory": client.KnowledgeHistory{}, "KnowledgeEvent": client.KnowledgeEvent{},
	"AddBody": client.NewDocument{}, "FetchBody": client.FetchDocument{}, "Fetched": client.FetchedDocument{}, "VersionBody": client.NewVersion{}, "KnowledgeSnapshot": client.KnowledgeSnapshot{}, "SnapshotList": client.KnowledgeSnapshots{}, "KnowledgeSpan": client.Span{},
	"KnowledgeDiff": client.KnowledgeDiff{}, "LibraryLine": client.KnowledgeLine{}, "LibraryFound": client.KnowledgeFound{}, "LibraryHit": client.KnowledgeHit{}, "LibraryEmbedding": client.KnowledgeEmbedding{}, "WithdrawBody": client.KnowledgeWithdrawal{}, "ClaimsAnswer": client.ClaimAnswer{}, "ClaimsSource": client.ClaimSource{}, "ClaimBody": "-", "KnowledgeReaders": client.KnowledgeReaders{}, "Erasure": client.Erasure{},

	"LabelsBody": "-", "SearchBody": "-", "AgentList": "-", "ApproveAgentBody": "-", "ToolList": "-", "ServerList": "-", "TokenList": "-", "CallBody": "-", "ApproveBody": "-", "RejectBody": "-", "DeferBody": "-", "ModifyBody": "-", "AsideBody": "-", "BatchBody": "-", "BatchAnswer": "-", "ValidateBody": "-", "PlanBody": "-",
	"TrialBody": "-", "PhaseBody": "-", "ReleaseBody": "-", "ReasonBody": "-", "DigestBody": "-", "WordsBody": "-", "NextBody": "-", "AcceptBody": "-", "AcceptAllBody": "-", "AcceptedList": "-",
	// The declaration is handed on as it is.
	"AgentDeclaration": "-", "AgentDataSources": "-", "AgentPermissions": "-", "AgentQuotas": "-", "AgentSystemPrompt": "-", "AgentCost": "-", "AgentMitigation": "-", "AgentKnowledge": "-", "AgentAction": "-", "AgentRun": "-",
}

// notMine are fields of answers that the client leaves out.
var notMine = map[string][]string{"Problem": {"type"}}

func fields(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = strings.ToLower(f.Name)
		}
		all[name] = f.Type
	}
	return all
}

// fits tells whether a JSON schema's type can be what the Go type holds.
func fits(schema map[string]any, t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var words []string
	switch v := schema["type"].(type) {
	case string:
		words = []string{v}
	case []any:
		for _, w := range v {
			words = append(words, w.(string))
		}
	}
	is := func(w string) bool { return slices.Contains(words, w) }
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return true
	case schema["$ref"] != nil:
		return t.Kind() == reflect.Struct
	case t == reflect.TypeFor[time.Time]():
		return is("string") && schema["format"] == "date-time"
	case t == reflect.TypeFor[[]byte]():
		return is("string")
	}
	switch t.Kind() {
	case reflect.String:
		return is("string")
	case reflect.Bool:
		return is("boolean")
	case reflect.Int, reflect.Int64:
		return is("integer")
	case reflect.Float64:
		return is("number")
	case reflect.Slice:
		return is("array")
	case reflect.Map:
		return is("object")
	}
	return false
}

// TestFields compares every type of the client with the server's own description of it, field by field, both ways.
func TestFields(t *testing.T) {
	server := httptest.NewServer(httpapi.New(new(gateway.Gateway), nil, httpapi.Options{}).Admin())
	defer server.Close()
	resp, err := http.Get(server.URL + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]map[string]any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	for name, schema := range doc.Components.Schemas {
		mine, ok := types[name]
		if !ok {
			t.Errorf("the server has a type %s that this test does not know", name)
			continue
		}
		if mine == "-" {
			continue
		}
		have := fields(reflect.TypeOf(mine))
		for field, s := range schema.Properties {
			ft, ok := have[field]
			if !ok {
				if !slices.Contains(notMine[name], field) {
					t.Errorf("%s: the client lacks %s", name, field)
				}
				continue
			}
			if !fits(s, ft) {
				t.Errorf("%s.%s is %v there and %v here", name, field, s, ft)
			}
		}
		for field := range have {
			if schema.Properties[field] == nil {
				t.Errorf("%s: the server does not know %s", name, field)
			}
		}
	}
	for name := range types {
		if _, ok := doc.Components.Schemas[name]; !ok {
			t.Errorf("the server has no type %s any more; it has %v", name, slices.Sorted(maps.Keys(doc.Components.Schemas)))
		}
	}
}

// TestNoInternals: nothing of the exported API is of an internal package, so that other modules can use it.
func TestNoInternals(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(where string, r reflect.Type)
	walk = func(where string, r reflect.Type) {
		if seen[r] {
			return
		}
		seen[r] = true
		if strings.HasPrefix(r.PkgPath(), "sallyport.example/") && r.PkgPath() != "sallyport.example/client" {
			t.Errorf("%s is a %v", where, r)
		}
		switch r.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			walk(where, r.Elem())
		case reflect.Func:
			for i := range r.NumIn() {
				walk(where, r.In(i))
			}
			for i := range r.NumOut() {
				walk(where, r.Out(i))
			}
		case reflect.Struct:
			if r.PkgPath() == "sallyport.example/client" {
				for i := range r.NumField() {
					walk(where+"."+r.Field(i).Name, r.Field(i).Type)
				}
			}
		}
	}
	c := reflect.TypeFor[*client.Client]()
	for i := range c.NumMethod() {
		walk(c.Method(i).Name, c.Method(i).Type)
	}
	if len(seen) < 40 {
		t.Fatalf("only %d types were looked at", len(seen))
	}
}

func TestNew(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:7576", "ftp://x", "http://", "http://user:pw@127.0.0.1", "http://127.0.0.1?x", "http://127.0.0.1#x", "http://[::1"} {
		if _, err := client.New(bad, "t"); err == nil {
			t.Errorf("%q is no address", bad)
		}
	}
	if _, err := client.New("http://127.0.0.1:1", "token\n"); err == nil {
		t.Error("a token with a line end")
	}
}

// TestHostileServer: whatever answers, the client is bounded, follows nothing and says what was wrong.
func TestHostileServer(t *testing.T) {
	var answer atomic.Pointer[http.HandlerFunc]
	next := func(h http.HandlerFunc) { answer.Store(&h) }
	var leaked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Add(1) }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	defer server.Close()
	c, err := client.New(server.URL+"/", "spt_person_x")
	if err != nil {
		t.Fatal(err)
	}
	problem := func(ct, body string, status int) *client.Problem {
		t.Helper()
		next(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", ct)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body)) // the client may hang up
		})
		_, err := c.Servers(t.Context())
		var p *client.Problem
		if !errors.As(err, &p) {
			t.Fatalf("%d %s: %v", status, ct, err)
		}
		return p
	}
	const full = `{"status":200,"code":"role.missing","title":"Forbidden","detail":"No.","field":"x","remedy":"Ask.","request_id":"req_1","errors":[{"field":"x","problem":"bad"}]}`
	p := problem("application/problem+json", full, 403)
	if p.Status != 403 || p.Code != "role.missing" || p.RequestID != "req_1" || p.Error() != "x: No. Ask." || len(p.Errors) != 1 {
		t.Errorf("problem %+v", p)
	}
	for _, odd := range []string{"", "<html>", "{", `{"status":"x"}`, strings.Repeat("x", 1<<20)} {
		for _, ct := range []string{"application/problem+json", "text/html", ""} {
			if p := problem(ct, odd, 502); p.Status != 502 || !strings.Contains(p.Error(), "502 Bad Gateway") || p.Code != "" {
				t.Errorf("%q as %q: %+v", odd[:min(9, len(odd))], ct, p)
			}
		}
	}
	next(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	if _, err := c.Servers(t.Context()); err == nil || leaked.Load() > 0 {
		t.Errorf("followed a redirect: %v", err)
	}
	next(func(w http.ResponseWriter, _ *http.Request) {
		b := []byte(strings.Repeat(" ", 1<<20))
		for range 80 {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	})
	if _, err := c.Servers(t.Context()); !errors.Is(err, client.ErrTooLarge) || !strings.Contains(err.Error(), "over") {
		t.Errorf("an endless answer: %v", err)
	}
	next(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
	if _, err := c.Servers(t.Context()); err == nil || !strings.Contains(err.Error(), "not this version of Sallyport") {
		t.Errorf("another program: %v", err)
	}
	next(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	var gone *client.Unreachable
	if _, err := c.Servers(t.Context()); !errors.As(err, &gone) {
		t.Errorf("cut off: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Servers(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	next(func(w http.ResponseWriter, r *http.Request) {
		b, _ := json.Marshal(client.Session{SessionID: r.RequestURI}) // of strings
		_, _ = w.Write(b)
	})
	var paths []string
	for _, id := range []string{"", ".", "..", "a/b", "a?b", "a#b"} {
		s, err := c.Session(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, s.SessionID)
	}
	if want := []string{"/v1/sessions/-", "/v1/sessions/-", "/v1/sessions/-", "/v1/sessions/a%2Fb", "/v1/sessions/a%3Fb", "/v1/sessions/a%23b"}; !slices.Equal(paths, want) {
		t.Errorf("paths %v", paths)
	}
}
