package mcpwire

import (
	"bytes"
	"strconv"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// MaxBatch bounds the messages of one batch.
const MaxBatch = 20

// IsBatch tells whether data is an array, if it is JSON. Only revision 2025-03-26 has batches.
func IsBatch(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	return len(data) > 0 && data[0] == '['
}

// ParseBatch parses a batch as strictly as Parse parses each of its messages. They are responses alone, or requests and notifications, as the revision
// wants it: no initialize is among them, and no two requests have one id. One wrong message makes the whole batch wrong, so that nobody has to know which
// part of it had an effect.
func ParseBatch(data []byte, lim call.Limits) ([]Message, *Error) {
	whole := lim
	whole.Depth++
	if err := call.Check(data, whole); err != nil {
		return nil, refuse(CodeParse, "The batch is not strict JSON: "+fault.Of(err).Public())
	}
	var messages []Message
	ids := map[string]bool{}
	for element := range call.Elements(data) {
		if len(messages) == MaxBatch {
			return nil, refuse(CodeInvalidRequest, "A batch has at most "+strconv.Itoa(MaxBatch)+" messages.")
		}
		m, e := Parse(element, lim)
		switch key := IDKey(m.ID); {
		case e != nil:
			return nil, refuse(e.Code, "Message "+strconv.Itoa(len(messages)+1)+" of the batch: "+e.Message)
		case len(messages) > 0 && m.Response() != messages[0].Response():
			return nil, refuse(CodeInvalidRequest, "A batch has responses alone, or none.")
		case m.Method == "initialize":
			return nil, refuse(CodeInvalidRequest, "initialize does not stand in a batch.")
		case m.ID != nil && ids[key]:
			return nil, refuse(CodeInvalidRequest, "Two messages of the batch have one id.")
		case m.ID != nil:
			ids[key] = true
		}
		messages = append(messages, m)
	}
	if messages == nil {
		return nil, refuse(CodeInvalidRequest, "A batch has at least one message.")
	}
	return messages, nil
}
