package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxPaths bounds how many folders, and how many files, the file server is asked about.
const maxPaths = 1500

// asked is one call.
type asked struct {
	tool string
	args map[string]any
}

// answers collects what official servers say when they are started and asked. The file server is asked about the folder, which it may only read: none of the
// calls that change something there are made. Environment variables are not asked for.
func answers(ctx context.Context, npm, folder string, add func(text) error) error {
	scratch, err := os.MkdirTemp("", "benign")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	calls, err := fileCalls(folder)
	if err != nil {
		return err
	}
	for _, s := range []struct {
		name  string
		args  []string
		calls []asked
	}{
		{"server-everything", nil, everythingCalls()},
		{"server-memory", nil, memoryCalls()},
		{"server-filesystem", []string{folder}, calls},
	} {
		program := filepath.Join(npm, "@modelcontextprotocol", s.name, "dist", "index.js")
		cmd := exec.CommandContext(ctx, "node", append([]string{program}, s.args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + scratch, "MEMORY_FILE_PATH=" + filepath.Join(scratch, "memory.jsonl")}
		if err := ask(ctx, "answers of "+s.name, cmd, s.calls, add); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func ask(ctx context.Context, name string, cmd *exec.Cmd, calls []asked, add func(text) error) error {
	s, err := mcp.NewClient(&mcp.Implementation{Name: "benign", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	keep := func(of string, v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return add(text{name, name + ": " + of, b})
	}
	tools, err := s.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	for _, t := range tools.Tools {
		if err := keep("definition of "+t.Name, t); err != nil {
			return err
		}
	}
	if s.InitializeResult().Capabilities.Resources != nil {
		list, err := s.ListResources(ctx, nil)
		if err != nil {
			return err
		}
		for _, r := range list.Resources {
			got, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: r.URI})
			if err != nil {
				return fmt.Errorf("%s: %w", r.URI, err)
			}
			if err := keep(r.URI, got); err != nil {
				return err
			}
		}
	}
	for _, c := range calls {
		got, err := s.CallTool(ctx, &mcp.CallToolParams{Name: c.tool, Arguments: c.args})
		if err != nil {
			return fmt.Errorf("%s: %w", c.tool, err)
		}
		if err := keep(fmt.Sprint(c.tool, " ", c.args), got); err != nil {
			return err
		}
	}
	return nil
}

func everythingCalls() []asked {
	calls := []asked{{"get-tiny-image", map[string]any{}}, {"get-resource-links", map[string]any{"count": 5}}, {"get-resource-reference", map[string]any{"resourceType": "Text", "resourceId": 1}}}
	for i := range 20 {
		calls = append(calls, asked{"echo", map[string]any{"message": fmt.Sprintf("the build %d of the branch is green", i)}}, asked{"get-sum", map[string]any{"a": i, "b": 10 * i}})
	}
	for _, city := range []string{"New York", "Chicago", "Los Angeles"} {
		calls = append(calls, asked{"get-structured-content", map[string]any{"location": city}})
	}
	for _, kind := range []string{"error", "success", "debug"} {
		calls = append(calls, asked{"get-annotated-message", map[string]any{"messageType": kind, "includeImage": kind == "debug"}})
	}
	return calls
}

func memoryCalls() []asked {
	list := func(of ...map[string]any) []map[string]any { return of }
	var calls []asked
	for i := range 20 {
		person, team := fmt.Sprintf("Ann %d", i), fmt.Sprintf("team %d", i%4)
		calls = append(calls,
			asked{"create_entities", map[string]any{"entities": list(
				map[string]any{"name": person, "entityType": "person", "observations": []string{"Prefers to be asked by mail", "Is on holiday in May"}},
				map[string]any{"name": team, "entityType": "team", "observations": []string{"Reviews new pull requests on Mondays"}})}},
			asked{"create_relations", map[string]any{"relations": list(map[string]any{"from": person, "to": team, "relationType": "works in"})}},
			asked{"add_observations", map[string]any{"observations": list(map[string]any{"entityName": person, "contents": []string{fmt.Sprintf("Owns the service %d", i)}})}},
			asked{"search_nodes", map[string]any{"query": person}}, asked{"open_nodes", map[string]any{"names": []string{person, team}}}, asked{"read_graph", map[string]any{}})
	}
	return calls
}

// fileCalls are about the folders and files in a folder: each tool that reads.
func fileCalls(folder string) ([]asked, error) {
	var calls []asked
	folders, read := 0, 0
	err := filepath.WalkDir(folder, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return nil // can't be read
		}
		about := map[string]any{"path": path}
		switch {
		case e.IsDir() && folders < maxPaths && path != folder:
			folders++
			calls = append(calls, asked{"list_directory", about}, asked{"list_directory_with_sizes", about}, asked{"directory_tree", about}, asked{"search_files", map[string]any{"path": path, "pattern": "**/*.txt"}})
		case e.Type().IsRegular() && read < maxPaths && source(filepath.ToSlash(path)) != "":
			read++
			calls = append(calls, asked{"get_file_info", about}, asked{"read_text_file", map[string]any{"path": path, "head": 40}})
		}
		return nil
	})
	return calls, err
}
