package modelapi

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/identity"
)

// broken is a corridor that panics.
type broken struct{ Gateway }

func (broken) Models(context.Context, identity.Principal) ([]*catalogue.Operation, error) {
	panic("what nobody may see")
}

// A request whose handler panicked is answered in the provider's form, without the cause.
func TestPanicsAreErrorsInTheProvidersForm(t *testing.T) {
	f := New(broken{}, Options{Authenticate: func(string) (identity.Principal, error) {
		return identity.Principal{Kind: identity.Agent, ID: "a"}, nil
	}})
	for _, provider := range []string{"openai", "anthropic"} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/"+provider+"/v1/models", nil)
		r.Header.Set("X-Api-Key", "key")
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})))
		var e struct {
			Error struct{ Sallyport struct{ Code string } }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != 500 || e.Error.Sallyport.Code != "internal" || strings.Contains(w.Body.String(), "nobody") {
			t.Errorf("%s: %d %s", provider, w.Code, w.Body)
		}
	}
}
