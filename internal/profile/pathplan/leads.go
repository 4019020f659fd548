package pathplan

import (
	"slices"
	"strconv"

	"skep.dev/skep/internal/profile"
)

// Leads says for each path that a profile grants where it leads now, in lines: whoever
// confirms the profile confirms that. A path that cannot be looked at is left to [Make].
func Leads(p *profile.Profile, host Host) []string {
	var lines []string
	for _, r := range p.Paths {
		if r.Access == 0 {
			continue
		}
		if at, err := resolve(host, r.At); err == nil {
			lines = append(lines, strconv.Quote(r.At)+" is "+strconv.Quote(at.real))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
