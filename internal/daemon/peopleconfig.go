package daemon

import (
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/caller"
	"sallyport.example/internal/identity"
)

// PersonConfig is a human with roles.
type PersonConfig struct {
	ID         string   `yaml:"id" json:"id" jsonschema:"Id of the person."`
	Name       string   `yaml:"name,omitempty" json:"name,omitempty" jsonschema:"Name as shown."`
	Roles      []string `yaml:"roles" json:"roles" jsonschema:"Of viewer, approver, operator, auditor, admin."`
	Identities []string `yaml:"identities,omitempty" json:"identities,omitempty" jsonschema:"The person's own addresses and accounts, as alice@example.com: where a call for this person sends to them, nobody is asked."`
}

// peopleConfirm is the field that says how people confirm what they do.
const peopleConfirm = "people.confirm"

// confirmTerminal is the value of people.confirm that asks people at their terminals.
const confirmTerminal = "terminal"

// PeopleConfig says who the people are, and how they confirm what they do. It is a list of persons, or a map with the list.
type PeopleConfig struct {
	Confirm string         `yaml:"confirm,omitempty" json:"confirm,omitempty" jsonschema:"terminal: what people do with a token that is more than to stop something has to be confirmed at the terminal that the command is given in. The console is not concerned; a token alone signs nobody in there. Default: nothing is confirmed."`
	List    []PersonConfig `yaml:"list,omitempty" json:"list,omitempty" jsonschema:"The people."`
	mapped  bool           // it was written as a map
}

// peopleMap is the longer form, as it stands in the file.
type peopleMap PeopleConfig

// UnmarshalYAML reads either form.
func (p *PeopleConfig) UnmarshalYAML(n *yaml.Node) error {
	switch n.Kind {
	case yaml.SequenceNode:
		return n.Load(&p.List, yaml.WithKnownFields())
	case yaml.MappingNode:
		var m peopleMap
		err := n.Load(&m, yaml.WithKnownFields())
		*p, p.mapped = PeopleConfig(m), true
		return err
	}
	return errors.New("people is a list of persons, or a map: people: {confirm: terminal, list: [{id: alice, roles: [admin]}]}")
}

// MarshalYAML writes the shorter form where it says everything.
func (p PeopleConfig) MarshalYAML() (any, error) {
	if p.Confirm == "" {
		return p.List, nil
	}
	return peopleMap(p), nil
}

// confirms tells whether people confirm at their terminals what they do with a token.
func (p PeopleConfig) confirms() bool { return p.Confirm == confirmTerminal }

// IsZero tells whether nothing is configured.
func (p PeopleConfig) IsZero() bool { return p.Confirm == "" && p.List == nil }

// field is the name of an entry of the list in the file.
func (p PeopleConfig) field(i int) string {
	if p.mapped {
		return fmt.Sprintf("people.list[%d]", i)
	}
	return fmt.Sprintf("people[%d]", i)
}

// peopleSchema is the schema of both forms.
func peopleSchema() (*jsonschema.Schema, error) {
	s, err := jsonschema.For[peopleMap](nil)
	if err != nil {
		return nil, err
	}
	person := s.Properties["list"].Items
	person.Properties["roles"].Items.AnyOf = wordsOrReference("viewer", "approver", "operator", "auditor", "admin")
	s.Properties["confirm"].AnyOf = wordsOrReference(confirmTerminal)
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "array", Items: person}, s}}, nil
}

func (c *Config) checkPeople(p *complaints) {
	p.oneOf(peopleConfirm, c.People.Confirm, confirmTerminal)
	if c.People.confirms() && !caller.Sees() {
		p.bad(peopleConfirm, "remove it", "this system has no /proc, in which the gateway looks for the terminal of who asks")
	}
	ids := map[string]bool{}
	for i, person := range c.People.List {
		field := c.People.field(i)
		if err := identity.CheckID(person.ID); err != nil {
			p.bad(field+".id", "", "%v", err)
		}
		if ids[person.ID] {
			p.bad(field+".id", "", "%q is there twice", person.ID)
		}
		ids[person.ID] = true
		for _, r := range person.Roles {
			if _, err := identity.ParseRole(r); err != nil {
				p.bad(field+".roles", "", "%v", err)
			}
		}
	}
}
