package gateway

import (
	"strings"
	"testing"

	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/screen"
)

// Each way by which content comes has its own channel on record, and the thresholds of that channel.
func TestChannels(t *testing.T) {
	for id, want := range map[string]screen.Channel{
		"comm.fetch": screen.Page, "comm.search": screen.Snippet, "comm.exec": screen.Output, "comm.read_file": screen.Result, "comm.query": screen.Result,
		"knowledge.search": screen.Document, "knowledge.get": screen.Document, "crm.get": screen.Result, "crm.fetch": screen.Result,
	} {
		server, _, _ := strings.Cut(id, ".")
		c := &crossing{subject: subject{op: &catalogue.Operation{ID: id, Server: server}}}
		if got := c.channel(); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}
