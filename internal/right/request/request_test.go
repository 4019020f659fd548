package request

import (
	"strings"
	"testing"
)

// A path that two servers could read as two is never plain (B83, BC-44).
func TestKindOfPath(t *testing.T) {
	for path, want := range map[string]PathKind{
		"/": PlainPath, "/a/b": PlainPath, "/a//b": PlainPath, "/a.b/..c/...": PlainPath, "/%41%2e%2e%41": PlainPath, "*": PlainPath, "": PlainPath,
		"/a/..": AmbiguousPath, "/a/../b": AmbiguousPath, "/./a": AmbiguousPath, "/.": AmbiguousPath, "..": AmbiguousPath,
		"/%2e%2e": AmbiguousPath, "/a/%2E./b": AmbiguousPath, "/a/.%2e": AmbiguousPath, "/%2e": AmbiguousPath,
		"/a/..%2fb": AmbiguousPath, "/a%2f../b": AmbiguousPath, `/a/..\b`: AmbiguousPath, "/a/..%5Cb": AmbiguousPath,
		"/a/..;x=1/b": AmbiguousPath, "/a/..;": AmbiguousPath, "/a;../b": PlainPath,
		"/a%00": AmbiguousPath, "/a%0d%0a": AmbiguousPath, "/a%7f": AmbiguousPath, "/a\x01": AmbiguousPath, "/a\x7f": AmbiguousPath,
		"/a%": AmbiguousPath, "/a%2": AmbiguousPath, "/a%zz": AmbiguousPath, "/a%u002f": AmbiguousPath,
		"/a%2fb": SlashedPath, "/a%2Fb": SlashedPath, "/a%5cb": SlashedPath, `/a\b`: SlashedPath, "/%2f": SlashedPath,
	} {
		if got := KindOfPath(path); got != want {
			t.Errorf("%q is %d, want %d", path, got, want)
		}
	}
}

func FuzzKindOfPath(f *testing.F) {
	f.Add("/a/%2e%2e;x/%2f")
	f.Fuzz(func(t *testing.T, path string) {
		// What is joined to a plain directory cannot make its own path plainer.
		if KindOfPath(path) == AmbiguousPath && KindOfPath("/dir/"+path) != AmbiguousPath {
			t.Errorf("%q hides below a directory", path)
		}
	})
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"get": "want capital letters", "/a/../b": "dot segments", "/a%2fb": "encoded_slash: true", "/a*": "only in a final /*", "/a?b": "without a query",
	} {
		methods, paths := []string{text}, []string(nil)
		if text[0] == '/' {
			methods, paths = paths, methods
		}
		if err := Check(methods, paths, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if Check([]string{"GET"}, nil, true) == nil {
		t.Error("encoded_slash without paths is taken")
	}
	if err := Check([]string{"M-SEARCH"}, []string{"/a%2fb", "/c/*"}, true); err != nil {
		t.Error(err)
	}
}
