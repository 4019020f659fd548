package kind

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"skep.dev/skep/internal/ledger/jcs"
)

var update = flag.Bool("update", false, "write docs/schemas/ledger")

const published = "../../../docs/schemas/ledger"

// The published schemas are those of the types, no more and no fewer.
func TestSchemasArePublished(t *testing.T) {
	want := map[string]bool{}
	for _, k := range All() {
		text, err := Schema(k)
		if err != nil {
			t.Fatal(err)
		}
		name := string(k) + ".json"
		want[name] = true
		path := filepath.Join(published, name)
		if *update {
			if err := os.MkdirAll(published, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(have, text) {
			t.Errorf("%s differs from the type (run this test with -update): %v", path, err)
		}
	}
	files, err := os.ReadDir(published)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !want[f.Name()] {
			t.Errorf("%s is the schema of no kind", f.Name())
		}
	}
}

// fill sets every field to something, so that every member is written.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), text)
		}
	default:
		v.Set(reflect.ValueOf(7).Convert(v.Type()))
	}
}

// Each kind's body, empty and full, is accepted by its schema and comes back
// from its bytes; a member more is refused by both.
func TestBodiesRoundTrip(t *testing.T) {
	for _, k := range All() {
		text, err := Schema(k)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("mem:///s.json", doc); err != nil {
			t.Fatal(err)
		}
		schema, err := c.Compile("mem:///s.json")
		if err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		for _, full := range []bool{false, true} {
			b := New(k)
			if b.Kind() != k {
				t.Fatalf("New(%s) is a %s", k, b.Kind())
			}
			if full {
				fill(reflect.ValueOf(b).Elem(), "text")
			}
			raw, err := jcs.Append(nil, b)
			if err != nil {
				t.Fatalf("%s: %v", k, err)
			}
			inst, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(inst); err != nil {
				t.Errorf("%s: %v", k, err)
			}
			back, err := Decode(k, raw)
			if err != nil {
				t.Fatalf("%s: %v", k, err)
			}
			again, _ := jcs.Append(nil, back)
			if !bytes.Equal(raw, again) {
				t.Errorf("%s: %s became %s", k, raw, again)
			}
			inst.(map[string]any)["zz_more"] = "x"
			if schema.Validate(inst) == nil {
				t.Errorf("%s: its schema accepts a member that does not exist", k)
			}
			if _, err := Decode(k, []byte(strings.TrimSuffix(string(raw), "}")+`,"zz_more":"x"}`)); err == nil {
				t.Errorf("%s: a member that does not exist was decoded", k)
			}
		}
	}
}

func TestClosedList(t *testing.T) {
	if Known("flow.maybe") || Known("") {
		t.Error("a kind that does not exist is known")
	}
	if _, err := Decode("flow.maybe", []byte(`{}`)); err == nil {
		t.Error("a body of no kind was decoded")
	}
	seen := map[Kind]bool{}
	for _, k := range All() {
		if !Known(k) {
			t.Errorf("%s is listed and not known", k)
		}
		if seen[k] {
			t.Errorf("%s is listed twice", k)
		}
		seen[k] = true
		if Durable(k) == (k == KindExec || k == KindCallDenied) {
			t.Errorf("%s: wrong class of durability", k)
		}
	}
}
