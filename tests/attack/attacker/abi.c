/* The other system call tables of the machine, which a filter of 64-bit numbers does not see (L11). */
#include "attack.h"

#include <linux/keyctl.h>
#include <signal.h>

#ifdef __x86_64__
/* i386 calls getpid by interrupt 0x80. */
static long i386(long number)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number) : "memory", "cc", "r8", "r9", "r10", "r11");
    return result;
}

static void in_child(const char *attempt, long (*call)(long), long number)
{
    fflush(stdout);
    pid_t child = fork();
    int status = 0;
    if (child == 0)
        _exit(call(number) > 0 ? 0 : 1);
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        held(attempt, "killed by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) == 0)
        escaped(attempt, "the call was made");
    else /* a kernel without that table says the same as a filter */
        held(attempt, "%s", strerror(ENOSYS));
}

static long x32(long number) { return syscall(0x40000000L | number); }
#endif

void abi(char **args, int count)
{
    (void)args, (void)count;
#ifdef __x86_64__
    in_child("i386 getpid", i386, 20);
    in_child("x32 getpid", x32, SYS_getpid);
    /* Of the number 32 bits count, for the kernel as for the filter. */
    report("keyctl with a high bit in its number",
           syscall((long)(0x100000000UL | SYS_keyctl), KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1));
#else
    absent("i386 getpid", "this machine has one table");
#endif
}
