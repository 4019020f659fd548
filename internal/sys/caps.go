package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Capability numbers of capabilities(7) that Skep names.
const (
	CapDACOverride = unix.CAP_DAC_OVERRIDE
	CapFowner      = unix.CAP_FOWNER
	CapNetAdmin    = unix.CAP_NET_ADMIN
	CapSetgid      = unix.CAP_SETGID
	CapSetuid      = unix.CAP_SETUID
	CapSysAdmin    = unix.CAP_SYS_ADMIN
)

// HasCapability reports whether this thread's effective set holds the capability.
func HasCapability(number int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return data[number/32].Effective&(1<<(number%32)) != 0, nil
}
