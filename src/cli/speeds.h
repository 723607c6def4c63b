/* A program on devices of unequal speed. */
#ifndef CLI_SPEEDS_H
#define CLI_SPEEDS_H

#include <tutti/run.h>

/* Where the program computes on several devices, of which one is much slower than another and holds it up: a line on stderr
 * with the time predicted for each alone and for all together. Devices are measured by a small product, about 20 ms each. */
void speeds_warn(const tu_program *program, int threads);

#endif
