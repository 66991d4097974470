package console

import (
	"bytes"
	"context"
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/review"
)

// mustRead is how many characters of arguments an approver may answer without saying that they were read. In longer ones the dangerous part
// may stand at the end.
const mustRead = 2000

// approvalPage shows one question with everything that is known about it. What decides stands first; the rest is folded.
type approvalPage struct {
	desk.Question
	Problem *problem // why an answer was not taken
	Typed   typed    // that answer
	Oob     bool     // htmx fetches only the state and the form of the answer

	To              []string  // whom or what the call reaches, as people compare it
	ToWord          string    // before the first of them
	Words           string    // the beginning of what the person asked for
	Opened          time.Time // when the session was opened
	First           *review.Objection
	OtherObjections []review.Objection
	AllConfirmed    bool // there are values that decide, and each is confirmed
	Shown           []shownValue
	Letters         []letter      // long texts, drawn as what they are
	Picture         template.HTML // of where the values came from; "": there is nothing to draw
	OpenArguments   bool          // the exact arguments stand open: they are long, or not all of them stand above

	Exact      []piece
	Lookalikes lookalikes // texts that can be taken for other ones
	Characters int        // of the arguments
	MustRead   bool       // an approver has to say that they were read
	ToolPage   string     // its path, "" if the tool is gone
	Why        []reason   // the agent's justification, or its step of the plan
	Rules      []approval.Reason
	Others     []approval.Reason // what other stages found
	Sources    []shownValue      // where the values came from
	Difference []change          // from what they were before a person changed them
	NewLabels  []string          // labels that the session took on since it was asked

	MayNot     *problem       // why this person may not answer
	MayApprove bool           // this person may approve it now
	Operator   bool           // this person may stop the agent
	OwnVote    *approval.Vote // how this person has answered
	Own        bool           // this person asked for the call themselves
	Wrote      bool           // this person wrote the arguments, so that another one approves them
	CanApprove bool           // it can still be approved or put off
	CanReject  bool           // it can still be rejected
	Yes        int
	Alike      int       // questions that can be answered with it
	ChangesIn  int64     // seconds until the state changes by itself
	Until      []instant // times that it can be put off to
	Next       string    // the question to look at after this one
	Prev       string
}

// typed is an answer as the person typed it. It is shown again when it was not taken.
type typed struct {
	Act, Text string
	Read      bool
}

type reason struct{ What, Text string }

type instant struct{ Value, Name string }

func (c *Console) approval(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.showApproval(w, r, p, nil, typed{})
}

// showApproval shows the question that the path names. With an error it says why an answer to it was not taken.
func (c *Console) showApproval(w http.ResponseWriter, r *http.Request, p identity.Principal, refused error, as typed) {
	q, err := c.o.Gateway.Desk().Question(r.Context(), r.PathValue("id"))
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	d := c.approvalOf(r.Context(), q, p)
	d.Typed, d.Oob = as, r.Method == http.MethodGet && r.URL.Query().Get("part") == "state"
	status := http.StatusOK
	if refused != nil {
		d.Problem, status = c.refused(r, p, refused, "answer", "approval_id", q.ID)
		d.Problem.Title = "Your answer was not taken"
	}
	if d.Oob {
		c.part(w, "approval.live", d)
		return
	}
	c.show(w, r, p, view{template: "approval", title: q.Line, place: "/approvals", status: status, data: d})
}

func (c *Console) approvalOf(ctx context.Context, q desk.Question, p identity.Principal) approvalPage {
	now := c.o.Clock()
	d := approvalPage{Question: q, Exact: exactly(q.Arguments), Lookalikes: lookalikesOf(q.Destinations, q.Arguments), Characters: utf8.RuneCount(q.Arguments)}
	d.MustRead = d.Characters > mustRead
	ruled := slices.ContainsFunc(q.Reasons, func(r approval.Reason) bool { return strings.HasPrefix(r.Code, "risk.") })
	for _, r := range q.Reasons {
		switch {
		case r == approval.NoReason: // said above all else
		case r.Stage != "risk":
			d.Others = append(d.Others, r)
		case !ruled || strings.HasPrefix(r.Code, "risk."): // the rules that gave the risk say more than that it asks
			d.Rules = append(d.Rules, r)
		}
	}
	tools := c.o.Gateway.Catalogue().Tools()
	if slices.ContainsFunc(tools, func(t catalogue.Tool) bool { return t.Operation == q.Operation }) {
		d.ToolPage = "/tools/" + url.PathEscape(q.Operation)
	}
	d.Why = justification(q.Justification)
	d.reviewed()
	if q.Before != nil {
		d.Difference = difference(q.Before, q.Arguments)
	}
	for _, l := range q.SessionLabels {
		if !slices.Contains(q.Labels, l) {
			d.NewLabels = append(d.NewLabels, l)
		}
	}
	for _, v := range q.Votes {
		if v.Decision == approval.Approve {
			d.Yes++
		}
	}
	if err := c.o.Gateway.Desk().Entitled(voter(p), q.Approval); err != nil {
		d.MayNot = problemOf(err)
	}
	d.Own = d.MayNot == nil && c.o.Gateway.Desk().Own(voter(p), q.Approval)
	d.OwnVote, d.Wrote = voteOf(q.Approval, p.ID), q.ModifiedBy == p.ID
	d.CanReject = !q.State.Final() && q.State != approval.Expired
	d.CanApprove = d.CanReject && q.State != approval.Approved
	d.MayApprove = d.CanApprove && d.MayNot == nil && !d.Wrote && (d.OwnVote == nil || d.OwnVote.Decision != approval.Approve)
	d.Operator = p.Has(identity.Operator)
	d.ChangesIn = secondsToChange(q.Approval, now)
	for _, later := range []struct {
		name  string
		after time.Duration
	}{{"in 10 minutes", 10 * time.Minute}, {"in 1 hour", time.Hour}, {"in 4 hours", 4 * time.Hour}} {
		if now.Add(later.after).Before(q.ExpiresAt) {
			d.Until = append(d.Until, instant{later.after.String(), later.name})
		}
	}
	if q.State == approval.Pending {
		if pending, err := c.o.Gateway.Desk().Urgent(ctx, "", "", "", pageOfApprovals); err == nil { // without them there are no links to the neighbours
			if i := slices.IndexFunc(pending, func(o desk.Question) bool { return o.ID == q.ID }); i >= 0 {
				if i > 0 {
					d.Prev = pending[i-1].ID
				}
				if i+1 < len(pending) {
					d.Next = pending[i+1].ID
				}
			}
		}
		if alike, err := c.similarTo(ctx, q); err == nil {
			d.Alike = len(alike)
		}
	}
	return d
}

// secondsToChange is the time until the state changes without anybody's doing: by silence, at the end of a deferral, by expiry. 0 is never.
func secondsToChange(a approval.Approval, now time.Time) int64 {
	if a.State.Final() || a.State == approval.Expired {
		return 0
	}
	at := a.ExpiresAt
	for _, t := range []time.Time{a.SilenceAt, a.DeferredUntil} {
		if t.After(now) && t.Before(at) {
			at = t
		}
	}
	return max(1, int64((at.Sub(now)+time.Second-1)/time.Second))
}

// justification lists the agent's reasons under readable names of their fields. Raw JSON of another form is shown as it is.
func justification(raw json.RawMessage) []reason {
	if len(raw) == 0 {
		return nil
	}
	var given map[string]string
	if json.Unmarshal(raw, &given) != nil {
		return []reason{{"Reasons", string(raw)}}
	}
	var out []reason
	for _, field := range []reason{{"What it was asked", "user_request"}, {"What it does not know", "missing_knowledge"}, {"What it wants it for", "expected_use"}, {"Its step in the plan", "plan_step"}} {
		if text, ok := given[field.Text]; ok {
			out = append(out, reason{field.What, text})
			delete(given, field.Text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		out = append(out, reason{name, given[name]})
	}
	return out
}

// similarTo are the questions that can be answered together with q, itself included, in the order in which they were asked. They are of one
// session, which has only so many open.
func (c *Console) similarTo(ctx context.Context, q desk.Question) ([]desk.Question, error) {
	if q.Similar == "" {
		return []desk.Question{q}, nil
	}
	found, err := c.o.Gateway.Desk().Questions(ctx, approval.Pending, q.Session, "", maxSimilar)
	found = slices.DeleteFunc(found, func(o desk.Question) bool { return o.Similar != q.Similar })
	slices.Reverse(found)
	return found, err
}

// checkRead refuses a form that does not say that long arguments were read.
func checkRead(form func(string) string, field string, a approval.Approval) error {
	n := utf8.RuneCount(a.Arguments)
	if n > mustRead && form(field) != strconv.Itoa(n) {
		return fault.New(fault.RequestMalformed, "The arguments have %s characters: read them to the end, and tick that you did.", count(n))
	}
	return nil
}

func (c *Console) approve(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	form := r.PostForm.Get
	as := typed{Act: "approve", Text: form("comment"), Read: form("read") != ""}
	q, err := c.o.Gateway.Desk().Question(r.Context(), r.PathValue("id"))
	if err == nil {
		err = checkRead(form, "read", q.Approval)
	}
	if err == nil {
		err = checkTicks(form, q)
	}
	c.answer(w, r, p, err, as, desk.Response{Decision: approval.Approve, Reason: form("comment")})
}

func (c *Console) reject(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	text := r.PostForm.Get("reason")
	if choice := r.PostForm.Get("choice"); choice != "" { // a button with a reason of its own
		text = strings.TrimSpace(choice + ". " + text)
	}
	c.answer(w, r, p, nil, typed{Act: "reject", Text: text}, desk.Response{Decision: approval.Reject, Reason: text})
}

// deferral is the answer of a form that postpones a request.
func (c *Console) deferral(r *http.Request) (a desk.Response, err error) {
	a.Decision = approval.Deferral
	if until := r.PostForm.Get("until"); until != "" {
		d, bad := time.ParseDuration(until)
		if bad != nil || d <= 0 {
			err = fault.New(fault.RequestMalformed, "Choose one of the times.")
		}
		a.Until = c.o.Clock().Add(d).UTC()
	}
	return a, err
}

func (c *Console) putOff(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	a, err := c.deferral(r)
	c.answer(w, r, p, err, typed{Act: "defer"}, a)
}

// answer passes a person's answer on, under the digest of the page that they saw, and goes back to the queue. If the answer is not taken it
// shows the question again, as it is now.
func (c *Console) answer(w http.ResponseWriter, r *http.Request, p identity.Principal, err error, as typed, a desk.Response) {
	a.Approval, a.Digest = r.PathValue("id"), r.PostForm.Get("digest")
	if err == nil {
		_, err = c.o.Gateway.Desk().Respond(r.Context(), voter(p), a)
	}
	if err != nil {
		c.showApproval(w, r, p, err, as)
		return
	}
	http.Redirect(w, r, "/approvals?"+url.Values{"done": {a.Approval}}.Encode(), http.StatusSeeOther)
}

// modifyPage shows the arguments in a form in which they can be changed.
type modifyPage struct {
	desk.Question
	Problem      *problem
	Text, Reason string
}

func (c *Console) modifyForm(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	q, err := c.o.Gateway.Desk().Question(r.Context(), r.PathValue("id"))
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	c.show(w, r, p, view{template: "modify", title: "Change the arguments of " + q.Operation, place: "/approvals", data: modifyPage{Question: q, Text: editable(q.Arguments)}})
}

// editable is the same JSON, indented, with everything escaped that a text field would not show.
func editable(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return ""
	}
	var out strings.Builder
	for _, r := range b.String() {
		if r < 0x7f || display.Visible(r) {
			out.WriteRune(r)
		} else {
			out.Write(display.EscapeData([]byte(string(r)), false))
		}
	}
	return out.String()
}

func (c *Console) modify(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	form, id := r.PostForm.Get, r.PathValue("id")
	digest := form("digest")
	var next desk.Question
	var err error
	if digest == "" { // the gateway would take it to mean what is asked now
		err = fault.New(fault.ApprovalMismatch, "The form does not say what was shown.").Try("Look at the request again.")
	} else {
		next, err = c.o.Gateway.Desk().Modify(r.Context(), voter(p), desk.Modification{
			Approval: id, Digest: digest, Arguments: json.RawMessage(form("arguments")), Reason: form("reason"),
		})
	}
	if err == nil {
		http.Redirect(w, r, "/approvals/"+next.ID, http.StatusSeeOther)
		return
	}
	if f := fault.Of(err); f.Code != fault.RequestMalformed { // the request is at fault, not what was typed
		c.showApproval(w, r, p, err, typed{Act: "modify"})
		return
	}
	q, bad := c.o.Gateway.Desk().Question(r.Context(), id)
	if bad != nil {
		c.fail(w, r, p, bad)
		return
	}
	refused := problemOf(err)
	refused.Title = "The change was not taken"
	c.show(w, r, p, view{template: "modify", title: "Change the arguments of " + q.Operation, place: "/approvals", status: http.StatusBadRequest,
		data: modifyPage{Question: q, Problem: refused, Text: form("arguments"), Reason: form("reason")}})
}
