package provenance

import (
	"strings"
	"testing"
)

// Labels are compared exactly. A tool that does not look at letter case or marks takes another spelling for the same argument, so its value is not
// confirmed by the weaker rule for arguments without a label.
func TestArgumentsWrittenLikeALabel(t *testing.T) {
	p := &Profile{Level: 2, IDKind: "user", Args: map[string]Role{"user": Target, "password": Credential, "user_id": Selector, "to.email": Destination, "note": Content}}
	for args, want := range map[string]Verdict{
		`{"user":"Falcon"}`: Permit, `{"user":"Falcon","note":"x"}`: Permit, `{"user":"Falcon","reason":"Falcon"}`: Permit,
		`{"user":"Falcon","Password":"Falcon"}`: Ask, `{"user":"Falcon","PASSWORD":"Falcon"}`: Ask, `{"user":"Falcon","pass_word":"Falcon"}`: Ask, `{"user":"Falcon","pass-word":"Falcon"}`: Ask,
		`{"user":"Falcon","paſſword":"Falcon"}`: Ask, `{"user":"Falcon","ｐassword":"Falcon"}`: Ask, `{"user":"Falcon","pass\u200bword":"Falcon"}`: Ask,
		`{"user":"Falcon","userId":"Falcon"}`: Ask, `{"user":"Falcon","USER-ID":"Falcon"}`: Ask, `{"user":"Falcon","Note":"Falcon"}`: Ask,
		`{"user":"Falcon","Password":{"value":"Falcon"}}`: Ask, `{"User":"Falcon"}`: Ask, `{"user":"Falcon","To":{"email":"Falcon"}}`: Ask, `{"user":"Falcon","To":"Falcon"}`: Ask,
	} {
		s := newSession(t, "Reset the account of Falcon")
		p := *p
		if !strings.Contains(args, "To") {
			p.MayOmit = []string{"to.email"}
		}
		s.wants(&p, args, want)
	}
}

// The person's own address or account says who gets something, or who the person is. It is no thing that a call changes, opens or runs.
func TestOwnIdentitiesConfirmPeopleAlone(t *testing.T) {
	for _, role := range coreRoles {
		for _, own := range []string{"carol@corp.example", "DE89370400440532013000", "https://carol.example/me", "5550107788", "carol"} {
			s := newSession(t, "Tidy up")
			s.own = []string{own}
			want := Ask
			if role == Destination || role == Identity {
				want = Permit
			}
			s.wants(&Profile{Level: 2, Args: map[string]Role{"x": role}}, `{"x":"`+own+`"}`, want)
			s.wants(&Profile{Level: 1, Args: map[string]Role{"x": role, "title": Name}}, `{"x":"`+own+`","title":"day off"}`, Ask)
			s.wants(&Profile{Level: 2}, `{"x":"`+own+`"}`, Ask)
		}
	}
}
