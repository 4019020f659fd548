/* More than the budget: processes, memory, shared memory (L13). What was made is ended again. */
#include "attack.h"

#include <signal.h>
#include <sys/mman.h>

static void processes_beyond(int limit)
{
    enum { MOST = 4096 };
    static pid_t made[MOST];
    int n = 0, error = 0;
    fflush(stdout);
    while (n < limit + 50 && n < MOST) {
        pid_t child = fork();
        if (child < 0) {
            error = errno;
            break;
        }
        if (child == 0) {
            pause();
            _exit(0);
        }
        made[n++] = child;
    }
    for (int i = 0; i < n; i++)
        kill(made[i], SIGKILL);
    for (int i = 0; i < n; i++)
        waitpid(made[i], NULL, 0);
    if (n > limit)
        escaped("processes", "%d of them", n);
    else
        held("processes", "after %d: %s", n, strerror(error));
}

static void memory_beyond(long mib)
{
    fflush(stdout);
    pid_t child = fork();
    int status;
    if (child == 0) {
        for (long i = 0; i < 2 * mib; i++) {
            char *page = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (page == MAP_FAILED)
                _exit(1);
            memset(page, 1, 1 << 20);
        }
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        escaped("memory", "%ld MiB", 2 * mib);
    else if (WIFSIGNALED(status))
        held("memory", "killed by signal %d", WTERMSIG(status));
    else
        held("memory", "%s", strerror(ENOMEM));
}

static void shared_beyond(long mib)
{
    static char block[1 << 20];
    char path[] = "/dev/shm/skep-attack-XXXXXX";
    int f = mkstemp(path);
    long n = 0;
    memset(block, 1, sizeof block);
    while (f >= 0 && n < 2 * mib && write(f, block, sizeof block) == (ssize_t)sizeof block)
        n++;
    int error = errno;
    if (f >= 0) {
        close(f);
        unlink(path);
    }
    if (n >= 2 * mib)
        escaped("shared memory", "%ld MiB", n);
    else
        held("shared memory", "after %ld MiB: %s", n, strerror(error));
}

void limits(char **args, int count)
{
    if (count != 3)
        usage("limits PROCESSES MEMORY-MIB SHARED-MIB");
    processes_beyond(atoi(args[0]));
    if (atol(args[1]) > 0)
        memory_beyond(atol(args[1]));
    shared_beyond(atol(args[2]));
}
