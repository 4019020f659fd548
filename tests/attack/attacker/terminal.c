/* A terminal that is told to type: TIOCSTI and its kin, on the agent's own pseudo-terminal (L18). */
#include "attack.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

static int side = -1;

/* typed reports whether the byte came back as input. */
static void type(const char *attempt, unsigned long request)
{
    char byte = 'x', got = 0;
    long r = syscall(SYS_ioctl, side, request, &byte);
    if (r < 0) {
        held(attempt, "%s", strerror(errno));
        return;
    }
    struct pollfd p = {side, POLLIN, 0};
    if (poll(&p, 1, 1000) == 1 && read(side, &got, 1) == 1 && got == 'x')
        escaped(attempt, "the terminal typed for us");
    else
        held(attempt, "nothing was typed");
}

void terminal(char **args, int count)
{
    (void)args, (void)count;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0) {
        held("TIOCSTI", "no terminal: %s", strerror(errno));
        return;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child > 0) {
        waitpid(child, NULL, 0);
        return;
    }
    setsid();
    side = open(ptsname(master), O_RDWR | O_CLOEXEC);
    ioctl(side, TIOCSCTTY, 0);
    struct termios raw;
    tcgetattr(side, &raw);
    cfmakeraw(&raw);
    tcsetattr(side, TCSANOW, &raw);
    type("TIOCSTI", TIOCSTI);
    type("TIOCSTI with a high bit", TIOCSTI | 1UL << 32);
    type("TIOCSTI with every high bit", TIOCSTI | 0xffffffff00000000UL);
    char paste = 3;
    reached("TIOCLINUX", syscall(SYS_ioctl, side, (unsigned long)TIOCLINUX, &paste));
    reached("TIOCLINUX with a high bit", syscall(SYS_ioctl, side, (unsigned long)TIOCLINUX | 1UL << 32, &paste));
    int discipline = 29; /* no such line discipline: whoever is heard gets EINVAL */
    reached("TIOCSETD", syscall(SYS_ioctl, side, (unsigned long)TIOCSETD, &discipline));
    _exit(0);
}
