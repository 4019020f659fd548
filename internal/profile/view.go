package profile

import (
	"encoding/json"
	"fmt"

	"skep.dev/skep/internal/right"
)

// View is a profile as JSON: what `skep check --json` prints and what the
// record keeps of a declaration. Rights are in their own JSON forms.
type View struct {
	File     string            `json:"file"`
	Digest   string            `json:"digest"`
	Paths    []PathView        `json:"paths,omitempty"`
	Net      []NetView         `json:"net,omitempty"`
	Resolved []RangeView       `json:"resolved_addresses,omitempty"`
	Secrets  []SecretView      `json:"secrets,omitempty"`
	Model    *right.Model      `json:"model,omitempty"`
	Budget   right.Budget      `json:"budget,omitzero"`
	Optional []string          `json:"if_available,omitempty"` // keys of budget
	Home     string            `json:"home,omitempty"`
	Pass     []string          `json:"env_pass,omitempty"`
	Set      map[string]string `json:"env_set,omitempty"`
	Raw      bool              `json:"terminal_raw,omitempty"`
	Agent    string            `json:"agent_socket,omitempty"` // as the profile has it
}

// PathView is a path right with its line.
type PathView struct {
	Right right.Path `json:"right"`
	Line  int        `json:"line"`
}

// NetView is a net right with its line, its id and what it matches in words.
type NetView struct {
	Right   right.Net `json:"right"`
	Line    int       `json:"line"`
	ID      string    `json:"id,omitempty"`
	Matches string    `json:"matches"` // N27
}

// SecretView is a secret right with its line and where the value is read, never the value.
type SecretView struct {
	Right  right.Secret `json:"right"`
	Source string       `json:"source"`
	Env    string       `json:"env,omitempty"`
	Set    bool         `json:"set,omitempty"`
	End    bool         `json:"ends,omitempty"` // a misuse ends the cell
	Line   int          `json:"line"`
}

// RangeView is one entry of resolved_addresses.
type RangeView struct {
	CIDR  string `json:"cidr"`
	Ports string `json:"ports"`
	Line  int    `json:"line"`
}

// View gives the profile with its lines.
func (p *Profile) View() View {
	v := View{File: p.File, Digest: p.Digest(), Budget: p.Budget.Budget, Optional: p.Budget.IfAvailable,
		Home: p.Home, Pass: p.Env.Pass, Set: p.Env.Set, Raw: p.Raw}
	if p.Agent.Granted {
		v.Agent = p.Agent.String()
	}
	for _, r := range p.Paths {
		v.Paths = append(v.Paths, PathView{r.Path, r.Line})
	}
	for _, r := range p.Net {
		v.Net = append(v.Net, NetView{r.Net, r.Line, r.ID, r.Dest.Explain()})
	}
	for _, r := range p.Resolved {
		v.Resolved = append(v.Resolved, RangeView{r.Prefix.String(), r.Ports.String(), r.Line})
	}
	for _, s := range p.Secrets {
		v.Secrets = append(v.Secrets, SecretView{s.Right(), s.Source.String(), s.Env, s.Set, s.End, s.Line})
	}
	if len(p.Model.Roles) > 0 {
		v.Model = &p.Model
	}
	return v
}

// JSON is View as one line.
func (p *Profile) JSON() ([]byte, error) {
	data, err := json.Marshal(p.View())
	if err != nil {
		return nil, fmt.Errorf("show profile %s: %w", p.File, err)
	}
	return data, nil
}
