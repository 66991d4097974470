package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"sallyport.example/internal/clients"
)

// modelDoors are the variables by which the SDKs of each provider find it, and the place of its models in the gateway.
var modelDoors = []modelDoor{
	{base: "/anthropic", list: "/anthropic/v1/models", url: "ANTHROPIC_BASE_URL", key: "ANTHROPIC_AUTH_TOKEN", own: "ANTHROPIC_API_KEY"},
	{base: "/openai/v1", list: "/openai/v1/models", url: "OPENAI_BASE_URL", key: "OPENAI_API_KEY", own: "OPENAI_API_KEY"},
}

type modelDoor struct{ base, list, url, key, own string }

// agentsModels are the models that an agent may ask.
func (c *cli) agentsModels(address string) (all clients.Models, err error) {
	token, err := c.credential(agentSide)
	if err != nil {
		return all, err
	}
	for _, d := range modelDoors {
		ids, err := d.models(address, token)
		if err != nil {
			return all, err
		}
		if d.base == "/anthropic" {
			all.Anthropic = ids
		} else {
			all.OpenAI = ids
		}
	}
	return all, nil
}

// maxModels bounds the list of models that is read.
const maxModels = 1 << 20

// modelVariables are the variables by which a program asks its models through the gateway, in its session: for each provider of which the session's agent
// may ask a model. without are the names of those that it must not have from elsewhere: a key of the provider's would go round the gateway.
// A list that can't be read is an error: without it a program would ask its provider past the gateway.
func modelVariables(address, token string) (set, without []string, err error) {
	for _, d := range modelDoors {
		ids, err := d.models(address, token)
		if err != nil {
			return nil, nil, fmt.Errorf("which models there are is not known: %w; try again", err)
		}
		if len(ids) == 0 {
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

// models are the ids of the models of a provider that an agent may ask.
func (d modelDoor) models(address, token string) (ids []string, err error) {
	req, err := http.NewRequest(http.MethodGet, address+d.list, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	c := http.Client{Timeout: 30 * time.Second, Transport: new(http.Transport), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // no proxy of the environment's
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var refused struct{ Error struct{ Message string } }
		if err := json.NewDecoder(io.LimitReader(resp.Body, maxModels)).Decode(&refused); err != nil || refused.Error.Message == "" {
			return nil, fmt.Errorf("the gateway answered with HTTP status %d", resp.StatusCode)
		}
		return nil, fmt.Errorf("the gateway does not list the models: %s", printable(refused.Error.Message))
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxModels)).Decode(&list); err != nil {
		return nil, err
	}
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	return ids, nil
}
