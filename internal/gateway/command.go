package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"

	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
)

// run runs a command and gives its result the form that every result has.
func (c *crossing) run(ctx context.Context) (json.RawMessage, error) {
	b, err := c.op.Command.Run(ctx, catalogue.CommandRun{Session: c.session.ID, Parameters: c.args})
	if ctx.Err() != nil { // whatever it made of the end of its time: partial results are discarded (EX-6)
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			return nil, cause
		}
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	c.ran.source, c.ran.sourceAt = b.Source, b.At
	result, err := resultOf(b)
	if err != nil {
		return nil, fault.Wrap(err, fault.ResultInvalid, "The result could not be put into a form that can be delivered.")
	}
	return result, nil
}

// resultOf is what was brought in the form of an MCP tool result, which is inspected, labelled and wrapped like any other.
func resultOf(b catalogue.Brought) (json.RawMessage, error) {
	if b.Source == "" {
		return nil, errors.New("a command says not where its result is from")
	}
	content := make([]any, 0, len(b.Blocks))
	for _, block := range b.Blocks {
		switch {
		case block.Data == nil:
			content = append(content, map[string]any{"type": "text", "text": block.Text})
		case len(block.MediaType) > 6 && block.MediaType[:6] == "image/":
			content = append(content, map[string]any{"type": "image", "data": base64.StdEncoding.EncodeToString(block.Data), "mimeType": block.MediaType})
		default:
			content = append(content, map[string]any{"type": "resource", "resource": map[string]any{
				"uri": "sha256:" + call.HashBytes(block.Data), "mimeType": block.MediaType, "blob": base64.StdEncoding.EncodeToString(block.Data)}})
		}
	}
	result := map[string]any{"content": content}
	if b.Failed {
		result["isError"] = true
	}
	return marshalPlain(result)
}
