package declare

import (
	"strings"

	"sallyport.example/internal/fault"
)

// Invalid is a declaration that can't be accepted, with all its problems (DE-2).
type Invalid struct{ Problems []Problem }

func (e *Invalid) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.Field + ": " + p.Problem)
	}
	return b.String()
}

// Refuse is the refusal of a declaration. It is safe to show: problems never repeat a value that was sent.
func Refuse(problems []Problem) *fault.Error {
	e := &Invalid{Problems: problems}
	return fault.Wrap(e, fault.DeclarationInvalid, "%s", e.Error())
}
