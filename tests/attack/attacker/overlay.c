/* The layer below a writable grant: its own files, its marks, and what they would show of the host (L8). */
#include "attack.h"

#include <sys/mount.h>
#include <sys/xattr.h>

/* args: the tree, then paths where the layer stands on the host */
void overlay(char **args, int count)
{
    if (count < 2)
        usage("overlay TREE LAYER...");
    const char *tree = args[0];
    for (int i = 1; i < count; i++) {
        char name[256];
        snprintf(name, sizeof name, "open the layer %d", i);
        int f = open(args[i], O_RDONLY | O_CLOEXEC);
        report(name, f);
        if (f >= 0)
            close(f);
    }
    /* The kernel marks what is opaque or moved by these; a mark of the agent's own could show what is hidden. */
    static const char *const marks[] = {"user.overlay.redirect", "user.overlay.opaque", "user.overlay.whiteout",
                                        "user.overlay.metacopy", "trusted.overlay.redirect"};
    mkdir(join(tree, "marked"), 0755);
    for (unsigned i = 0; i < sizeof marks / sizeof *marks; i++)
        if (setxattr(join(tree, "marked"), marks[i], "/../../etc", 10, 0) == 0)
            fprintf(stderr, "marked %s\n", marks[i]); /* what it is worth shows on the host: the test looks there */
    report("make the lower tree's file another's", chown(join(tree, "base"), 0, 0));
    /* Outside a mount of our own stands for the cell's. */
    char options[3 * 4200];
    snprintf(options, sizeof options, "userxattr,lowerdir=%s,upperdir=%s/upper,workdir=%s/work", tree, args[1], args[1]);
    (void)!mount("overlay", tree, "overlay", 0, options);
    /* The mount table names the layer by a descriptor of the warden's; here that number is ours, or nobody's. */
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char text[8192];
    bool found = false;
    while (f && fgets(text, sizeof text, f)) {
        char *at = strstr(text, "upperdir=");
        if (!at)
            continue;
        at += strlen("upperdir=");
        at[strcspn(at, ", \n")] = 0;
        int layer = open(at, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
        found = found || layer >= 0;
        if (layer >= 0)
            close(layer);
    }
    if (f)
        fclose(f);
    if (found)
        escaped("the layer by its name in the mount table", "it opens");
    else
        held("the layer by its name in the mount table", "it opens nothing");
}
