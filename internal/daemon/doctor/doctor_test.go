package doctor

import (
	"testing"

	"skep.dev/skep/internal/cell"
)

func TestFindings(t *testing.T) {
	good := Host{Kernel: "6.18", UserNamespaces: 100, LandlockABI: 7, Notify: true, Overlay: true, IPv6: true}
	all := cell.Features{Capable: true, Limits: cell.Enforced{Memory: true, Pids: true, CPU: true}}
	for name, c := range map[string]struct {
		change  func(*Host, *cell.Features)
		finding string
		want    Status
	}{
		"all good":           {func(*Host, *cell.Features) {}, "Landlock", OK},
		"no namespaces":      {func(h *Host, _ *cell.Features) { h.UserNamespaces = 0 }, "user namespaces", Missing},
		"AppArmor":           {func(h *Host, _ *cell.Features) { h.Restricted = true }, "user namespaces", Missing},
		"no Landlock":        {func(h *Host, _ *cell.Features) { h.LandlockABI = 0 }, "Landlock", Missing},
		"first Landlock":     {func(h *Host, _ *cell.Features) { h.LandlockABI = 1 }, "Landlock", Missing},
		"early Landlock":     {func(h *Host, _ *cell.Features) { h.LandlockABI = 4 }, "Landlock", Degraded},
		"no notification":    {func(h *Host, _ *cell.Features) { h.Notify = false }, "seccomp notification", Missing},
		"no overlay":         {func(h *Host, _ *cell.Features) { h.Overlay = false }, "overlay with userxattr", Missing},
		"no IPv6":            {func(h *Host, _ *cell.Features) { h.IPv6 = false }, "IPv6", Degraded},
		"rootless":           {func(_ *Host, f *cell.Features) { f.Capable = false }, "id range", Degraded},
		"no memory":          {func(_ *Host, f *cell.Features) { f.Limits.Memory = false }, "memory limit", Degraded},
		"processes, rlimit":  {func(_ *Host, f *cell.Features) { f.Limits.Memory = false }, "process limit", OK},
		"no cpu":             {func(_ *Host, f *cell.Features) { f.Limits.CPU = false }, "cpu limit", Degraded},
		"nothing was looked": {func(h *Host, _ *cell.Features) { *h = Host{} }, "user namespaces", Missing},
	} {
		t.Run(name, func(t *testing.T) {
			h, f := good, all
			c.change(&h, &f)
			for _, got := range Findings(h, f) {
				if got.Name != c.finding {
					continue
				}
				if got.Status != c.want || got.Status == Missing && got.Fix == "" {
					t.Errorf("got %+v", got)
				}
				return
			}
			t.Error("no such finding")
		})
	}
}

func TestLook(t *testing.T) {
	if h := Look(); h.Kernel == "" {
		t.Errorf("got %+v", h)
	}
}
