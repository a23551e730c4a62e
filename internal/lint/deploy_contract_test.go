package lint

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

const asyncapiPath = "deploy/asyncapi.yaml"

// TestDeploy_AsyncAPIDescribesTheEvents validates the published samples of the event contract against the document that
// other teams read: one that drifts from the code is worse than none.
func TestDeploy_AsyncAPIDescribesTheEvents(t *testing.T) {
	t.Parallel()
	schema := contractSchema(t, "Payload")
	tree, err := Load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	samples := 0
	for _, f := range tree.Files {
		if !within(f.Path, "devicestate/testdata") || path.Ext(f.Path) != ".json" || !bytes.Contains(f.Data, []byte(`"message_id"`)) ||
			bytes.Contains(f.Data, []byte(`"$schema"`)) {
			continue
		}
		samples++
		if err := validate(t, schema, f.Data); err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
	}
	if samples == 0 {
		t.Error("found no published sample in devicestate/testdata")
	}
}

// TestDeploy_AsyncAPIIsChecked proves that the schema refuses what is no event.
func TestDeploy_AsyncAPIIsChecked(t *testing.T) {
	t.Parallel()
	schema := contractSchema(t, "Payload")
	good := `{"message_id":"01890a5d-ac96-774b-bcce-b302099a8057","device_id":"acme/A-001","hub_id":"dock-1","stream":"state","epoch":1,"sequence":7,` +
		`"occurred_at":null,"received_at":"2026-01-02T03:04:05.701234Z","counter":5,"boot":null,"marks":[],` +
		`"totals":{"missed":0,"late":0,"duplicate":0,"quarantined":0},"state":{}}`
	if err := validate(t, schema, []byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, swap := range map[string][2]string{
		"sequence 0":         {`"sequence":7`, `"sequence":0`},
		"epoch as text":      {`"epoch":1`, `"epoch":"1"`},
		"no stream":          {`"stream":"state",`, ``},
		"milliseconds":       {`.701234Z`, `.701Z`},
		"space in device id": {`acme/A-001`, `acme/A 001`},
		"no total":           {`"late":0,`, ``},
	} {
		if err := validate(t, schema, []byte(strings.Replace(good, swap[0], swap[1], 1))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestDeploy_AsyncAPIDescribesTheHeaders validates the headers of the published samples, "name: value" a line.
func TestDeploy_AsyncAPIDescribesTheHeaders(t *testing.T) {
	t.Parallel()
	schema := contractSchema(t, "Headers")
	tree, err := Load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	samples := 0
	for _, f := range tree.Files {
		if !within(f.Path, "devicestate/testdata") || path.Ext(f.Path) != ".headers" {
			continue
		}
		samples++
		headers := map[string]any{}
		for line := range strings.Lines(string(f.Data)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			headers[name] = value
		}
		if err := schema.Validate(headers); err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
		headers["ce_sequence"] = "7" // not 19 digits: proves that the schema looks
		if schema.Validate(headers) == nil {
			t.Errorf("%s: a sequence that does not sort as text was accepted", f.Path)
		}
	}
	if samples == 0 {
		t.Error("found no published headers in devicestate/testdata")
	}
}

// TestDeploy_AsyncAPIHeadersAreComplete compares the documented headers with those of the contract, as the
// code writes them: every "ce_…" that appears in the code must be documented.
func TestDeploy_AsyncAPIHeadersAreComplete(t *testing.T) {
	t.Parallel()
	documented := string(readFile(t, asyncapiPath))
	tree, err := Load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	for name, where := range headerNames(tree) {
		if !strings.Contains(documented, "        "+name+":") {
			t.Errorf("%s: header %s is not in %s", where, name, asyncapiPath)
		}
	}
}

func contractSchema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal(readFile(t, asyncapiPath), &doc); err != nil {
		t.Fatal(err)
	}
	plain, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	resource, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("asyncapi.json", resource); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("asyncapi.json#/components/schemas/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func validate(t *testing.T, schema *jsonschema.Schema, data []byte) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(value)
}
