package serve

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"skep.dev/skep/internal/sys"
)

// Account is a user of the host.
type Account struct {
	Name     string
	UID, GID uint32
}

// agentID is the agent's id in a cell that root started: agents refuse to run
// as uid 0 (L8c).
const agentID = 1000

// ids are the numbers of an agent: inside its cell, and on the host.
type ids struct {
	capable             bool
	inside, group       uint32 // in the cell
	outsideU, outsideG  uint32 // of the agent's processes
	daemonUID, daemonGD uint32 // of the layer's files on the disk
}

// chooseIDs decides once who the agents are. Without capabilities an agent is
// the worker's own user under its own number (L17). With them it is an id of the
// range that /etc/subuid gives the daemon's user (L6a), never a host account.
func chooseIDs(user Account) (ids, error) {
	capable, err := sys.HasCapability(sys.CapSysAdmin)
	if err != nil {
		return ids{}, err
	}
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if !capable {
		if uid == 0 {
			return ids{}, fmt.Errorf("the worker is root without CAP_SYS_ADMIN: no agent may run as uid 0 of the host (L17a)")
		}
		return ids{inside: uid, group: gid, outsideU: uid, outsideG: gid, daemonUID: uid, daemonGD: gid}, nil
	}
	u, err := subordinate("/etc/subuid", user)
	if err != nil {
		return ids{}, err
	}
	g, err := subordinate("/etc/subgid", user)
	if err != nil {
		return ids{}, err
	}
	return ids{
		capable: true, inside: agentID, group: agentID, outsideU: u + agentID, outsideG: g + agentID,
		daemonUID: user.UID, daemonGD: user.GID,
	}, nil
}

// subordinate returns the start of the first range of subuid(5) that is large enough.
func subordinate(file string, user Account) (uint32, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, fmt.Errorf("find the id range of %s: %w", user.Name, err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(fields) != 3 || (fields[0] != user.Name && fields[0] != strconv.Itoa(int(user.UID))) {
			continue
		}
		start, err1 := strconv.ParseUint(fields[1], 10, 32)
		count, err2 := strconv.ParseUint(fields[2], 10, 32)
		// A range that starts among the host's own accounts would make an agent one of them.
		if err1 == nil && err2 == nil && start >= 65536 && count > agentID && start+count <= 1<<32-1 {
			return uint32(start), nil
		}
	}
	return 0, fmt.Errorf("%s has no range in %s: run `usermod --add-subuids 200000-265535 --add-subgids 200000-265535 %s`",
		user.Name, file, user.Name)
}

// ParseAccount reads NAME:UID:GID; the empty text is no account.
func ParseAccount(text string) (Account, error) {
	if text == "" {
		return Account{}, nil
	}
	fields := strings.Split(text, ":")
	if len(fields) != 3 || fields[0] == "" {
		return Account{}, fmt.Errorf("read the account %q: want NAME:UID:GID", text)
	}
	uid, err := strconv.ParseUint(fields[1], 10, 32)
	if err != nil {
		return Account{}, fmt.Errorf("read the account %q: %w", text, err)
	}
	gid, err := strconv.ParseUint(fields[2], 10, 32)
	if err != nil {
		return Account{}, fmt.Errorf("read the account %q: %w", text, err)
	}
	return Account{Name: fields[0], UID: uint32(uid), GID: uint32(gid)}, nil
}
