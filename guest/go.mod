module skep.dev/skep/guest

go 1.27

require (
	github.com/mdlayher/vsock v1.4.0
	github.com/vishvananda/netlink v1.3.1
	golang.org/x/sys v0.50.0
	gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237
	skep.dev/skep v0.0.0
)

require (
	github.com/google/btree v1.1.2 // indirect
	github.com/mdlayher/socket v0.8.0 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/exp v0.0.0-20250711185948-6ae5c78190dc // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)

replace skep.dev/skep => ../
