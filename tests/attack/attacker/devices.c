#include "attack.h"
void devices(char **args, int count) { (void)args, (void)count; usage("not yet"); }
