package gateway

import (
	"bytes"
	"encoding/json"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/threat"
	"sallyport.example/provenance"
)

// invisible counts the characters of the arguments that show nothing, and says which has no place there (TH-3): what people and rules judged must be what is
// sent. In arguments with the role content, and where the operator allows them, all of them pass. A request to a model is no argument of a tool: it has all that the
// agent has read.
func (c *crossing) invisible() (marked int, err error) {
	if c.op.Model != nil || !mayHide(c.args) {
		return 0, nil
	}
	look := func(at, s string) {
		refused, n := threat.Invisible(s)
		if marked += n; refused == "" || err != nil || c.mayHideIn(at) {
			return
		}
		err = fault.New(fault.RequestMalformed, "%s has the invisible character %s where nothing needs it.", display.Line(at, 160), refused).At("arguments").
			Try("Send the text without it. An operator can let such characters pass in an argument: operations.%s.allow_invisible.", c.op.ID)
	}
	for name, value := range call.Members(c.args) {
		look(name, name)
		call.Strings(value, func(inside, s string) bool {
			at := name
			if inside = strings.Trim(strings.NewReplacer("[]", "", "{}", "").Replace(inside), "."); inside != "" {
				at += "." + inside
			}
			look(at, s)
			return true
		})
	}
	return marked, err
}

// mayHideIn tells whether such characters may stand in the argument at a path.
func (c *crossing) mayHideIn(at string) bool {
	if c.op.Profile.HasRoles() && c.op.Profile.RoleOf(at) == provenance.Content {
		return true
	}
	for _, allowed := range c.op.Class.AllowInvisible {
		if at == allowed || strings.HasPrefix(at, allowed+".") {
			return true
		}
	}
	return false
}

// mayHide tells whether canonical JSON can have such a character in it: it has one beyond ASCII, or an escape of a control.
func mayHide(b json.RawMessage) bool {
	for i, c := range b {
		if c >= 0x7f || c == '\\' && i+1 < len(b) && bytes.IndexByte([]byte("ubf"), b[i+1]) >= 0 {
			return true
		}
	}
	return false
}
