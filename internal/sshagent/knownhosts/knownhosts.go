// Package knownhosts reads whose keys a user's ssh trusts: the known_hosts of sshd(8).
//
// Its law: a line that is not understood names nobody, and a revoked key is nobody's.
package knownhosts

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha1" // what hashed names are made with; it hides them and proves nothing
	"encoding/base64"
	"path"
	"slices"
	"strings"
)

// MaxKeys bounds the keys of one host.
const MaxKeys = 16

// Name is how a host and port stand in the file.
func Name(host, port string) string {
	if port == "22" {
		return host
	}
	return "[" + host + "]:" + port
}

// Keys are the keys, in wire form, that files know a name by.
func Keys(name string, files ...[]byte) [][]byte {
	var keys, revoked [][]byte
	for _, file := range files {
		lines := bufio.NewScanner(bytes.NewReader(file))
		for lines.Scan() {
			marker, key, ok := read(name, lines.Text())
			switch {
			case !ok:
			case marker == "@revoked":
				revoked = append(revoked, key)
			case marker == "" && len(keys) < MaxKeys:
				keys = append(keys, key)
			}
		}
	}
	return slices.DeleteFunc(keys, func(k []byte) bool {
		return slices.ContainsFunc(revoked, func(r []byte) bool { return bytes.Equal(k, r) })
	})
}

// read is one line, if it is about the name.
func read(name, line string) (marker string, key []byte, ok bool) {
	fields := strings.Fields(line)
	if len(fields) > 0 && strings.HasPrefix(fields[0], "@") {
		marker, fields = fields[0], fields[1:]
	}
	if len(fields) < 3 || strings.HasPrefix(fields[0], "#") || !about(name, fields[0]) {
		return "", nil, false
	}
	key, err := base64.StdEncoding.DecodeString(fields[2])
	return marker, key, err == nil && len(key) > 0
}

// about tells whether a list of patterns has the name: one is enough, and none may be
// against it.
func about(name, list string) bool {
	if hashed, ok := strings.CutPrefix(list, "|1|"); ok {
		salt, sum, _ := strings.Cut(hashed, "|")
		s, err1 := base64.StdEncoding.DecodeString(salt)
		want, err2 := base64.StdEncoding.DecodeString(sum)
		h := hmac.New(sha1.New, s)
		h.Write([]byte(name))
		return err1 == nil && err2 == nil && hmac.Equal(h.Sum(nil), want)
	}
	found := false
	for pattern := range strings.SplitSeq(list, ",") {
		pattern, against := strings.CutPrefix(pattern, "!")
		// In a name of the form [host]:port the brackets are no class.
		quoted := strings.NewReplacer(`[`, `\[`, `\`, `\\`).Replace(pattern)
		if hit, err := path.Match(strings.ToLower(quoted), strings.ToLower(name)); err != nil || !hit {
			continue
		}
		if against {
			return false
		}
		found = true
	}
	return found
}
