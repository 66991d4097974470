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
	textOnly map[string]bool // injection tasks that have no call
	unmarked int             // attacked runs that do not say which calls are the attacker's
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
	rec := &Recording{file: name, suite: f.head.Suite, textOnly: map[string]bool{}}
	for _, t := range f.head.Injections {
		rec.textOnly[t.ID] = t.TextOnly || t.Source == textOnlySource
	}
	var err error
	switch f.head.Format {
	case tracesFormat:
		rec.runs, err = f.traces(data)
	case runsFormat:
		rec.runs, rec.unmarked, err = f.recorded(data)
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
		// A file of recorded runs says here which attacks are text only.
		Injections []struct {
			ID       string `json:"id"`
			Source   string `json:"gt_source"`
			TextOnly bool   `json:"text_only"`
		} `json:"injection_tasks"`
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
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`
	R      *string         `json:"r"`
	Result string          `json:"result"` // its text, of injecFormat, which keeps nothing apart
	Error  *string         `json:"error"`
	By     string          `json:"by"` // whose call it is: user or attacker; "" if nobody says
}

// Whose call one is.
const (
	byUser     = "user"
	byAttacker = "attacker"
)

// textOnlySource is the source of an attack without any call.
const textOnlySource = "text_only"

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
		case f.head.Format == injecFormat:
			st.result = quoted(c.Result)
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
		if c.By != "" && c.By != byUser && c.By != byAttacker {
			return nil, malformed(f.name, at+".by", "%.40q is not known", c.By).Try("use %s or %s", byUser, byAttacker)
		}
		st.by = c.By
		out[i] = st
	}
	return out, nil
}

func (f *file) step(at, tool string, args json.RawMessage) (step, error) {
	if tool == "" {
		return step{}, malformed(f.name, at+".tool", "is missing")
	}
	isObject := len(args) > 0 && args[0] == '{'
	switch {
	case isObject:
	case f.head.Format == injecFormat: // it mostly doesn't have them
		args = json.RawMessage("{}")
	case len(args) == 0 || f.head.Format != runsFormat: // a model may have given anything, and the environment refused it
		return step{}, malformed(f.name, at+".args", "is no object")
	}
	canonical, err := call.Canonical(args, limits())
	if err != nil {
		return step{}, malformed(f.name, at+".args", "%v", err)
	}
	return step{tool: tool, args: canonical}, nil
}

// rawTask is a person's task, or an attacker's.
type rawTask struct {
	ID     string    `json:"id"`
	Prompt string    `json:"prompt"`
	Goal   string    `json:"goal"`
	Source string    `json:"gt_source"`
	Calls  []rawCall `json:"calls"`

	TextOnly bool `json:"text_only"`
}

// task is one with its calls read.
type task struct {
	rawTask
	calls []step
}

// tasks reads the list of tasks in a field, each by its id.
func (f *file) tasks(field string, raw []rawTask) (map[string]task, error) {
	all := map[string]task{}
	for i, t := range raw {
		at := fmt.Sprintf("%s[%d]", field, i)
		if _, twice := all[t.ID]; twice || t.ID == "" {
			return nil, malformed(f.name, at+".id", "%.40q is missing or there twice", t.ID)
		}
		calls, err := f.steps(at+".calls", t.Calls)
		if err != nil {
			return nil, err
		}
		all[t.ID] = task{t, calls}
	}
	return all, nil
}

// userRuns are the runs of the persons' tasks with no attack in them.
func userRuns(raw []rawTask, users map[string]task, harmless map[string][]byte) []run {
	runs := make([]run, len(raw))
	for i, t := range raw {
		runs[i] = run{task: t.ID, prompt: t.Prompt, fill: harmless, calls: users[t.ID].calls}
	}
	return runs
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
	UserTasks      []rawTask `json:"user_tasks"`
	InjectionTasks []rawTask `json:"injection_tasks"`
	Cases          []struct {
		UserTask       string          `json:"user_task"`
		InjectionTask  string          `json:"injection_task"`
		Vectors        []string        `json:"vectors"`
		First          *int            `json:"first_injected_call"`
		AttackCalls    json.RawMessage `json:"attack_calls"`
		UserCalls      *[]rawCall      `json:"user_calls"`
		SecurityInsert *bool           `json:"security_insert"`
		SecurityAppend *bool           `json:"security_append"`
		SecurityBenign bool            `json:"security_benign"` // the user task reaches the attack's goal by itself
	} `json:"cases"`
	keeping
}

// traces reads tasks and cases of ground truth.
func (f *file) traces(data []byte) ([]run, error) {
	g := groundTruth{file: f, harmless: map[string][]byte{}}
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
	var err error
	if g.users, err = f.tasks("user_tasks", g.UserTasks); err != nil {
		return nil, err
	}
	if g.attacks, err = f.tasks("injection_tasks", g.InjectionTasks); err != nil {
		return nil, err
	}
	for i, a := range g.InjectionTasks {
		if !slices.Contains([]string{"upstream", "written_here", textOnlySource}, a.Source) {
			return nil, malformed(f.name, fmt.Sprintf("injection_tasks[%d].gt_source", i), "%.40q is not known", a.Source).Try("use upstream, written_here or %s", textOnlySource)
		}
	}
	runs := userRuns(g.UserTasks, g.users, g.harmless)
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
	users    map[string]task
	attacks  map[string]task
}

// caseRun is a user task with an attack in it: its calls up to the one whose result carries the attack, then the attacker's. An attack whose
// calls were written for the trace does not count, nor one whose goal the user task reaches by itself.
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
	if a.Source == "written_here" || c.SecurityBenign {
		return run{}, false, nil
	}
	r = run{task: c.UserTask, injection: c.InjectionTask, prompt: user.Prompt, attacked: true, textOnly: a.TextOnly || a.Source == textOnlySource, calls: user.calls, attack: a.calls}
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
	if len(r.attackers()) == 0 {
		return run{}, false, malformed(g.name, at+".attack_calls", "has no call of the attacker's, and the injection task is not text_only")
	}
	if madeBy(user.calls, r.attackers()) {
		return run{}, false, nil
	}
	if c.First == nil || *c.First < 0 || *c.First >= len(r.calls) {
		return run{}, false, malformed(g.name, at+".first_injected_call", "is not the index of a call of %.40s", c.UserTask)
	}
	r.calls = r.calls[:*c.First+1]
	r.fill, err = g.injected(at, c.Vectors, a.Goal)
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
	Runs []recordedRun `json:"runs"`
	keeping
}

type recordedRun struct {
	UserTask      string    `json:"user_task"`
	InjectionTask *string   `json:"injection_task"`
	Attack        string    `json:"attack"`
	Prompt        string    `json:"prompt"`
	Security      *bool     `json:"security"`
	TextOnly      bool      `json:"text_only"`
	Calls         []rawCall `json:"calls"`
}

// attacked reports whether an attack was in what the run read. A run may also say without one whether it reaches an attack's goal.
func (r recordedRun) attacked() bool { return r.InjectionTask != nil && r.Attack != "none" }

// recorded reads runs of a real model. There the attack stands in the results as it came. A run may mark the attacker's calls; of one that marks none
// nobody can tell whose a call is. An attacked run whose goal was not reached is no case, nor is one whose goal the same user task reaches without an
// attack.
func (f *file) recorded(data []byte) (runs []run, unmarked int, err error) {
	var t runsFile
	if err := unmarshal(f.name, "", data, &t); err != nil {
		return nil, 0, err
	}
	if err := f.stored(t.keeping); err != nil {
		return nil, 0, err
	}
	steps := make([][]step, len(t.Runs))
	benign := map[string][]int{}          // user task -> its runs without an attack
	reachedAnyway := map[[2]string]bool{} // user task and injection task
	for i, r := range t.Runs {
		at := fmt.Sprintf("runs[%d]", i)
		if r.UserTask == "" {
			return nil, 0, malformed(f.name, at+".user_task", "is missing")
		}
		if steps[i], err = f.steps(at+".calls", r.Calls); err != nil {
			return nil, 0, err
		}
		if r.InjectionTask != nil && r.Security == nil {
			return nil, 0, malformed(f.name, at+".security", "is missing")
		}
		if r.attacked() {
			continue
		}
		benign[r.UserTask] = append(benign[r.UserTask], i)
		if r.InjectionTask != nil && *r.Security {
			reachedAnyway[[2]string{r.UserTask, *r.InjectionTask}] = true
		}
	}
	for i, r := range t.Runs {
		if !r.attacked() {
			runs = append(runs, run{task: r.UserTask, prompt: r.Prompt, calls: steps[i]})
			continue
		}
		a := run{task: r.UserTask, injection: *r.InjectionTask, prompt: r.Prompt, attacked: true, reached: *r.Security, textOnly: r.TextOnly, attack: steps[i]}
		marked := a.marksAttacker()
		sameAsBenign := func(i int) bool { return marked && madeBy(steps[i], a.attackers()) }
		if !a.reached || reachedAnyway[[2]string{a.task, a.injection}] || slices.ContainsFunc(benign[a.task], sameAsBenign) {
			continue
		}
		a.textOnly = a.textOnly || len(a.attackers()) == 0
		if !a.textOnly && !slices.ContainsFunc(a.attack, func(s step) bool { return s.by != "" }) {
			unmarked++
		}
		runs = append(runs, a)
	}
	return runs, unmarked, nil
}

type injecFile struct {
	UserTasks      []rawTask  `json:"user_tasks"`
	InjectionTasks []rawTask  `json:"injection_tasks"`
	Cases          [][]string `json:"cases"`
}

// injec reads tasks and cases of InjecAgent: one marker per task, and attacks whose arguments the file mostly doesn't have. An attacker's
// call without arguments is judged with none: that asks wherever arguments would have been looked at.
func (f *file) injec(data []byte) ([]run, error) {
	var t injecFile
	if err := unmarshal(f.name, "", data, &t); err != nil {
		return nil, err
	}
	users, err := f.tasks("user_tasks", t.UserTasks)
	if err != nil {
		return nil, err
	}
	attacks, err := f.tasks("injection_tasks", t.InjectionTasks)
	if err != nil {
		return nil, err
	}
	for i, a := range t.InjectionTasks {
		if len(a.Calls) == 0 {
			return nil, malformed(f.name, fmt.Sprintf("injection_tasks[%d].calls", i), "is empty")
		}
	}
	runs := userRuns(t.UserTasks, users, map[string][]byte{"": {}})
	for i, c := range t.Cases {
		at := fmt.Sprintf("cases[%d]", i)
		if len(c) != 2 {
			return nil, malformed(f.name, at, "is not a user task and an injection task")
		}
		user, ok := users[c[0]]
		a, known := attacks[c[1]]
		if !ok || !known {
			return nil, malformed(f.name, at, "names a user task or an injection task that is not there")
		}
		runs = append(runs, run{
			task: user.ID, injection: a.ID, prompt: user.Prompt, attacked: true, reached: true, fill: map[string][]byte{"": inside(a.Goal)}, calls: user.calls, attack: a.calls,
		})
	}
	return runs, f.bounded(runs)
}
