/* What `tutti bench` says of a workload that does not fit: one line, what weighs most, what would help. */
#ifndef CLI_MEMORY_REFUSAL_H
#define CLI_MEMORY_REFUSAL_H

#include "cli/workload.h"

/* Prints the refusal on stderr and returns CLI_BAD_INPUT; prints nothing and returns CLI_DONE when the plan fits, or
 * there is none: then the workload failed for another reason. */
int cli_refuse_memory(const struct workload_settings *settings);

#endif
