/*
 * skep-warden: builds a cell and stays as its parent; in its other mode, PID 1 of the cell.
 *
 * Laws (overview.md, decision 9):
 *  - nothing is allocated after start: every buffer is static and bounded;
 *  - a message has a fixed size, or is refused; what cannot be done ends the cell with a sentence;
 *  - a path of the host is opened only to find again the object of a descriptor that was
 *    handed over, and is used only if it is that object;
 *  - whatever becomes the agent has dropped every capability first.
 *
 * Who talks to whom:
 *
 *   skep-worker --request+descriptors--> parent --clone--> warden --clone--> PID 1 --fork--> agent
 *   skepd <--events/commands--> warden <--gate messages--> skep-box
 */
#pragma once

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WARDEN_MAGIC = 0x50454b53, /* "SKEP" */
    WARDEN_VERSION = 1,
    MAX_FDS = 250,  /* descriptors of one message (SCM_MAX_FD is 253) */
    MAX_RECORDS = 4096,
    MAX_SPEC = 4 << 20,
    MAX_ARGS = 4096,
};

/* What the worker asks for. Every spec is a sealed memfd, and descriptors come in this order:
 *   of the parent   a warden with what every cell has (L22): the warden's own socket, PID 1's, spec, those of its records
 *   of the warden   its part of the cell: spec, control, box, listening, log, stdio if HAS_STDIO
 *   of PID 1        its part of the cell: spec, those that records name; then, once more, the cgroups to enter
 * The ids and what stands for every cell come with the first; nothing of a cell does. */
struct request {
    uint32_t magic, version;
    uint32_t flags;
    uint32_t uid_in, gid_in, uid_out, gid_out;
    uint32_t nfds, spec_len, pad;
};
enum { HAS_STDIO = 1, DETACHED = 2 /* the parent's: no record names a place of the host's tree */ };

struct reply {
    uint32_t magic;
    int32_t error; /* errno, 0 = cloned; the pidfd comes with it */
    uint32_t pid;
    uint32_t pad;
};

/* The spec: this header, then records, then strings; offsets count from the start of the spec. */
struct spec {
    uint32_t magic, version;
    uint32_t nrecords, strings;       /* offset of the string area; its last byte is NUL */
    uint32_t argv, argc, envp, envc;  /* offsets of arrays of string offsets */
    uint32_t dir, hostname;           /* working directory, UTS name */
    uint32_t terminal;                /* 1 = a pseudo-terminal */
    uint16_t rows, columns;
    uint32_t nproc;                   /* RLIMIT_NPROC of the inner user namespace, 0 = none */
    uint32_t cpus;                    /* what sched_getaffinity shows, 0 = the host's */
    uint64_t memory;                  /* what sysinfo shows, bytes, 0 = the host's */
};

enum op { OP_DIR = 1, OP_FILE, OP_SYMLINK, OP_BIND, OP_OVERLAY, OP_TMPFS, OP_HIDE, OP_SELF, OP_COVER, OP_DEVPTS, OP_PROC };

struct record {
    uint32_t op, flags;
    uint32_t path;      /* in the cell, absolute */
    uint32_t mode;      /* of OP_DIR, OP_FILE, OP_TMPFS */
    uint32_t fd;        /* index among the records' descriptors */
    uint32_t data, len; /* content of OP_FILE, target of OP_SYMLINK, the file of the cell that OP_COVER shows */
    uint32_t pad;
    uint64_t size;      /* of OP_TMPFS, bytes */
};
enum {
    REC_READONLY = 1,
    REC_DETACHED = 2,  /* the descriptor is a mount that nobody has attached yet */
    REC_OPTIONAL = 4,  /* no such path in the cell: go on */
    REC_NOEXEC = 8,
    REC_FILE = 16,     /* the object is no directory */
    REC_WRITABLE = 32, /* Landlock grants writing below */
    REC_DEVICES = 64,  /* device nodes work: the few of /dev */
    REC_OWN = 128,     /* the descriptor is a layer with its own base, lower; what is made stands in it (decision 20) */
};

/* What skepd hears of a cell. */
struct event {
    uint32_t kind;
    int32_t a, b;
    uint32_t c;
    uint64_t d;
    char text[104];
};
enum { EV_STARTED = 1, EV_FAILED, EV_EXEC_FAILED, EV_EXITED, EV_ATTACHED, EV_DETACHED };

/* What skepd may ask. */
struct command {
    uint32_t kind;
    int32_t a;
    uint32_t pad[6];
};
enum { CMD_SIGNAL = 1, CMD_ATTACH, CMD_KILL };

/* The box's messages about the early gate (B15). */
struct gate {
    uint32_t op, id;
    uint8_t family, transport;
    uint16_t low, high, pad;
    uint8_t address[16];
    uint8_t last[16]; /* of a range; zeros: the same */
    uint8_t rest[8];
};
struct gate_ack {
    uint32_t op, id;
    int32_t error;
    uint32_t pad[3];
}; /* and, of the counter and of flows, the kernel's own answer; of a connect, its socket */
enum { GATE_ADD = 1, GATE_REMOVE, GATE_COUNTER, GATE_READY, GATE_ORIGIN, GATE_FORGET, GATE_CONNECT };
/* In the place of a transport: connects that wait for a person, those of them that are refused, what passes for a token
 * (in the place of the end) that is there, and the tokens. */
enum { GATE_HELD = 1, GATE_OVER, GATE_ONCE, GATE_TOKEN };

_Static_assert(sizeof(struct request) == 40 && sizeof(struct spec) == 64 && sizeof(struct record) == 40, "of the worker");
_Static_assert(sizeof(struct event) == 128 && sizeof(struct command) == 32, "of skepd");
_Static_assert(sizeof(struct gate) == 56 && sizeof(struct gate_ack) == 24, "of the box");

/* One cell, in the warden and its children. */
struct cell {
    struct request req;
    const struct spec *spec;
    int slot, slot1;        /* where the worker asks the warden and PID 1 to complete the cell */
    int spec_fd;            /* of what every cell has */
    int control, box, listening, log, stdio;
    int fds[MAX_FDS];
    unsigned nfds;
    int host_proc;          /* the host's /proc, for the memory of a notified process */
    int root, under;        /* the cell's root while it is built, and the directory that it covers */
    int master, slave;      /* the pseudo-terminal */
    int in[2], out[2], err[2];
    int sync[2];            /* warden, PID 1 */
    int listener;           /* seccomp notifications */
    int nft;                /* netlink socket of the gate */
    bool ipv6;              /* the cell's namespace has it */
    bool boundary;          /* the box has answered under its policy (B163) */
    int pid1;               /* pidfd */
    pid_t pid1_pid;
};

/* Between PID 1 and the warden, over cell.sync. */
struct note {
    uint32_t kind;
    int32_t a, b;
    char text[96];
};
enum { NOTE_BUILT = 1, NOTE_GO, NOTE_EXECUTED, NOTE_EXEC_FAILED, NOTE_EXITED, NOTE_FAILED, NOTE_STOPPED };

/* fail.c: errors end the process that meets them, with what was attempted. */
extern struct failure_sink { int fd; bool is_note; int slot; } failure_sink;
_Noreturn void fail_as(int error, const char *what, const char *on);
_Noreturn void fail(const char *what, const char *on); /* of errno */
void must(long result, const char *what, const char *on);
int write_text(int dir, const char *path, const char *text);
void hold(uint32_t capabilities);
int write_maps(const char *proc, const struct request *r, uint32_t uid_out, uint32_t gid_out);

/* wire.c */
ssize_t receive_fds(int sock, void *buf, size_t len, int *fds, unsigned *nfds);
bool send_fds(int sock, const void *buf, size_t len, const int *fds, unsigned nfds);
void close_all(int *fds, unsigned n);
ssize_t receive_request(int sock, struct request *r, int *fds, unsigned *nfds);

/* spec.c: every access to the spec goes through these, bounds checked. */
const struct spec *spec_map(int fd, uint32_t len);
struct request meet(struct cell *c, int slot, int *fds, unsigned *n);
const struct record *spec_record(const struct cell *c, uint32_t i);
const char *spec_string(const struct cell *c, uint32_t offset);
const void *spec_data(const struct cell *c, uint32_t offset, uint32_t len);
void spec_vector(const struct cell *c, uint32_t offset, uint32_t count, char **into);

/* net.c */
void net_build(struct cell *c);
void net_hand_over(struct cell *c);
void gate_serve(struct cell *c, bool last);

/* mounts.c */
void mounts_begin(struct cell *c);
void mounts_complete(struct cell *c);

/* pid1.c */
_Noreturn void pid1_run(struct cell *c);

/* serve.c */
_Noreturn void serve_cell(struct cell *c);

/* log.c */
void log_open(int fd);
void log_write(const void *data, size_t n);
