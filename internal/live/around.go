package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"sallyport.example/client"
	"sallyport.example/internal/clients"
)

// This file tries what stands around the corridor: the listeners, people's commands, the log.

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// request sends a request as somebody who uses no client of ours, and returns the status and the beginning of the answer.
func request(ctx context.Context, method, address, token string, body []byte, change func(*http.Request)) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if change != nil {
		change(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, string(b), err
}

// turnedAway is the row of a request that has to be refused with one of the codes.
func turnedAway(what string, status int, text string, err error, codes ...string) Row {
	a := answer{done: status < 400, code: fmt.Sprint(status), reason: text[:min(len(text), 200)]}
	for _, code := range codes {
		if strings.Contains(text, `"`+code+`"`) {
			a.code = code
		}
	}
	return refused(what, a, err, codes...)
}

// credentials sends requests to both sides without a token, and to each side with a token of the other.
func (p *prober) credentials(ctx context.Context) Row {
	s, err := p.open(ctx, p.agent.TrialID, "planning")
	if err != nil {
		return untried(err)
	}
	people, agents := p.o.Admin+"/v1/sessions", p.o.Agents+"/v1/session/self/manifest"
	var rows []Row
	for _, try := range []struct{ what, address, token string }{
		{"a list of sessions without a token", people, ""},
		{"a list of sessions with a token that nobody made", people, "spt_person_" + strings.Repeat("a", 43)},
		{"a list of sessions with the token of a session", people, s.token},
		{"the manifest of a session without a token", agents, ""},
		{"the manifest of a session with a person's token", agents, p.o.Person},
	} {
		status, text, err := request(ctx, http.MethodGet, try.address, try.token, nil, nil)
		rows = append(rows, turnedAway(try.what, status, text, err, "credential.missing", "credential.wrong_kind"))
	}
	stop := p.o.Admin + "/agents/kill-switch/enable/" + p.agent.TrialID
	status, text, err := request(ctx, http.MethodPost, stop, s.token, []byte(`{"reason":"canary"}`), nil)
	rows = append(rows, turnedAway("the kill switch with the token of a session", status, text, err, "credential.missing", "credential.wrong_kind"))
	return together("both sides refused requests without a token, with a made-up token, and with a token of the other side", rows...)
}

// strangers sends what a page of another site could: requests for another host name that leads here, and requests from another origin.
func (p *prober) strangers(ctx context.Context) Row {
	address := p.o.Admin + "/v1/sessions"
	status, text, err := request(ctx, http.MethodGet, address, p.o.Person, nil, func(r *http.Request) { r.Host = "doctor.invalid" })
	host := turnedAway("a request for another host", status, text, err, "request.malformed")
	status, text, err = request(ctx, http.MethodGet, address, p.o.Person, nil, func(r *http.Request) { r.Header.Set("Origin", "https://doctor.invalid") })
	return together("requests for another host name, and requests from a page of another origin, were refused", host, turnedAway("a request of another origin's page", status, text, err, "request.malformed"))
}

func (p *prober) parse(ctx context.Context) Row {
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	var rows []Row
	for what, arguments := range map[string]string{
		"a call that names an argument twice":                     `{"to":"a","to":"b"}`,
		"a call whose arguments go on after their end":            `{"to":"a"}{"to":"b"}`,
		"a call with two arguments that differ in their case":     `{"to":"a","TO":"b"}`,
		"a call with text that is not UTF-8":                      "{\"to\":\"\xff\"}",
		"a call whose arguments are nested a hundred levels deep": `{"to":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
	} {
		status, text, err := request(ctx, http.MethodPost, p.o.Agents+"/v1/session/self/calls", s.token, []byte(`{"tool":"doctor_send","arguments":`+arguments+`}`), nil)
		rows = append(rows, saidNo(what, status, text, err, "request.malformed"))
	}
	return together("arguments that can be read in two ways were refused: request.malformed", rows...)
}

// saidNo is turnedAway for a call, whose refusal may also be a verdict with the status 200.
func saidNo(what string, status int, text string, err error, codes ...string) Row {
	if status == http.StatusOK && !strings.Contains(text, `"decision":"permit"`) {
		status = http.StatusBadRequest
	}
	return turnedAway(what, status, text, err, codes...)
}

// tooLarge is more than a call may have, in bytes.
const tooLarge = 32 << 20

func (p *prober) size(ctx context.Context) Row {
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	body := []byte(`{"tool":"doctor_read","arguments":{"text":"` + strings.Repeat("x", tooLarge) + `"}}`)
	status, text, err := request(ctx, http.MethodPost, p.o.Agents+"/v1/session/self/calls", s.token, body, nil)
	if err != nil && ctx.Err() == nil { // the gateway may close the connection before all of it was sent
		if status, _, alive := request(ctx, http.MethodGet, p.o.Admin+"/readyz", "", nil, nil); alive == nil && status == http.StatusOK {
			return Row{State: OK, Detail: fmt.Sprintf("a call of %d MiB was cut off", tooLarge>>20)}
		}
	}
	return saidNo(fmt.Sprintf("a call of %d MiB", tooLarge>>20), status, text, err, "request.malformed")
}

// commands tries people's commands from inside a governed session: with a session's token in the environment, and without it below a process that has one.
//
// The token is one that nobody made: other programs of this user can read it in the environment.
func (p *prober) commands(ctx context.Context) Row {
	command := append(append([]string{}, p.o.Command...), "sessions", "list")
	inherited := without(os.Environ(), clients.EnvToken, clients.EnvURL)
	held := append(inherited, clients.EnvToken+"=spt_session_"+strings.Repeat("a", 32))
	shell, err := exec.LookPath("sh")
	tries := []struct {
		what    string
		command []string
	}{{"a person's command with the session's token", command}}
	if err == nil && hasProc() {
		tries = append(tries, struct {
			what    string
			command []string
		}{"a person's command below a process with the session's token", append([]string{shell, "-c", `unset ` + clients.EnvToken + `; "$@"; exit $?`, "sh"}, command...)})
	}
	var rows []Row
	for _, try := range tries {
		cmd := exec.CommandContext(ctx, try.command[0], try.command[1:]...)
		cmd.Env = held
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil:
			rows = append(rows, refused(try.what, answer{done: true}, nil))
		case !errors.As(err, &exit) || !bytes.Contains(out, []byte("refused inside a governed session")):
			rows = append(rows, Row{State: Untried, Detail: fmt.Sprintf("%s failed for another reason: %v: %.200s", try.what, err, out)})
		default:
			rows = append(rows, Row{State: OK})
		}
	}
	return together("a program in a governed session could not use people's commands, with the session's token in its environment or without it", rows...)
}

// confirmation tries a people's command without a terminal. It would change nothing: there is no such session.
func (p *prober) confirmation(ctx context.Context) Row {
	if p.here.Confirm == "" {
		return unused("people.confirm is not set")
	}
	command := append(append([]string{}, p.o.Command...), "sessions", "phase", "sess_doctor", "planning", "--reason", reason)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil && bytes.Contains(out, []byte("This needs your confirmation")):
		return Row{State: OK, Detail: "a people's command without a terminal was refused"}
	case err != nil && bytes.Contains(out, []byte("sess_doctor")):
		return Row{State: Failed, Detail: "a people's command without a terminal was taken", Remedy: "run the gateway as the user who gives the commands"}
	}
	return Row{State: Untried, Detail: fmt.Sprintf("a people's command without a terminal failed for another reason: %v: %.200s", err, out)}
}

func hasProc() bool {
	_, err := os.Stat("/proc/self/environ")
	return err == nil
}

func without(environ []string, names ...string) (kept []string) {
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		drop := false
		for _, n := range names {
			drop = drop || n == name
		}
		if !drop {
			kept = append(kept, v)
		}
	}
	return kept
}

// log makes a call and finds it in the log, and verifies the log.
func (p *prober) log(ctx context.Context) Row {
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	if a, err := s.call(ctx, "doctor_secret", "{}"); err != nil || !a.done {
		return Row{State: Untried, Detail: fmt.Sprintf("no call could be made: %s %v", a.reason, err)}
	}
	page, err := p.o.People.Audit(ctx, client.AuditQuery{Session: s.id, Operation: "doctor.secret", Limit: 10})
	if err != nil {
		return untried(fmt.Errorf("the log can't be read (run it as a person with the role auditor or admin): %w", err))
	}
	found := map[string]bool{}
	for _, e := range page.Entries {
		found[e.Kind] = true
	}
	if !found["intent"] || !found["outcome"] {
		return Row{State: Failed, Detail: "the intent and the outcome of a call that was just made are not in the log"}
	}
	problems, size, err := p.o.Log(ctx)
	switch {
	case err != nil:
		return untried(err)
	case len(problems) > 0:
		return Row{State: Failed, Detail: "the log is not as it was signed: " + problems[0], Remedy: "sallyport audit verify shows all of it; keep the data directory as it is"}
	}
	return Row{State: OK, Detail: fmt.Sprintf("the intent and the outcome of a call are on record, and %d entries are as they were signed", size)}
}

func (p *prober) anchor(ctx context.Context) Row {
	a, err := p.o.People.Anchor(ctx)
	switch {
	case err != nil:
		return untried(err)
	case a.State == "not configured":
		return unused("audit.anchor is not set, so nobody sees that the log was cut back together with its key")
	case a.State == "ok" || a.State == "late":
		return Row{State: OK, Detail: "the log goes on from what is kept outside: " + a.Text}
	}
	return Row{State: Failed, Detail: a.Text, Remedy: "see docs/operations.md, \"The anchor\""}
}
