#include "attack.h"
void terminal(char **args, int count) { (void)args, (void)count; usage("not yet"); }
