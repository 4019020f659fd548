package serve

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

type mapKind int

const (
	mapNone   mapKind = iota
	mapOwner          // the owner of the granted directory becomes the agent
	mapDaemon         // the daemon's user becomes the agent
	asItIs            // no mount: what was opened is read
)

// idmaps makes user namespaces that only carry an id map for a mount, one per
// owner, and keeps them: to make one takes longer than to build a cell.
type idmaps struct {
	agent ids
	made  map[[2]uint32]*os.File
}

// maxMaps bounds how many owners are kept; then all are forgotten.
const maxMaps = 64

func (m *idmaps) close() {
	for _, f := range m.made {
		_ = f.Close()
	}
	m.made = nil
}

// namespace returns the map for f. A granted directory of root's or of another
// user is shown as the agent's: the one who granted it could write it.
func (m *idmaps) namespace(kind mapKind, f *os.File) (*os.File, error) {
	owner := [2]uint32{m.agent.daemonUID, m.agent.daemonGD}
	if kind == mapOwner {
		info, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("look at a granted directory: %w", err)
		}
		st := info.Sys().(*syscall.Stat_t)
		owner = [2]uint32{st.Uid, st.Gid}
	}
	if ns, ok := m.made[owner]; ok {
		return ns, nil
	}
	ns, err := mapNamespace(owner, m.agent)
	if err != nil {
		return nil, err
	}
	if len(m.made) >= maxMaps {
		m.close()
	}
	if m.made == nil {
		m.made = map[[2]uint32]*os.File{}
	}
	m.made[owner] = ns
	return ns, nil
}

// mapNamespace holds a process in a new user namespace just long enough to open
// that namespace; the descriptor keeps it alive.
func mapNamespace(owner [2]uint32, agent ids) (*os.File, error) {
	hold, release, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = hold.Close() }()
	cmd := exec.Command("/bin/cat")
	cmd.Stdin, cmd.Env = hold, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(owner[0]), HostID: int(agent.outsideU), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(owner[1]), HostID: int(agent.outsideG), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		_ = release.Close()
		return nil, fmt.Errorf("make a user namespace for an id map: %w", err)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	_ = release.Close()
	_ = cmd.Wait()
	if err != nil {
		return nil, fmt.Errorf("open the namespace of an id map: %w", err)
	}
	return ns, nil
}
