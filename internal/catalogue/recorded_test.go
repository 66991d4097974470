package catalogue_test

import (
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/provenance"
)

// TestLabelsForOneDefinition: a classification that is for recorded definitions holds for these alone. Any other one, of the same tool, has what is said without it, also
// after a person accepts it; the rest of the server keeps its labels.
func TestLabelsForOneDefinition(t *testing.T) {
	define := func(name, description string) call.Definition {
		return definition("known", name, description)
	}
	recorded := map[string]call.Definition{"read": define("read", "Reads."), "list": define("list", "Lists.")}
	w := newWorld(t, func(o *catalogue.Options) {
		o.Classify = func(server, tool string) catalogue.Classification {
			otherwise := classify(server, tool)
			if server != "known" || recorded[tool].Hash == "" {
				return otherwise
			}
			return catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.UntrustedOutput, Listed: true, Named: true, TrustFirstSight: true,
				Definitions: []string{"another", recorded[tool].Hash}, Otherwise: &otherwise}
		}
	})
	standing := func(tool string) catalogue.Standing { return w.c.ByID("known." + tool).Standing }
	offer := func(defs ...call.Definition) {
		t.Helper()
		if err := w.c.UpdateDefinitions(t.Context(), "known", defs); err != nil {
			t.Fatal(err)
		}
	}
	changed := define("read", "Reads, and more.")
	offer(recorded["read"], recorded["list"])
	for tool := range recorded {
		if op := w.c.ByID("known." + tool); op.Standing != catalogue.Active || op.Flow.Effect != flow.Read || op.Unread {
			t.Errorf("%s as it is recorded: %s, %s, unread %v", tool, op.Standing, op.Flow.Effect, op.Unread)
		}
	}
	offer(changed, recorded["list"])
	if standing("read") != catalogue.Quarantined || standing("list") != catalogue.Active {
		t.Errorf("with another definition: read %s, list %s", standing("read"), standing("list"))
	}
	if err := w.c.AcceptTool(t.Context(), "known.read", changed.Hash, "person:ann"); err != nil {
		t.Fatal(err)
	}
	if op := w.c.ByID("known.read"); op.Standing != catalogue.Unlisted || op.Flow.Effect != flow.Write || op.Flow.Sensitivity != flow.External {
		t.Errorf("accepted, and not the recorded one: %s, %s, %s", op.Standing, op.Flow.Effect, op.Flow.Sensitivity)
	}
	if standing("list") != catalogue.Active {
		t.Error("the rest of the server lost its labels")
	}
	offer(recorded["read"], recorded["list"])
	if err := w.c.AcceptTool(t.Context(), "known.read", recorded["read"].Hash, "person:ann"); err != nil {
		t.Fatal(err)
	}
	if op := w.c.ByID("known.read"); op.Standing != catalogue.Active || op.Flow.Effect != flow.Read {
		t.Errorf("the recorded one again: %s, %s", op.Standing, op.Flow.Effect)
	}
}

// TestOtherDefinitionsAtFirstSight: a server whose first definition is not the recorded one gets no label for it.
func TestOtherDefinitionsAtFirstSight(t *testing.T) {
	w := newWorld(t, func(o *catalogue.Options) {
		o.Classify = func(server, tool string) catalogue.Classification {
			otherwise := classify(server, tool)
			return catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Listed: true, Named: true, Definitions: []string{"recorded"}, Otherwise: &otherwise}
		}
	})
	if err := w.c.UpdateDefinitions(t.Context(), "known", []call.Definition{definition("known", "read", "Reads.")}); err != nil {
		t.Fatal(err)
	}
	if op := w.c.ByID("known.read"); op.Standing != catalogue.Unlisted || op.Flow.Effect != flow.Write {
		t.Errorf("%s, %s", op.Standing, op.Flow.Effect)
	}
}
