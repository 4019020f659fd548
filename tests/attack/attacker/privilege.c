#include "attack.h"
void privilege(char **args, int count) { (void)args, (void)count; usage("not yet"); }
