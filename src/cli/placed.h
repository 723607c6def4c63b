/* What commands say of a program's placement. */
#ifndef CLI_PLACED_H
#define CLI_PLACED_H

#include <tutti/run.h>

/* One line on stderr, where operations are not where they were told to be, or none has been told. */
void cli_say_placement(const tu_program *program);

/* Writes the lock, or holds the program to it; NULL: there is none. A drift is told with its differences. Returns the exit
 * status. */
int cli_hold_to_lock(const tu_program *program, const char *lock, bool update);

#endif
