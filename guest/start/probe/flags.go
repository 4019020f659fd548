package main

import "golang.org/x/sys/unix"

func setFlags(fd int, name string, flags uint16) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(flags)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
