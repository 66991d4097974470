package upstream

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// flooding has always more.
type flooding struct{}

func (flooding) Read(b []byte) (int, error) { return len(b), nil }

// A child that floods its stderr is read at a bounded rate. When its conversation is over, its last words are read at once.
func TestStderrIsReadAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		p := &paced{r: flooding{}, limiter: rate.NewLimiter(stderrBytes, stderrBytesBurst), over: over}
		begun, read := time.Now(), 0
		for b := make([]byte, stderrLine); time.Since(begun) < 10*time.Second; {
			n, err := p.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			read += n
		}
		if most := stderrBytesBurst + 11*stderrBytes; read > most || read < most/2 {
			t.Errorf("%d bytes were read in ten seconds, %d are the most", read, most)
		}
		close(over)
		ended := time.Now()
		if _, err := io.CopyN(io.Discard, p, 64<<10); err != nil || time.Since(ended) != 0 {
			t.Errorf("the last words took %s: %v", time.Since(ended), err)
		}
	})
}
