package gateway

import (
	"errors"
	"testing"
	"time"

	"sallyport.example/internal/breaker"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
)

// TestJudgedAs: what breakers count of a request to the judge of results.
func TestJudgedAs(t *testing.T) {
	failed := fault.New(fault.UpstreamFailed, "It failed.")
	late := fault.New(fault.TimeExceeded, "It is late.")
	for name, c := range map[string]struct {
		status int
		err    error
		took   time.Duration
		want   breaker.Result
	}{
		"an answer":                    {200, nil, 0, breaker.Answered},
		"an error about the request":   {404, failed, 0, breaker.Answered},
		"it failed inside":             {503, failed, 0, breaker.Broken},
		"it has too much to do":        {429, failed, 0, breaker.Broken},
		"silence":                      {0, late, judgeTime, breaker.Broken},
		"the time was taken elsewhere": {0, late, time.Second, breaker.Void},
		"no connection":                {0, fault.Wrap(&fault.NotDispatched{Err: errors.New("refused")}, fault.UpstreamFailed, "It is away."), 0, breaker.Unreachable},
		"broken off":                   {0, failed, 0, breaker.Broken},
		"an answer of another form":    {0, fault.New(fault.ResultInvalid, "What?"), 0, breaker.Broken},
		"the switch":                   {0, fault.New(fault.KillSwitch, ""), judgeTime, breaker.Void},
	} {
		if got := judgedAs(wire.Response{Status: c.status}, c.err, c.took); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
