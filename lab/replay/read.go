package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.example/internal/call"
)

// The formats that Read knows.
const (
	tracesFormat = "agentdojo-traces/1"
	runsFormat   = "agentdojo-llm-runs/1"
	injecFormat  = "injecagent-traces/1"
)

// Recording is one file's worth of recorded work.
type Recording struct {
	Name     string // the suite, and of recorded runs the model's pipeline behind it
	suite    string
	pipeline string
	file     string
	runs     []run
}

// Read reads a recording. Name stands in errors, which are fault.ConfigurationInvalid.
func Read(name string, data []byte) (*Recording, error) {
	if err := wellFormed(name, data); err != nil {
		return nil, err
	}
	var f file
	if err := unmarshal(name, "", data, &f.head); err != nil {
		return nil, err
	}
	f.name = name
	rec := &Recording{file: name, suite: f.head.Suite}
	var err error
	switch f.head.Format {
	case tracesFormat:
		rec.runs, err = f.traces(data)
	case runsFormat:
		rec.runs, err = f.recorded(data)
		rec.pipeline = f.head.Pipeline
		rec.Name = rec.suite + " " + rec.pipeline
		if err == nil && rec.pipeline == "" {
			err = malformed(name, "pipeline", "is missing")
		}
	case injecFormat:
		if rec.suite == "" {
			rec.suite, _, _ = strings.Cut(f.head.Format, "-")
		}
		rec.runs, err = f.injec(data)
	default:
		err = malformed(name, "format", "%.40q is not known", f.head.Format).Try("use %s, %s or %s", tracesFormat, runsFormat, injecFormat)
	}
	if err != nil {
		return nil, err
	}
	if rec.suite == "" {
		return nil, malformed(name, "suite", "is missing")
	}
	if rec.Name == "" {
		rec.Name = rec.suite
	}
	return rec, nil
}

type file struct {
	name string
	head struct {
		Format   string `json:"format"`
		Suite    string `json:"suite"`
		Pipeline string `json:"pipeline"`
	}
	results map[string]json.RawMessage // id -> canonical JSON
}

// keeping is what a file keeps its results in: each is {"json": value} or {"items": [ids]}.
type keeping struct {
	Results map[string]struct {
		JSON  json.RawMessage `json:"json"`
		Items *[]string       `json:"items"`
	} `json:"results"`
	Items map[string]json.RawMessage `json:"items"`
}

func (f *file) stored(s keeping) error {
	f.results = make(map[string]json.RawMessage, len(s.Results))
	size := 0
	for id, r := range s.Results {
		at := "results." + id
		value := r.JSON
		if (value == nil) == (r.Items == nil) {
			return malformed(f.name, at, `is neither {"json": value} nor {"items": [ids]}`)
		}
		if r.Items != nil {
			var list []byte
			for i, item := range *r.Items {
				raw, ok := s.Items[item]
				if !ok {
					return malformed(f.name, fmt.Sprintf("%s.items[%d]", at, i), "there is no item %.40q", item)
				}
				// One item may stand in many results: what they add up to is bounded like the file.
				if size += len(raw); size > MaxBytes {
					return malformed(f.name, at, "the results are more than %d MiB", MaxBytes>>20)
				}
				list = append(append(list, ','), raw...)
			}
			if len(list) == 0 {
				list = []byte{','}
			}
			list[0] = '['
			value = append(list, ']')
		}
		b, err := call.Canonical(value, limits())
		if err != nil {
			return malformed(f.name, at, "%v", err)
		}
		f.results[id] = b
	}
	return nil
}

type rawCall struct {
	Tool  string          `json:"tool"`
	Args  json.RawMessage `json:"args"`
	R     *string         `json:"r"`
	Error *string         `json:"error"`
}

// steps reads a list of calls with their results.
func (f *file) steps(at string, calls []rawCall) ([]step, error) {
	out := make([]step, len(calls))
	for i, c := range calls {
		at := fmt.Sprintf("%s[%d]", at, i)
		st, err := f.step(at, c.Tool, c.Args)
		if err != nil {
			return nil, err
		}
		switch {
		case c.Error != nil:
			st.result, st.failed = quoted(*c.Error), true
		case c.R != nil:
			result, ok := f.results[*c.R]
			if !ok {
				return nil, malformed(f.name, at+".r", "there is no result %.40q", *c.R)
			}
			st.result = result
		default:
			return nil, malformed(f.name, at+".r", "is missing, and there is no error")
		}
		out[i] = st
	}
	return out, nil
}

func (f *file) step(at, tool string, args json.RawMessage) (step, error) {
	if tool == "" {
		return step{}, malformed(f.name, at+".tool", "is missing")
	}
	// A model may have given anything, and the environment refused it.
	if len(args) == 0 || args[0] != '{' && f.head.Format != runsFormat {
		return step{}, malformed(f.name, at+".args", "is no object")
	}
	canonical, err := call.Canonical(args, limits())
	if err != nil {
		return step{}, malformed(f.name, at+".args", "%v", err)
	}
	return step{tool: tool, args: canonical}, nil
}

type traceFile struct {
	Attacks struct {
		Important struct {
			Template string `json:"template"`
			User     string `json:"user"`
			Model    string `json:"model"`
		} `json:"important_instructions"`
	} `json:"attacks"`
	Vectors map[string]struct {
		Default *string `json:"default"`
	} `json:"injection_vectors"`
	UserTasks []struct {
		ID     string    `json:"id"`
		Prompt string    `json:"prompt"`
		Calls  []rawCall `json:"calls"`
	} `json:"user_tasks"`
	InjectionTasks []struct {
		ID     string    `json:"id"`
		Goal   string    `json:"goal"`
		Source string    `json:"gt_source"`
		Calls  []rawCall `json:"calls"`
	} `json:"injection_tasks"`
	Cases []struct {
		UserTask       string          `json:"user_task"`
		InjectionTask  string          `json:"injection_task"`
		Vectors        []string        `json:"vectors"`
		First          *int            `json:"first_injected_call"`
		AttackCalls    json.RawMessage `json:"attack_calls"`
		UserCalls      *[]rawCall      `json:"user_calls"`
		SecurityInsert *bool           `json:"security_insert"`
		SecurityAppend *bool           `json:"security_append"`
	} `json:"cases"`
	keeping
}

// traces reads tasks and cases of ground truth.
func (f *file) traces(data []byte) ([]run, error) {
	g := groundTruth{file: f, harmless: map[string][]byte{}, users: map[string]run{}, attacks: map[string]attack{}}
	if err := unmarshal(f.name, "", data, &g.traceFile); err != nil {
		return nil, err
	}
	if err := f.stored(g.keeping); err != nil {
		return nil, err
	}
	for id, v := range g.Vectors {
		if v.Default == nil {
			return nil, malformed(f.name, "injection_vectors."+id+".default", "is missing")
		}
		g.harmless[id] = inside(*v.Default)
	}
	runs, err := g.userRuns()
	if err != nil {
		return nil, err
	}
	if err := g.readAttacks(); err != nil {
		return nil, err
	}
	for i := range g.Cases {
		r, counts, err := g.caseRun(i)
		if err != nil {
			return nil, err
		}
		if counts {
			runs = append(runs, r)
		}
	}
	return runs, f.bounded(runs)
}

// groundTruth is a file of traces while it is read.
type groundTruth struct {
	*file
	traceFile
	harmless map[string][]byte // injection vector -> what stands there without an attack
	users    map[string]run    // by task
	attacks  map[string]attack // by injection task
}

// attack is an injection task.
type attack struct {
	goal, source string
	calls        []step
}

func (g *groundTruth) userRuns() ([]run, error) {
	var runs []run
	for i, u := range g.UserTasks {
		at := fmt.Sprintf("user_tasks[%d]", i)
		if _, twice := g.users[u.ID]; twice || u.ID == "" {
			return nil, malformed(g.name, at+".id", "%.40q is missing or there twice", u.ID)
		}
		calls, err := g.steps(at+".calls", u.Calls)
		if err != nil {
			return nil, err
		}
		g.users[u.ID] = run{task: u.ID, prompt: u.Prompt, fill: g.harmless, calls: calls}
		runs = append(runs, g.users[u.ID])
	}
	return runs, nil
}

func (g *groundTruth) readAttacks() error {
	for i, a := range g.InjectionTasks {
		at := fmt.Sprintf("injection_tasks[%d]", i)
		if _, twice := g.attacks[a.ID]; twice || a.ID == "" {
			return malformed(g.name, at+".id", "%.40q is missing or there twice", a.ID)
		}
		switch a.Source {
		case "upstream", "written_here", "text_only":
		default:
			return malformed(g.name, at+".gt_source", "%.40q is not known", a.Source).Try("use upstream, written_here or text_only")
		}
		calls, err := g.steps(at+".calls", a.Calls)
		if err != nil {
			return err
		}
		g.attacks[a.ID] = attack{a.Goal, a.Source, calls}
	}
	return nil
}

// caseRun is a user task with an attack in it: its calls up to the one whose result carries the attack, then the attacker's. An attack whose
// calls were written for the trace does not count.
func (g *groundTruth) caseRun(i int) (r run, counts bool, err error) {
	c, at := &g.Cases[i], fmt.Sprintf("cases[%d]", i)
	user, ok := g.users[c.UserTask]
	if !ok {
		return run{}, false, malformed(g.name, at+".user_task", "there is no user task %.40q", c.UserTask)
	}
	a, ok := g.attacks[c.InjectionTask]
	if !ok {
		return run{}, false, malformed(g.name, at+".injection_task", "there is no injection task %.40q", c.InjectionTask)
	}
	if a.source == "written_here" {
		return run{}, false, nil
	}
	r = run{task: c.UserTask, injection: c.InjectionTask, prompt: user.prompt, attacked: true, textOnly: a.source == "text_only", calls: user.calls, attack: a.calls}
	if r.textOnly { // nothing to replay
		return r, true, nil
	}
	if c.SecurityInsert == nil || c.SecurityAppend == nil {
		return run{}, false, malformed(g.name, at+".security_insert", "it or security_append is missing")
	}
	r.reached = *c.SecurityInsert || *c.SecurityAppend
	if c.UserCalls != nil {
		if r.calls, err = g.steps(at+".user_calls", *c.UserCalls); err != nil {
			return run{}, false, err
		}
	}
	if string(c.AttackCalls) != `"same"` {
		var own []rawCall
		if err := unmarshal(g.name, at+".attack_calls", c.AttackCalls, &own); err != nil {
			return run{}, false, err
		}
		if r.attack, err = g.steps(at+".attack_calls", own); err != nil {
			return run{}, false, err
		}
	}
	if len(r.attack) == 0 {
		return run{}, false, malformed(g.name, at+".attack_calls", "is empty, and the injection task is not text_only")
	}
	if c.First == nil || *c.First < 0 || *c.First >= len(r.calls) {
		return run{}, false, malformed(g.name, at+".first_injected_call", "is not the index of a call of %.40s", c.UserTask)
	}
	r.calls = r.calls[:*c.First+1]
	r.fill, err = g.injected(at, c.Vectors, a.goal)
	return r, true, err
}

// injected is what stands at the markers of a case: the attack in its vectors, and what is harmless elsewhere.
func (g *groundTruth) injected(at string, vectors []string, goal string) (map[string][]byte, error) {
	how := g.Attacks.Important
	if how.Template == "" {
		return nil, malformed(g.name, "attacks.important_instructions.template", "is missing")
	}
	text := inside(strings.NewReplacer("{goal}", goal, "{user}", how.User, "{model}", how.Model, "{{", "{", "}}", "}").Replace(how.Template))
	fill := maps.Clone(g.harmless)
	for i, v := range vectors {
		if _, ok := g.harmless[v]; !ok {
			return nil, malformed(g.name, fmt.Sprintf("%s.vectors[%d]", at, i), "there is no injection vector %.40q", v)
		}
		fill[v] = text
	}
	return fill, nil
}

// bounded refuses a file in which what stands at the markers makes a call or a result too long.
func (f *file) bounded(runs []run) error {
	for _, r := range runs {
		for _, st := range slices.Concat(r.calls, r.attack) {
			if n := max(grown(st.args, r.fill), grown(st.result, r.fill)); n > MaxBytes {
				return malformed(f.name, r.task, "with what stands at its markers, a call of %.80s or its result has up to %d bytes, which is over %d MiB", st.tool, n, MaxBytes>>20)
			}
		}
	}
	return nil
}

type runsFile struct {
	Runs []struct {
		UserTask      string    `json:"user_task"`
		InjectionTask *string   `json:"injection_task"`
		Prompt        string    `json:"prompt"`
		Security      *bool     `json:"security"`
		Calls         []rawCall `json:"calls"`
	} `json:"runs"`
	keeping
}

// recorded reads runs of a real model. There the attack stands in the results as it came, and whose a call is nobody can tell.
func (f *file) recorded(data []byte) ([]run, error) {
	var t runsFile
	if err := unmarshal(f.name, "", data, &t); err != nil {
		return nil, err
	}
	if err := f.stored(t.keeping); err != nil {
		return nil, err
	}
	var runs []run
	for i, r := range t.Runs {
		at := fmt.Sprintf("runs[%d]", i)
		if r.UserTask == "" {
			return nil, malformed(f.name, at+".user_task", "is missing")
		}
		calls, err := f.steps(at+".calls", r.Calls)
		if err != nil {
			return nil, err
		}
		if r.InjectionTask == nil {
			runs = append(runs, run{task: r.UserTask, prompt: r.Prompt, calls: calls})
			continue
		}
		if r.Security == nil {
			return nil, malformed(f.name, at+".security", "is missing")
		}
		if *r.Security {
			runs = append(runs, run{task: r.UserTask, injection: *r.InjectionTask, prompt: r.Prompt, attacked: true, reached: true, attack: calls})
		}
	}
	return runs, nil
}

type injecFile struct {
	UserTasks []struct {
		ID     string         `json:"id"`
		Prompt string         `json:"prompt"`
		Calls  []rawInjecCall `json:"calls"`
	} `json:"user_tasks"`
	InjectionTasks []struct {
		ID    string         `json:"id"`
		Goal  string         `json:"goal"`
		Calls []rawInjecCall `json:"calls"`
	} `json:"injection_tasks"`
	Cases [][]string `json:"cases"`
}

// rawInjecCall has its result in place, as a text. Args that are no object are not known.
type rawInjecCall struct {
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`
	Result string          `json:"result"`
}

// injec reads tasks and cases of InjecAgent: one marker per task, and attacks whose arguments the file mostly doesn't have. An attacker's
// call without arguments is judged with none: that asks wherever arguments would have been looked at.
func (f *file) injec(data []byte) ([]run, error) {
	var t injecFile
	if err := unmarshal(f.name, "", data, &t); err != nil {
		return nil, err
	}
	steps := func(at string, calls []rawInjecCall) ([]step, error) {
		out := make([]step, len(calls))
		for i, c := range calls {
			if len(c.Args) == 0 || c.Args[0] != '{' {
				c.Args = json.RawMessage("{}")
			}
			var err error
			if out[i], err = f.step(fmt.Sprintf("%s[%d]", at, i), c.Tool, c.Args); err != nil {
				return nil, err
			}
			out[i].result = quoted(c.Result)
		}
		return out, nil
	}
	var runs []run
	users := map[string]int{}
	for i, u := range t.UserTasks {
		at := fmt.Sprintf("user_tasks[%d]", i)
		if _, twice := users[u.ID]; twice || u.ID == "" {
			return nil, malformed(f.name, at+".id", "%.40q is missing or there twice", u.ID)
		}
		calls, err := steps(at+".calls", u.Calls)
		if err != nil {
			return nil, err
		}
		users[u.ID] = len(runs)
		runs = append(runs, run{task: u.ID, prompt: u.Prompt, fill: map[string][]byte{"": {}}, calls: calls})
	}
	attacks := map[string]run{}
	for i, a := range t.InjectionTasks {
		at := fmt.Sprintf("injection_tasks[%d]", i)
		if _, twice := attacks[a.ID]; twice || a.ID == "" {
			return nil, malformed(f.name, at+".id", "%.40q is missing or there twice", a.ID)
		}
		calls, err := steps(at+".calls", a.Calls)
		if err != nil {
			return nil, err
		}
		if len(calls) == 0 {
			return nil, malformed(f.name, at+".calls", "is empty")
		}
		attacks[a.ID] = run{injection: a.ID, attacked: true, reached: true, fill: map[string][]byte{"": inside(a.Goal)}, attack: calls}
	}
	for i, c := range t.Cases {
		at := fmt.Sprintf("cases[%d]", i)
		if len(c) != 2 {
			return nil, malformed(f.name, at, "is not a user task and an injection task")
		}
		user, ok := users[c[0]]
		r, known := attacks[c[1]]
		if !ok || !known {
			return nil, malformed(f.name, at, "names a user task or an injection task that is not there")
		}
		r.task, r.prompt, r.calls = c[0], runs[user].prompt, runs[user].calls
		runs = append(runs, r)
	}
	return runs, f.bounded(runs)
}
