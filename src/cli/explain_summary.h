/* The summary at the start of the output of `tutti explain`. */
#ifndef TU__CLI_EXPLAIN_SUMMARY_H
#define TU__CLI_EXPLAIN_SUMMARY_H

#include <tutti/command.h>
#include <tutti/run.h>

/* Prints the number of operations, copies and collectives per step; for each device its operations, bytes copied to
 * and from it and its memory peak; the operations that the preferred device does not support; and an empty line. */
tu_status explain_print_summary(const tu_program *program);
/* Writes the same as the member "summary" of a JSON object. */
tu_status explain_put_summary(tu_json *json, const tu_program *program);

#endif
