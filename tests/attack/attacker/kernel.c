#include "attack.h"
void kernel(char **args, int count) { (void)args, (void)count; usage("not yet"); }
