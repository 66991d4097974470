package main

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"time"
)

// modelDoors are the variables by which the SDKs of each provider find it, and the place of its models in the gateway.
var modelDoors = []struct{ base, url, key, own string }{
	{base: "/anthropic", url: "ANTHROPIC_BASE_URL", key: "ANTHROPIC_AUTH_TOKEN", own: "ANTHROPIC_API_KEY"},
	{base: "/openai/v1", url: "OPENAI_BASE_URL", key: "OPENAI_API_KEY", own: "OPENAI_API_KEY"},
}

// maxModels bounds the list of models that is read.
const maxModels = 1 << 20

// modelVariables are the variables by which a program asks its models through the gateway, in its session: for each provider of which the session's agent
// may ask a model. without are the names of those that it must not have from elsewhere: a key of the provider's would go round the gateway.
func modelVariables(address, token string) (set, without []string) {
	for _, d := range modelDoors {
		path := d.base + "/models"
		if d.base == "/anthropic" {
			path = d.base + "/v1/models"
		}
		if !offersModels(address+path, token) {
			continue
		}
		set = append(set, d.url+"="+address+d.base, d.key+"="+token)
		without = append(without, d.url, d.key, d.own)
	}
	return set, slices.Compact(without)
}

// offersModels tells whether a list of models has one. A gateway that does not answer has none: the program finds that out by itself.
func offersModels(url, token string) bool {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+token)
	c := http.Client{Timeout: 5 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	return resp.StatusCode == http.StatusOK && json.NewDecoder(io.LimitReader(resp.Body, maxModels)).Decode(&list) == nil && len(list.Data) > 0
}
