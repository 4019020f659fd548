#include "attack.h"
void abi(char **args, int count) { (void)args, (void)count; usage("not yet"); }
