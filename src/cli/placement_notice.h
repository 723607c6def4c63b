/* Notices about the devices and the placement of a program, and placement lock files. */
#ifndef TU__CLI_PLACEMENT_NOTICE_H
#define TU__CLI_PLACEMENT_NOTICE_H

#include <tutti/model.h>
#include <tutti/run.h>

/* Prints one line on stderr if operations were moved from the device they were placed on, or if a placement
 * pattern matches no operation. */
void cli_print_placement_notice(const tu_program *program);

/* Prints one line on stderr if the device of a model has a notice: that it computes the precision slowly, for example. */
void cli_print_model_notice(const tu_model *model);

/* Compares the placement with the placement lock file and prints the differences. Writes the file if it does not exist
 * or `update` is true. Does nothing if `lock` is NULL. Returns the exit status. */
int cli_apply_placement_lock(const tu_program *program, const char *lock, bool update);

#endif
