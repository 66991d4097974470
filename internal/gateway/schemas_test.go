package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"sallyport.example/internal/turns"
)

// A schema is compiled once, also one that can't be read; of too many the one that was not used for longest goes, and a long one is never kept.
func TestSchemasAreCompiledOnce(t *testing.T) {
	var s schemas
	made := map[string]int{}
	check := func(schema string) func([]byte) error {
		return s.check([]byte(schema), func() func([]byte) error {
			if made[schema]++; schema == "unread" {
				return nil
			}
			return func([]byte) error { return errors.New(schema) }
		})
	}
	for range 3 {
		if check("unread") != nil {
			t.Error("an unread schema is a check")
		}
		if err := check("first")(nil); err == nil || err.Error() != "first" {
			t.Error(err)
		}
	}
	for i := range maxSchemas - 2 {
		check(fmt.Sprint(i))
	}
	check("first")
	check("one more") // in the place of the unread one
	check("first")
	check("unread")
	long := string(make([]byte, maxKeptSchema+1))
	check(long)
	check(long)
	if made["first"] != 1 || made["unread"] != 2 || made[long] != 2 || len(s.all) != maxSchemas || s.used.Len() != maxSchemas {
		t.Errorf("first %d times, unread %d, a long one %d; %d and %d are kept", made["first"], made["unread"], made[long], len(s.all), s.used.Len())
	}
}

// However many answers have to be checked, one at a time is where there is one turn; a call that was ended meanwhile is not looked at, and says why.
func TestAnswersAreCheckedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gateway{heavy: turns.New(1)}
		g.o.Schema = func(json.RawMessage) (func([]byte) error, error) { return func([]byte) error { return nil }, nil }
		hold, busy, most := make(chan struct{}), 0, 0
		var all sync.WaitGroup
		for i := range 8 {
			c := &crossing{g: g, speaker: speaker{agent: fmt.Sprint("bot", i%2)}}
			all.Go(func() {
				err := c.checks(t.Context(), json.RawMessage(`{}`), func(check func([]byte) error) {
					busy++
					most = max(most, busy)
					<-hold
					busy--
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		ended, end := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		late := make(chan error, 1)
		go func() {
			late <- (&crossing{g: g}).checks(ended, json.RawMessage(`{}`), func(func([]byte) error) { t.Error("it was looked at") })
		}()
		synctest.Wait()
		end(stopped)
		if err := <-late; !errors.Is(err, stopped) {
			t.Error(err)
		}
		close(hold)
		all.Wait()
		if most != 1 {
			t.Errorf("%d at a time", most)
		}
	})
}
