#include "attack.h"
void network(char **args, int count) { (void)args, (void)count; usage("not yet"); }
