#include "attack.h"
void proc(char **args, int count) { (void)args, (void)count; usage("not yet"); }
