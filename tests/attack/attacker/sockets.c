#include "attack.h"
void sockets(char **args, int count) { (void)args, (void)count; usage("not yet"); }
