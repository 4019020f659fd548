package entry

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"
	"time"

	"skep.dev/skep/internal/ledger/jcs"
	"skep.dev/skep/internal/ledger/kind"
)

func sample(t testing.TB) Entry {
	body, err := jcs.Append(nil, kind.Note{By: "user", Text: "a\xff\",\"cell\":\"x\",\"v\":\"2\"}"})
	if err != nil {
		t.Fatal(err)
	}
	return Entry{Seq: math.MaxUint64, Prev: Genesis("c1"), Time: time.Unix(0, 1796000000123456789).UTC(),
		Cell: "c1", Agent: "reviewer-7.example", Kind: kind.KindNote, Body: body}
}

// goldenHash is what Python's json and hashlib give for the same entry.
const goldenHash = "43054fa2f25563500a5db6736d657dcfc48f97faaa3693d4812f1e391ce69c01"

// A golden vector: an independent program must get the same bytes and hash.
func TestGolden(t *testing.T) {
	const want = `{"agent":"","body":{"by":"user","text":{"b64":"Yf8="}},"cell":"c1","kind":"note",` +
		`"prev":"f5c0a1e5","seq":"9007199254740993","time":"1796000000123456789","v":"1"}`
	e := Entry{Seq: 1<<53 + 1, Prev: Genesis("c1"), Time: time.Unix(0, 1796000000123456789), Cell: "c1", Kind: kind.KindNote}
	e.Body, _ = jcs.Append(nil, kind.Note{By: "user", Text: "a\xff"})
	got, err := Append(nil, &e)
	if err != nil {
		t.Fatal(err)
	}
	full := bytes.Replace([]byte(want), []byte("f5c0a1e5"), []byte(e.Prev.String()), 1)
	if !bytes.Equal(got, full) {
		t.Errorf("got  %s\nwant %s", got, full)
	}
	if err := jcs.Valid(got); err != nil {
		t.Error(err)
	}
	if h := Hash(sha256.Sum256(got)); h.String() != goldenHash {
		t.Errorf("hash %s", h)
	}
}

func TestParse(t *testing.T) {
	e := sample(t)
	b, err := Append(nil, &e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := Append(nil, &got); !bytes.Equal(again, b) {
		t.Errorf("%s became %s", b, again)
	}
	// No prefix of an entry is an entry.
	for i := range b {
		if _, err := Parse(b[:i]); err == nil {
			t.Errorf("%s was parsed", b[:i])
		}
	}
	for _, c := range []struct {
		from, to string
		want     error
	}{
		{`"v":"1"`, `"v":"2"`, ErrVersion}, {`"kind":"note"`, `"kind":"poem"`, ErrVersion},
		{`"seq":"1`, `"seq":"01`, ErrForm}, {`"time":"1`, `"time":"+1`, ErrForm}, {`"cell":"c1"`, `"cell":""`, ErrForm},
		{`"cell":"c1"`, `"cell":"c\u0031"`, ErrForm}, {`{"agent"`, `{"agent2"`, ErrForm},
	} {
		i := bytes.LastIndex(b, []byte(c.from))
		bad := bytes.Join([][]byte{b[:i], []byte(c.to), b[i+len(c.from):]}, nil)
		if _, err := Parse(bad); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, id := range []string{"a b", "a\"b", "é", ""} {
		e.Cell = id
		if _, err := Append(nil, &e); err == nil {
			t.Errorf("cell %q was written", id)
		}
	}
}

func TestFrames(t *testing.T) {
	var file []byte
	var ends []int
	for _, n := range []int{1, 100, 300 << 10, 2} {
		payload := bytes.Repeat([]byte{'x'}, n)
		file = append(file, make([]byte, HeadSize)...)
		PutHead(file[len(file)-HeadSize:], payload)
		file = append(file, payload...)
		ends = append(ends, len(file))
	}
	r := NewReader(iotest.HalfReader(bytes.NewReader(file)), 7)
	for _, end := range ends {
		if _, err := r.Next(); err != nil || r.Position() != uint64(end)+7 {
			t.Fatal(err, r.Position())
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for cut := 1; cut < ends[1]; cut++ {
		r := NewReader(bytes.NewReader(file[:cut]), 0)
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if whole := cut == ends[0]; errors.Is(err, io.EOF) != whole || errors.Is(err, ErrTorn) == whole {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	for i := range ends[0] {
		bad := bytes.Clone(file)
		bad[i] ^= 0x80
		if _, err := NewReader(bytes.NewReader(bad), 0).Next(); err == nil {
			t.Errorf("a flipped bit in byte %d was not found", i)
		}
	}
}

func FuzzParse(f *testing.F) {
	e := sample(f)
	b, _ := Append(nil, &e)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse(b)
		if err != nil {
			return
		}
		if again, err := Append(nil, &e); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q became %q, %v", b, again, err)
		}
	})
}
