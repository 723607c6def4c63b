/* A warning about devices of different speed. */
#ifndef TU__CLI_UNEQUAL_DEVICES_H
#define TU__CLI_UNEQUAL_DEVICES_H

#include <tutti/run.h>

/* Prints a line on stderr if one device of the program is much slower than another and is predicted to slow the
 * program down. The line has the predicted time of a step on each device and on all of them. Measures the speed of
 * each device with small matrix products, for about 20 ms; a device that does not answer for `timeout` seconds (0: the
 * default) is named instead. */
void cli_warn_unequal_devices(const tu_program *program, int threads, double timeout);

#endif
