package run

import (
	"encoding/json"
	"slices"
	"strings"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// Claim is a part of an output that the schema marks with x-claim: what it says must be confirmed by several sources (TH-6).
type Claim struct {
	Field string          // its path, as the citations name it
	Says  json.RawMessage // an object with subject, attribute and value, or a sentence
}

// Confirmed is a claim of an output with what the sources said of it.
type Confirmed struct {
	Field      string   `json:"field"`
	Confidence float64  `json:"confidence" doc:"Independent sources that confirm it, of all that were asked"`
	By         []string `json:"confirmed_by" doc:"The sources that confirm it"`
	Valid      bool     `json:"-"` // an output with one that isn't is refused
}

// maxClaims bounds the claims of one output: a model may be asked about each.
const maxClaims = 20

// ClaimsOf are the claims in an output that was read. One that has not the form of a claim is fault.OutputInvalid: what can't be checked is not confirmed.
func ClaimsOf(output json.RawMessage, d *agent.Declaration) (all []Claim, err error) {
	for _, m := range marks(output, d.OutputSchema).claims {
		says := m.value
		switch v := m.value.(type) {
		case string:
		case map[string]any:
			says = map[string]any{"subject": v["subject"], "attribute": v["attribute"], "value": v["value"]}
			if n, ok := v["value"].(json.Number); ok {
				says.(map[string]any)["value"] = n.String()
			}
		default:
			return nil, fault.New(fault.OutputInvalid, "It is marked as a claim: it must be an object with subject, attribute and value, or a sentence.").At(m.path)
		}
		encoded, err := call.Encode(says)
		if err != nil {
			return nil, fault.Wrap(err, fault.OutputInvalid, "It can't be read as a claim.").At(m.path)
		}
		all = append(all, Claim{m.path, encoded})
	}
	slices.SortFunc(all, func(a, b Claim) int {
		return strings.Compare(a.Field+"\x00"+string(a.Says), b.Field+"\x00"+string(b.Says))
	})
	all = slices.CompactFunc(all, func(a, b Claim) bool { return a.Field == b.Field && string(a.Says) == string(b.Says) })
	if len(all) > maxClaims {
		return nil, fault.New(fault.OutputInvalid, "It has %d claims to check, and at most %d are checked.", len(all), maxClaims).At(all[maxClaims].Field)
	}
	return all, nil
}

// Refusal is the error of an output with a claim that is not valid; nil if it is.
func (c Confirmed) Refusal() error {
	if c.Valid {
		return nil
	}
	return fault.New(fault.OutputInvalid, "It is marked as a claim, and its sources don't confirm it: a confidence of %.2f.", c.Confidence).At(c.Field).
		Try("State what the sources of claims say, and check it with sallyport_validate_claim first. It has to be confirmed by 70 percent of the sources in claims.sources, and by claims.min independent ones; those that dataSources.tables doesn't name, and documents with labels that the session doesn't hold, are silent.")
}
