/* Reads what mpirun or srun and all processes write to standard error: passes it on, except for the messages of the
 * processes to `tutti launch` (launched.h), which it records. */
#ifndef TU__CLI_LAUNCH_OUTPUT_H
#define TU__CLI_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* What the processes have told. */
struct launch_messages {
    bool joined, trains, lost;
    int status; /* exit status of the first process that ended with another one than 0 or CLI_LOST; 0: none */
    char folder[4096]; /* of the training run; "": none */
};

struct launch_output {
    struct launch_messages messages;
    char *line; /* the incomplete last line */
    size_t used, size;
    bool is_message;           /* the line is a message */
    bool has_rule, is_dropped; /* parts of mpirun's texts: see launch_output.c */
    bool is_closed;            /* nobody reads our standard error any more */
};

void launch_output_take(struct launch_output *output, const char *bytes, size_t count);
/* Passes on the incomplete last line, and frees memory. */
void launch_output_end(struct launch_output *output);

#endif
