package upstream

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/call"
)

// A client that does not read its progress must not hold up the other clients of the server.
func TestClientThatReadsNoProgressHoldsUpNobody(t *testing.T) {
	m, _ := start(t, childConfig("raw"), nil)
	stuck, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = run(m, "flood-progress", &call.Exchange{Progress: func(json.RawMessage) {
			once.Do(func() { close(stuck) })
			<-release // as a write to a full socket does, for up to 30 s (mcpapi.writeTimeout)
		}})
	})
	<-stuck
	other := make(chan error, 1)
	wg.Go(func() { _, err := run(m, "ok", nil); other <- err })
	timer := time.NewTimer(3 * time.Second)
	defer timer.Stop()
	select {
	case err := <-other:
		if err != nil {
			t.Error(err)
		}
	case <-timer.C:
		t.Error("another client's call of the same server waits for a client that does not read")
	}
	close(release)
	wg.Wait()
}
