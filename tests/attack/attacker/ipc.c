/* System V and POSIX objects of the host (L7). `ipc make` is the other side, run by the test outside. */
#include "attack.h"

#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

static key_t key_of(const char *text) { return (key_t)strtol(text, NULL, 0); }

/* args: make|drop|try, a key, the name of a message queue */
void ipc(char **args, int count)
{
    if (count != 3)
        usage("ipc make|drop|try KEY QUEUE");
    key_t key = key_of(args[1]);
    bool make = strcmp(args[0], "make") == 0;
    int flags = make ? IPC_CREAT | 0666 : 0;
    int shm = shmget(key, 4096, flags), msg = msgget(key, flags), sem = semget(key, 1, flags);
    struct mq_attr attr = {.mq_maxmsg = 1, .mq_msgsize = 16};
    mqd_t queue = make ? mq_open(args[2], O_RDWR | O_CREAT, 0666, &attr) : mq_open(args[2], O_RDWR);
    report("shared memory", shm);
    report("message queue", msg);
    report("semaphore", sem);
    report("POSIX message queue", queue);
    if (strcmp(args[0], "drop") == 0) {
        shmctl(shm, IPC_RMID, NULL);
        msgctl(msg, IPC_RMID, NULL);
        semctl(sem, 0, IPC_RMID);
        mq_unlink(args[2]);
    }
}
