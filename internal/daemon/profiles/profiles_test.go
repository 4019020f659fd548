package profiles

import (
	"fmt"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
)

func request() *skepv1.RunRequest {
	return &skepv1.RunRequest{
		ProfileName: "p.yaml", ProfileDir: "/work", Home: "/home/u",
		Profile:       []byte("version: v1\npaths: [{path: ., rights: rw}, {path: ~/x, rights: ro}]\n"),
		NarrowingName: ".skep.yaml", Narrowing: []byte("version: v1\npaths: [{path: ., rights: ro}]\n"),
	}
}

// A profile that was remembered for another request would give another's rights.
func TestOnlyTheSameTextIsRemembered(t *testing.T) {
	var r Reader
	first, err := r.Effective(request())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.Effective(request()); again != first || err != nil {
		t.Errorf("the same text was read twice: %v", err)
	}
	for name, change := range map[string]func(*skepv1.RunRequest){
		"text":       func(q *skepv1.RunRequest) { q.Profile = []byte("version: v1\n") },
		"place":      func(q *skepv1.RunRequest) { q.ProfileDir = "/other" },
		"home":       func(q *skepv1.RunRequest) { q.Home = "/home/v" },
		"name":       func(q *skepv1.RunRequest) { q.ProfileName = "q.yaml" },
		"narrowing":  func(q *skepv1.RunRequest) { q.Narrowing = nil },
		"its name":   func(q *skepv1.RunRequest) { q.NarrowingName = "n.yaml" },
		"both moved": func(q *skepv1.RunRequest) { q.ProfileName, q.ProfileDir = "p.yaml/work", "" },
	} {
		q := request()
		change(q)
		got, err := r.Effective(q)
		var fresh Reader
		want, wantErr := fresh.Effective(q)
		if got == first || (err == nil) != (wantErr == nil) || err == nil && got.Digest() != want.Digest() {
			t.Errorf("%s: got %v, %v; read afresh %v, %v", name, got, err, want, wantErr)
		}
	}
	bad := proto.CloneOf(request())
	bad.Profile = []byte("version: v0\n")
	for range 2 {
		if _, err := r.Effective(bad); err == nil {
			t.Error("a fault was forgotten")
		}
	}
}

func TestRememberedProfilesAreFew(t *testing.T) {
	var r Reader
	var wait sync.WaitGroup
	for i := range 4 * most {
		wait.Go(func() {
			q := request()
			q.ProfileDir = fmt.Sprintf("/work/%d", i%(2*most))
			if p, err := r.Effective(q); err != nil || p.Digest() == "" {
				t.Errorf("%v", err)
			}
		})
	}
	wait.Wait()
	if len(r.last) != most {
		t.Errorf("%d are remembered", len(r.last))
	}
}
