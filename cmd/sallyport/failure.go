package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sallyport.example/client"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// failure is an error as programs read it, on standard error, under --output json.
type failure struct {
	Message   string           `json:"message"`
	Code      string           `json:"code,omitempty"` // of docs/errors.md, where it has one
	Field     string           `json:"field,omitempty"`
	Remedy    string           `json:"remedy,omitempty"`
	Near      []string         `json:"near,omitempty"`   // ids that may have been meant
	Status    int              `json:"status,omitempty"` // of the gateway's answer
	RequestID string           `json:"request_id,omitempty"`
	Problems  []daemon.Problem `json:"problems,omitempty"` // of the configuration
	Exit      int              `json:"exit"`
}

// jsonWanted tells by the command line alone whether JSON was asked for, since a wrong one is not read to its end.
func jsonWanted(args []string) bool {
	for i, arg := range args {
		if arg == "--" {
			return false
		}
		switch {
		case arg == "-ojson", arg == "-o=json", arg == "--output=json", (arg == "-o" || arg == "--output") && i+1 < len(args) && args[i+1] == "json":
			return true
		}
	}
	return false
}

// silent tells whether an error was shown already.
func silent(err error) bool {
	var quiet *found
	return errors.As(err, &quiet) && quiet.printed
}

// printError prints an error as JSON and returns the exit code.
func (c *cli) printError(err error) int {
	f := failure{Message: err.Error(), Exit: exitUsage}
	var ran *ranError
	if errors.As(err, &ran) {
		err = ran.err
		f.Exit, f.Remedy = exitCode(err), remedyOf(err)
	}
	var (
		problem *client.Problem
		own     *fault.Error
		config  *daemon.ConfigError
		unknown *unknownID
	)
	if errors.As(err, &own) {
		f.Code, f.Field = string(own.Code), own.Field
	}
	if errors.As(err, &problem) {
		f.Message, f.Code, f.Field, f.Remedy, f.Status, f.RequestID = problem.Detail, problem.Code, problem.Field, problem.Remedy, problem.Status, problem.RequestID
		for _, e := range problem.Errors {
			f.Message += "; " + strings.TrimSpace(e.Field+" "+e.Problem)
		}
	}
	if errors.As(err, &config) {
		f.Problems = config.Problems
	}
	if errors.As(err, &unknown) {
		f.Near = unknown.near
	}
	raw, failed := json.MarshalIndent(map[string]failure{"error": f}, "", "  ")
	if failed != nil {
		raw = fmt.Appendf(nil, "{\"error\": {\"message\": \"an error that can't be shown\", \"exit\": %d}}", f.Exit)
	}
	c.err.Write(append(display.EscapeData(raw, false), '\n'))
	return f.Exit
}
