/* A narrower rule under a wider one (L8): what is read-only below a writable tree is changed in place, or the
 * directory that holds it is moved away and another put in its place. */
#include "attack.h"

#include <linux/fs.h>

static const char *tree;

/* replaced reports whether .git/hooks/pre-commit is ours now. */
static void judge(const char *attempt, long result)
{
    int error = errno;
    char text[64] = "";
    int f = open(join(tree, ".git/hooks/pre-commit"), O_RDONLY | O_CLOEXEC);
    if (f >= 0) {
        (void)!read(f, text, sizeof text - 1);
        close(f);
    }
    if (strncmp(text, "evil", 4) == 0)
        escaped(attempt, "the hook is the attacker's");
    else if (result < 0)
        held(attempt, "%s", strerror(error));
    else
        held(attempt, "the hook is still what it was");
}

static void plant(const char *attempt, long moved)
{
    if (moved < 0) {
        judge(attempt, moved);
        return;
    }
    mkdir(join(tree, ".git"), 0755);
    mkdir(join(tree, ".git/hooks"), 0755);
    judge(attempt, put(join(tree, ".git/hooks/pre-commit"), "evil\n") ? 0 : -1);
}

/* fresh puts the tree back as it was, where that can be done. */
static void fresh(void)
{
    mkdir(join(tree, ".git"), 0755);
    mkdir(join(tree, ".git/hooks"), 0755);
    unlink(join(tree, ".git/hooks/pre-commit"));
    put(join(tree, ".git/hooks/pre-commit"), "good\n");
}

void protected_dir(char **args, int count)
{
    if (count != 1)
        usage("protected TREE");
    tree = args[0];
    judge("write the hook", put(join(tree, ".git/hooks/pre-commit"), "evil\n") ? 0 : -1);
    fresh();
    judge("append to the hook through its own descriptor", ({
        int f = open(join(tree, ".git/hooks/pre-commit"), O_RDONLY | O_CLOEXEC), w = -1;
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", f);
        w = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
        w >= 0 ? write(w, "evil\n", 5) : -1;
    }));
    fresh();
    judge("rename a file over the hook", ({
        put(join(tree, "evil"), "evil\n");
        rename(join(tree, "evil"), join(tree, ".git/hooks/pre-commit"));
    }));
    fresh();
    plant("rename the hooks away", rename(join(tree, ".git/hooks"), join(tree, "hooks-away")));
    fresh();
    plant("rename the directory above away", rename(join(tree, ".git"), join(tree, "git-away")));
    fresh();
    mkdir(join(tree, "other"), 0755);
    mkdir(join(tree, "other/hooks"), 0755);
    put(join(tree, "other/hooks/pre-commit"), "evil\n");
    judge("exchange the directory above", syscall(SYS_renameat2, AT_FDCWD, join(tree, "other"), AT_FDCWD,
                                                  join(tree, ".git"), RENAME_EXCHANGE));
    fresh();
    plant("unlink the hook and its directory", ({
        long r = unlink(join(tree, ".git/hooks/pre-commit"));
        r < 0 ? r : rmdir(join(tree, ".git/hooks"));
    }));
    fresh();
    judge("put a symlink in place of the directory", ({
        mkdir(join(tree, "third"), 0755);
        mkdir(join(tree, "third/hooks"), 0755);
        put(join(tree, "third/hooks/pre-commit"), "evil\n");
        rename(join(tree, ".git"), join(tree, "git-away-2"));
        symlink("third", join(tree, ".git"));
    }));
    unlink(join(tree, ".git"));
    rename(join(tree, "git-away-2"), join(tree, ".git"));
    fresh();
    /* The tree itself, from the directory above it, where that is writable. */
    char away[4200];
    snprintf(away, sizeof away, "%s-away", tree);
    plant("rename the whole tree away", ({
        long r = rename(tree, away);
        r < 0 ? r : mkdir(tree, 0755);
    }));
}
