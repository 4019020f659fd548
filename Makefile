# Skep's one set of verbs. Everything longer than a few lines stands in scripts/.
#
#   make run      install what is missing, build, show the main job
#   make build    the programs, in bin/
#   make check    format, linters, generated code, the tree's own rules
#   make test     every test, with the race detector, as root and as nobody special, and the fuzzers
#   make ci       check, then test, and one closing line
#   make bench    our figures beside the others', one table
#   make soak     the long runs, hours; SOAK="--only PATTERN --fuzz 1m" shortens them
#   make generate what is generated and committed
#   make clean    remove bin/ and build/

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.PHONY: run build go warden check test ci bench soak generate clean toolchain need-build

# go.mod names the release that we build with; any Go from 1.21 on fetches it, if it may.
export GOTOOLCHAIN := auto
# Confinement must hold on every thread, which cgo's threads would escape.
export CGO_ENABLED := 0

BIN := bin
# The stamp of the version needs git to trust the folder, which it does not in another user's clone.
VCS := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)

# The warden is the one program that is not Go: static, and with every wall that the compiler has.
ifeq ($(origin CC),default)
CC := gcc
endif
WARDEN_CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Werror -Wformat=2 -Wshadow -Wvla -Wstrict-prototypes \
	-fPIE -fstack-protector-strong -fstack-clash-protection -fno-strict-aliasing -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
WARDEN_LDFLAGS := -static-pie -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code
WARDEN_SOURCES := $(filter-out %_test.c %_fuzz.c warden/test_% warden/fuzz_%,$(wildcard warden/*.c))

build: go warden

go: toolchain
	@mkdir -p $(BIN)
	@test -e $(BIN)/skep || echo "building: minutes the first time, for the Go release and the modules that it fetches"
	@go build -trimpath -buildvcs=$(VCS) -o $(BIN)/ ./cmd/...
	@cd guest && go build -trimpath -buildvcs=$(VCS) -o ../$(BIN)/ ./cmd/...

warden: $(if $(WARDEN_SOURCES),$(BIN)/skep-warden)

$(BIN)/skep-warden: $(WARDEN_SOURCES) $(wildcard warden/*.h) Makefile | need-build
	@mkdir -p $(BIN)
	$(CC) $(WARDEN_CFLAGS) $(WARDEN_LDFLAGS) -o $@ $(WARDEN_SOURCES)

run: toolchain
	@scripts/install-missing build run
	@$(MAKE) --no-print-directory build
	@scripts/system-user
	@scripts/demo

check: toolchain build/tools/.built
	@scripts/check

test: toolchain
	@scripts/install-missing build run test
	@$(MAKE) --no-print-directory build
	@scripts/test $(ALSO)

# Both halves run, so that one failure does not hide the other; the last line counts both.
ci: toolchain
	@rm -f build/check.json
	@$(MAKE) --no-print-directory check || test -s build/check.json
	@$(MAKE) --no-print-directory test ALSO=build/check.json

bench: toolchain
	@scripts/install-missing build run bench
	@$(MAKE) --no-print-directory build
	@scripts/system-user
	@scripts/bench-peers
	go run ./tests/bench

soak: toolchain
	@scripts/install-missing build run
	@$(MAKE) --no-print-directory build
	@scripts/system-user
	go run ./tests/soak $(SOAK)

generate: toolchain build/tools/.built
	@scripts/generate .
	go test -count=1 -run TestReferenceIsCurrent ./internal/cli -update
	go test -count=1 ./tests/structure -update

# Linters and generators are a module of their own, built only when something needs them; minutes the first time.
build/tools/.built: tools/go.mod tools/go.sum
	@mkdir -p build/tools
	@echo "building the linters and generators of tools/go.mod (minutes, the first time)"
	cd tools && go build -o ../build/tools/ tool
	@touch $@

clean:
	rm -rf bin build

toolchain:
	@scripts/toolchain

need-build:
	@scripts/install-missing build
