#include "attack.h"
void readonly(char **args, int count) { (void)args, (void)count; usage("not yet"); }
