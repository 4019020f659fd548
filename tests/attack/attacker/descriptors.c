#include "attack.h"
void descriptors(char **args, int count) { (void)args, (void)count; usage("not yet"); }
