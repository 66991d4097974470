package main

import (
	"encoding/json"
	"fmt"
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
// A list that can't be read is an error: without it a program would ask its provider past the gateway.
func modelVariables(address, token string) (set, without []string, err error) {
	for _, d := range modelDoors {
		path := d.base + "/models"
		if d.base == "/anthropic" {
			path = d.base + "/v1/models"
		}
		offers, err := offersModels(address+path, token)
		if err != nil {
			return nil, nil, fmt.Errorf("which models there are is not known: %w; try again", err)
		}
		if !offers {
			continue
		}
		set = append(set, d.url+"="+address+d.base, d.key+"="+token)
		without = append(without, d.url, d.key, d.own)
	}
	if len(set) > 0 {
		without = append(without, pastTheGateway...)
	}
	return set, slices.Compact(without), nil
}

// pastTheGateway are more variables with which clients go to a provider by another way.
var pastTheGateway = []string{"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "OPENAI_API_BASE"}

// offersModels tells whether a list of models has one.
func offersModels(url, token string) (bool, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	c := http.Client{Timeout: 30 * time.Second, Transport: new(http.Transport), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // no proxy of the environment's
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("the gateway answered with HTTP status %d", resp.StatusCode)
	}
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxModels)).Decode(&list)
	return len(list.Data) > 0, err
}
