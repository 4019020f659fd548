// Package vault holds the secrets of one cell in its box: the bindings, the values, and
// the authority that the cell trusts (boundary.md, B120, B124, B131).
//
// Its laws:
//   - A value stands in locked memory that no core has, or is not held at all: then what
//     asks for it gets secret-unavailable.
//   - A value that is replaced, and every one at the end, is overwritten.
//   - The authority is made once, and goes to no one but the box that takes this one's place.
package vault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/secret/authority"
	"skep.dev/skep/internal/secret/parcel"
	"skep.dev/skep/internal/sys"
)

// authorityName stands for no secret: what has it in a parcel is the authority.
const authorityName = ""

// Record writes a use or misuse of a secret down, why it is refused or None. What it does
// not write is not sent.
type Record func(ctx context.Context, id flow.ID, host string, use secret.Use, why flow.Reason) error

// Vault is that of one cell. It is safe for concurrent use.
type Vault struct {
	Keeper    *secret.Keeper
	Authority *authority.Authority // after Found or Inherit

	bound []secret.Bound
	mu    sync.Mutex
	held  map[string][]byte // locked memory by the name of the secret
}

// New makes one without values and without an authority.
func New(bound []secret.Bound) (*Vault, error) {
	k, err := secret.NewKeeper(bound)
	if err != nil {
		return nil, err
	}
	return &Vault{Keeper: k, bound: bound, held: map[string][]byte{}}, nil
}

// Has reports whether these are the bindings of the vault; one that is nil has none.
func (v *Vault) Has(bound []secret.Bound) bool {
	if v == nil || len(bound) == 0 {
		return v == nil && len(bound) == 0
	}
	return reflect.DeepEqual(v.bound, bound)
}

// Found makes the authority.
func (v *Vault) Found(now time.Time) (err error) {
	v.Authority, err = authority.New(v.Keeper.Hosts(), now)
	return err
}

// Fill takes all values there are from a parcel, from the next request on (B131). A secret
// that is not in it has none.
func (v *Vault) Fill(f *os.File) error {
	defer func() { _ = f.Close() }()
	v.mu.Lock()
	defer v.mu.Unlock()
	come := map[string]bool{}
	err := parcel.Unpack(f, func(name string, until time.Time, size int, from io.Reader) error {
		come[name] = true
		return v.set(name, until, size, from)
	})
	for _, b := range v.bound {
		if !come[b.Name] {
			v.drop(b.Name)
		}
	}
	return err
}

// set is for mu held.
func (v *Vault) set(name string, until time.Time, size int, from io.Reader) error {
	b, err := sys.Locked(size)
	if err == nil {
		_, err = io.ReadFull(from, b)
	}
	var value *secret.Value
	if err == nil {
		value, err = secret.NewValue(b)
	}
	if err != nil {
		if b != nil {
			sys.Unlock(b)
		}
		v.drop(name)
		return err
	}
	v.Keeper.Set(name, value, until)
	v.free(name)
	v.held[name] = b
	return nil
}

// drop is for mu held.
func (v *Vault) drop(name string) {
	v.Keeper.Set(name, nil, time.Time{})
	v.free(name)
}

// free gives memory back that the keeper has let go of.
func (v *Vault) free(name string) {
	if b := v.held[name]; b != nil {
		sys.Unlock(b)
		delete(v.held, name)
	}
}

// Close overwrites every value.
func (v *Vault) Close() {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Keeper.Close()
	for name := range v.held {
		v.free(name)
	}
}

// Leave hands on, one by one, what the box that takes this one's place needs; each is
// overwritten when send returns. A nil vault has nothing.
func (v *Vault) Leave(send func([]byte) error) error {
	if v == nil {
		return nil
	}
	key, err := v.Authority.Leave()
	if err != nil {
		return err
	}
	each := func(i parcel.Item) {
		if err == nil {
			one := parcel.Encode([]parcel.Item{i})
			err = send(one)
			clear(one)
		}
	}
	each(parcel.Item{Name: authorityName, Value: key})
	v.Keeper.Values(func(name string, value []byte, until time.Time) {
		each(parcel.Item{Name: name, Value: bytes.Clone(value), Until: until})
	})
	if err != nil {
		return fmt.Errorf("hand over secrets: %w", err)
	}
	return nil
}

// Inherit takes one of what Leave sent. The caller overwrites it.
func (v *Vault) Inherit(one []byte) error {
	if v == nil {
		return errors.New("secrets were handed over for a cell that has none")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return parcel.Decode(bytes.NewReader(one), func(name string, until time.Time, size int, from io.Reader) error {
		if name != authorityName {
			return v.set(name, until, size, from)
		}
		left := make([]byte, size)
		defer clear(left)
		_, err := io.ReadFull(from, left)
		if err == nil {
			v.Authority, err = authority.Inherit(v.Keeper.Hosts(), left)
		}
		return err
	})
}

// Names are the bindings as the policy has them: where flows are carried request by request.
func Names(bound []secret.Bound) (out []policy.Bound) {
	for _, b := range bound {
		for _, h := range b.Hosts {
			out = append(out, policy.Bound{Name: h, Ports: b.Ports})
		}
	}
	return out
}
