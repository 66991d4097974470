// Package ask asks models on the gateway's own account or by an agent's corridor: for embeddings of documents and questions, and what a text says, in a structured answer.
//
// Promises: an agent's question goes through the corridor as the agent's own request to the model. What people and the gateway itself ask for is judged here: the labels of what
// is sent against those that the model may have, and the switch for all agents; its intent is durable before it leaves, and its outcome before the answer is used. The log gets nothing of
// a text nor a hash of it. An answer is hostile: it is what was asked for, whole, or an error.
package ask

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/models/wire"
)

// Ask asks a model, and returns the body of its answer. nil: nothing may be asked.
type Ask func(ctx context.Context, form wire.Form, body json.RawMessage) (json.RawMessage, error)

// MaxTexts bounds the texts of one request for embeddings.
const MaxTexts = 16

// timeout of one request.
const timeout = 30 * time.Second

// Running is a request that the switch can end.
type Running interface{ Cancel(cause error) }

// Options of an Own.
type Options struct {
	Models Models
	// May are the labels that may go to a model; false where none with this id is configured.
	May func(model string) (labels []string, known bool)
	// Price is what a model's tokens cost; nil: nobody said.
	Price  func(model string) *wire.Price
	Record func(ctx context.Context, entries ...audit.Entry) error
	// Enter makes a request known to the switch, until leave is called; stopped tells, from then on, whether all agents are stopped.
	Enter func(Running) (leave func(), stopped func() bool)
	Clock func() time.Time
}

// Own asks for people and for the gateway itself. Safe for concurrent use.
type Own struct {
	o      Options
	places *Places
}

// atOnce bounds the requests that are under way.
const atOnce = 4

// New returns an Own.
func New(o Options) *Own { return &Own{o: o, places: NewPlaces(atOnce)} }

// Labels are those that a text has now; an error where it may not be sent at all any more.
type Labels func() ([]string, error)

// For is how somebody asks, with a text that has these labels, which are read right before the request leaves. The entry says who asks and for what; it has nothing of the text.
func (own *Own) For(e audit.Entry, labels Labels) Ask {
	return func(ctx context.Context, form wire.Form, body json.RawMessage) (json.RawMessage, error) {
		return own.ask(ctx, e, labels, form, body)
	}
}

type running struct{ cancel context.CancelCauseFunc }

func (r *running) Cancel(cause error) { r.cancel(cause) }

// May tells whether a text with these labels may go to a model.
func (own *Own) May(model string, labels []string) error {
	may, known := own.o.May(model)
	if !known {
		return fault.New(fault.ModelUndeclared, "The configuration has no model %.80q.", model).Try("Add it to models in sallyport.yaml.")
	}
	return MayHave(may, labels)
}

func (own *Own) ask(ctx context.Context, e audit.Entry, labels Labels, form wire.Form, body json.RawMessage) (json.RawMessage, error) {
	free, err := own.places.Take(ctx, "")
	if err != nil {
		return nil, err
	}
	defer free()
	ctx, end := context.WithTimeout(ctx, timeout)
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leave, stopped := own.o.Enter(&running{cancel})
	defer leave()
	record := func(ctx context.Context, e audit.Entry) error { return own.o.Record(ctx, e) }
	q := Request{
		Models: own.o.Models, Clock: own.o.Clock, Entry: e, Labels: labels, May: own.May, Price: own.o.Price,
		Stopped: func() error {
			if stopped() {
				return fault.New(fault.KillSwitch, "All agents are stopped, and so is what models are asked for the knowledge store.").Try("Let them work again first: sallyport unkill.")
			}
			return nil
		},
		Refused: record,
		Intend: func(ctx context.Context, e audit.Entry, _ wire.Request) (time.Duration, error) {
			return 0, record(ctx, e)
		},
		Settle: func(ctx context.Context, e audit.Entry, _ End) error { return record(ctx, e) },
	}
	return q.Do(ctx, form, body)
}

// Embed returns the embedding of each text: all with the same number of dimensions.
func Embed(ctx context.Context, ask Ask, model string, texts []string) ([][]float32, error) {
	if len(texts) == 0 || len(texts) > MaxTexts {
		return nil, fault.New(fault.Internal, "%d texts at once", len(texts))
	}
	body, err := call.Encode(map[string]any{"model": model, "input": texts, "encoding_format": "float"})
	if err != nil {
		return nil, err
	}
	answer, err := ask(ctx, wire.Embeddings, body)
	if err != nil {
		return nil, err
	}
	var got struct {
		Data []struct {
			Index     *int      `json:"index"`
			Embedding []float64 `json:"embedding"`
		} `json:"data"`
	}
	wrong := func(why string) error {
		return fault.New(fault.ResultInvalid, "The model's answer %s; it was discarded.", why)
	}
	if json.Unmarshal(answer, &got) != nil || len(got.Data) != len(texts) {
		return nil, wrong("has not one embedding of each text")
	}
	vectors := make([][]float32, len(texts))
	for _, d := range got.Data {
		if d.Index == nil || *d.Index < 0 || *d.Index >= len(texts) || vectors[*d.Index] != nil {
			return nil, wrong("does not say of which text an embedding is")
		}
		if n := len(d.Embedding); n == 0 || n > knowledge.MaxDimensions || n != len(got.Data[0].Embedding) {
			return nil, wrong("has embeddings of different lengths, or too long ones")
		}
		v := make([]float32, len(d.Embedding))
		some := false
		for i, f := range d.Embedding {
			v[i] = float32(f)
			if math.IsInf(float64(v[i]), 0) || math.IsNaN(f) || math.Abs(f) > 1e6 {
				return nil, wrong("has a number that no embedding has")
			}
			some = some || v[i] != 0
		}
		if !some {
			return nil, wrong("has an embedding of zeros")
		}
		vectors[*d.Index] = v
	}
	return vectors, nil
}
