package httpapi

import (
	"context"
	"net/http"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// SignInLink signs its person in to the console, once, after the press of a button.
type SignInLink struct {
	URL     string    `json:"url" doc:"an address, or without public_url a path of the people's side"`
	Expires time.Time `json:"expires"`
}

// signInRoutes make links into the console. A link opens as much as the token that it was made with, so only the token itself makes one.
func (a *API) signInRoutes(s *side) {
	handle(s, route{method: http.MethodPost, path: "/v1/sign-in-links", status: http.StatusCreated, summary: "Make a one-time link that signs the token's person in to the console"},
		func(_ context.Context, _ identity.Principal, in *struct {
			Authorization string `header:"Authorization" hidden:"true"`
		}) (SignInLink, error) {
			secret, ok := identity.Bearer(in.Authorization)
			if !ok {
				return SignInLink{}, fault.New(fault.CredentialMissing, "A link is made with the token itself.").Try("Send it as Authorization: Bearer TOKEN.")
			}
			url, expires, err := a.SignInLink(secret)
			return SignInLink{URL: url, Expires: expires}, err
		})
}
