#include "attack.h"
void overlay(char **args, int count) { (void)args, (void)count; usage("not yet"); }
