/*
 * attacker: one static program that tries to leave a cell. `attacker TECHNIQUE ARGS...` makes several attempts and
 * prints one line for each:
 *
 *   HELD attempt: why it failed
 *   ESCAPED attempt: what it got
 *   ABSENT attempt: this kernel has no such thing
 *
 * Laws: an attempt is ESCAPED only if it got what the wall is to keep; what cannot be tried is never HELD by accident,
 * because the test runs the same attempts outside, where they must succeed; nothing is damaged where they do.
 */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

void escaped(const char *attempt, const char *format, ...) __attribute__((format(printf, 2, 3)));
void held(const char *attempt, const char *format, ...) __attribute__((format(printf, 2, 3)));
void absent(const char *attempt, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* report says ESCAPED if the call did not fail, HELD with its errno if it did. */
bool report(const char *attempt, long result);
/* reached is for calls that a privileged caller would fail too, with a complaint about the arguments: EPERM,
 * EACCES and ENOSYS are HELD, all else has reached what was to be out of reach. */
void reached(const char *attempt, long result);
/* reads opens a file, reads a byte and closes it. */
void reads(const char *attempt, const char *path);
/* writes opens a file for writing and writes nothing. */
void writes(const char *attempt, const char *path);
/* put makes a file with a text; false with errno set. */
bool put(const char *path, const char *text);
/* join is directory/name in a buffer that lasts for three more calls. */
const char *join(const char *dir, const char *name);
/* usage ends the program: the test has called it wrongly. */
_Noreturn void usage(const char *what);

typedef void technique(char **args, int count);
technique abi, descriptors, devices, hostfiles, ipc, kernel, limits, messages, mounts, names, namespaces, network, overlay, privilege, proc,
    processes, protected_dir, readonly, sockets, terminal, unixpath, worker;
