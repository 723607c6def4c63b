/* Executing many steps of a program's command list in one call of its devices. */
#ifndef TU__RUN_SUBMIT_H
#define TU__RUN_SUBMIT_H

#include <tutti/run.h>

typedef struct tu__execution tu__execution;

typedef struct tu__submit {    /* of one execution; its arrays are allocated when they are first needed */
    tu_executable *executable; /* NULL: not built for the current addresses */
    tu_list_part *parts;
    tu_list_collective *collectives;
    const tu_route **routes; /* per collective */
    uint32_t *ranks;         /* partitions of the ranks of all collectives */
    void **fetches;
} tu__submit;

/* Finds out whether the devices of a compiled program can execute its command list; otherwise sets submit_notice. */
tu_status tu__submit_check(tu_program *program);
/* True if the devices execute the steps of calls with many steps. */
bool tu__can_submit(const tu_program *program);

/* Builds the list's executable for the current addresses, if there is none yet; the second frees it. */
tu_status tu__submit_bind(tu__execution *e);
void tu__submit_unbind(tu__execution *e);
void tu__submit_free(tu__submit *submit);

/* Executes `steps` steps with the inputs that tu__inputs_fill has set. The results of the first step go to index `done`
 * of the arrays in `fetches`. */
tu_status tu__submit_steps(tu__execution *e, tu_state *state, void *const *fetches, size_t done,
                           uint32_t steps);

#endif
