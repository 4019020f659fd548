#include "attack.h"
void ipc(char **args, int count) { (void)args, (void)count; usage("not yet"); }
