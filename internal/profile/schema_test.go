package profile

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"skep.dev/skep/internal/strict"
)

const schemaFile = "../../docs/schemas/profile.schema.json"

type schemaNode struct {
	Properties map[string]*schemaNode `json:"properties"`
	Items      *schemaNode            `json:"items"`
	AnyOf      []*schemaNode          `json:"anyOf"`
	Not        *struct{}              `json:"not"`
}

// The schema and the parser have the same keys, in every mapping.
func TestSchemaHasTheKeys(t *testing.T) {
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var root schemaNode
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	for section, keys := range sectionKeys() {
		node := &root
		switch name, isList := strings.CutSuffix(section, "[]"); {
		case section == "budget.*":
			node = root.Properties["budget"].Properties["memory"].AnyOf[1]
		case isList:
			node = root.Properties[name].Items
		case section != "":
			node = root.Properties[section]
		}
		got := slices.Sorted(maps.Keys(node.Properties))
		if diff := cmp.Diff(slices.Sorted(slices.Values(keys)), got); diff != "" {
			t.Errorf("keys of %q:\n%s", section, diff)
		}
	}
	for key, node := range root.Properties {
		if refused := node.Not != nil; refused != slices.Contains(laterKeys(), key) {
			t.Errorf("%s: refused by the schema %v, by the parser %v", key, refused, !refused)
		}
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// value is what an editor hands to a schema.
func value(n *strict.Node) any {
	switch n.Kind {
	case strict.Map:
		m := map[string]any{}
		for _, f := range n.Fields {
			m[f.Key] = value(f.Value)
		}
		return m
	case strict.List:
		l := []any{}
		for _, item := range n.Items {
			l = append(l, value(item))
		}
		return l
	case strict.Int, strict.Float:
		return json.Number(strings.ReplaceAll(n.Text, "_", ""))
	case strict.Bool:
		return n.Text == "true"
	case strict.String:
		return n.Text
	}
	return nil
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// samples are all profiles that we publish.
func samples(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{"whole": whole, "effective": mustParse(t, whole).Effective()}
	for _, name := range Names() {
		src, err := ShippedSource(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(src)
	}
	docs, err := os.ReadFile("../../docs/profile.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range yamlBlock.FindAllStringSubmatch(string(docs), -1) {
		out["docs: "+block[1]] = block[1]
	}
	return out
}

func TestSamplesPass(t *testing.T) {
	schema := compileSchema(t)
	all := samples(t)
	if len(all) < 8 {
		t.Errorf("%d samples: the examples of docs/profile.md are not found", len(all))
	}
	for name, src := range all {
		mustParse(t, src)
		node, _ := strict.Read(name, []byte(src))
		if err := schema.Validate(value(node)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the parser refuses by shape, an editor marks too.
func TestSchemaRefuses(t *testing.T) {
	schema := compileSchema(t)
	for _, src := range []string{
		"pathes: []", "version: v2", "paths: []", "paths: [{path: x}]", "paths: [{path: x, rights: rwx}]",
		"net: [{name: a.example, ip: 10.0.0.1}]", "net: [{ports: [443]}]", "net: [{name: a.example, ask: true, hold: 5}]",
		"net: [{name: a.example, transports: [sctp]}]", "net: [{name: a.example, ports: [0]}]", "unlisted: maybe",
		"model: {tokens: 1}", "model: {roles: [a], tokens: 0}", "budget: {memory: 4GB}", "budget: {memory: 4}",
		"budget: {wall: 1.5h}", "budget: {memory: {if_available: true}}", "ledger: {model: full}", "ledger: {exec: batched}",
		"home: ../x", "env: {set: {A: 1}}", "terminal: true", "secrets: []", "secrets: [{name: a}]", "extends: x", "spawn: {depth: 1}",
	} {
		node, _ := strict.Read("x", []byte(src))
		if schema.Validate(value(node)) == nil {
			t.Errorf("the schema takes %s", src)
		}
		if p, _ := ParseAt("x", Place{Dir: testDir}, []byte(src)); p != nil {
			t.Errorf("the parser takes %s", src)
		}
	}
}
