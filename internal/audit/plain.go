package audit

import (
	"encoding/json"
	"strings"
)

// doing are the names of actions for people. Each says what was done; who did it stands beside it.
var doing = map[string]string{
	"agent.approve": "declaration approved", "agent.export": "approval exported", "agent.change": "declaration changed", "agent.quarantine": "agent quarantined", "agent.restore": "agent taken out of quarantine",
	"alert.open": "alert raised", "alert.acknowledge": "alert acknowledged", "alert.resolve": "alert resolved",
	"agent.degraded": "agent degraded", "agent.whole": "agent no longer degraded", "breaker.open": "circuit breaker opened", "breaker.closed": "circuit breaker closed",
	"anchor.move": "anchor moved", "approval.approve": "request approved", "approval.ask": "people asked", "approval.defer": "request postponed",
	"approval.drill": "people asked", "approval.expire": "request ran out of time", "approval.modify": "request changed", "approval.reject": "request rejected",
	"approval.supersede": "request withdrawn", "audit.archive": "part of the log archived", "check": "asked in advance", "claim": "claim checked", "claim.judge": "model asked about a claim",
	"config.change": "configuration changed", "config.reload": "configuration read again", "declare": "need declared", "evidence.full": "provenance is full",
	"evidence.forget": "provenance deleted", "gateway.start": "gateway started", "kill.disable": "stopped", "kill.enable": "let work again",
	"knowledge.erase": "document erased", "knowledge.erase_ask": "erasure asked for", "knowledge.embed": "text sent for an embedding", "knowledge.fetch": "document fetched", "knowledge.index": "knowledge index built", "knowledge.pin": "snapshot chosen", "session.prompt": "system message settled",
	"knowledge.snapshot": "snapshot made", "plan.approve": "plan approved", "plan.reject": "plan rejected", "plan.submit": "plan submitted", Folded: "many refusals",
	"screening.judge": "model asked about a result", "screening.verdict": "screening judged", "segment.seal": "file of the log sealed", "segment.start": "file of the log begun", "server.seen": "server looked at", "server.words": "words of a server screened", "session.close": "session closed",
	"session.definitions": "definitions shown", "session.hook_key": "prompt hook connected", "session.next": "fresh session allowed", "session.open": "session opened",
	"session.phase": "phase changed", "session.release": "labels released", "session.remove_files": "files removed", "session.taint": "labels added",
	"session.words": "person’s words added", Adopt: "rows taken over", "state.more": "more rows", "stored.label": "labels kept with a record", "stored.release": "stored labels released",
	"token.create": "token made", "token.revoke": "token revoked", "tool.accept": "definition accepted", "tool.launch": "start of a server accepted",
	"tool.quarantine": "changed definition set aside",
}

// Plain says in words what an entry records. An action without words of its own is shown as its parts.
func Plain(e Entry) string {
	if AnswersOwn(e) {
		return acted(e) + ", own request"
	}
	return acted(e)
}

// AnswersOwn reports whether a person answered what they had asked for themselves.
func AnswersOwn(e Entry) bool {
	var d struct {
		Own bool `json:"own"`
	}
	answer := strings.HasPrefix(e.Action, "approval.") || strings.HasPrefix(e.Action, "plan.")
	return answer && json.Unmarshal(e.Detail, &d) == nil && d.Own
}

func acted(e Entry) string {
	switch {
	case e.Decision != "deny" && (e.Action == "kill.disable" || e.Action == "kill.enable"):
		whom := "all agents "
		if e.Agent != "" {
			whom = "agent "
		}
		return whom + doing[e.Action]
	case e.Action == "call":
		return called(e)
	case e.Action == "models/request":
		return strings.Replace(called(e), "call", "model request", 1)
	case e.Decision == "deny" && e.Action != Folded:
		return "refused: " + Named(e.Action)
	}
	return Named(e.Action)
}

// Named is what was done, in words, by the name of the action.
func Named(action string) string {
	if words := doing[action]; words != "" {
		return words
	}
	return strings.NewReplacer(".", " ", "_", " ", "/", " ").Replace(action)
}

// called says what became of a call.
func called(e Entry) string {
	switch e.Kind {
	case Intent:
		return "call began"
	case Outcome:
		switch e.Decision {
		case "ok":
			return "call ran"
		case "error":
			return "call failed"
		case "unknown":
			return "call, end unknown"
		case "discarded":
			return "result thrown away"
		}
	case Decision:
		switch e.Decision {
		case "deny":
			return "call blocked"
		case "ask":
			return "call waits for people"
		}
	}
	return "call"
}
