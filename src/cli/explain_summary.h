/* What `tutti explain` opens with: a program in a few lines. */
#ifndef CLI_EXPLAIN_SUMMARY_H
#define CLI_EXPLAIN_SUMMARY_H

#include <tutti/command.h>
#include <tutti/run.h>

/* Operations, copies and sums of a step; of each device its operations, what is copied to and from it, its peak; and the
 * operations that another device would not have. Ends with an empty line. */
tu_status explain_print_summary(const tu_program *program);
/* The same as the member "summary" of an object. */
tu_status explain_put_summary(tu_json *json, const tu_program *program);

#endif
