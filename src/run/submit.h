/* Executing many steps of a program's command list in one call of its devices. */
#ifndef TU__RUN_SUBMIT_H
#define TU__RUN_SUBMIT_H

#include <tutti/run.h>

typedef struct tu__submit {
    tu_submission submission; /* its arrays have room for all partitions, collectives and fetches */
    tu_submit_part *parts;
    tu_submit_collective *collectives;
    uint32_t *ranks; /* partitions of the ranks of all collectives */
    void **fetches;
    char notice[256]; /* why the devices cannot execute the list; "" if they can */
} tu__submit;

/* Finds out whether the devices of a compiled program can execute its command list. */
tu_status tu__submit_init(tu_program *program);
void tu__submit_free(tu__submit *submit);

/* True if the devices execute the steps of calls with many steps; otherwise `notice` says why not. */
bool tu__can_submit(const tu_program *program);

/* Executes `steps` steps with the inputs that tu__inputs_fill has set. The results of the first step go to index `done`
 * of the arrays in `fetches`. */
tu_status tu__submit_steps(tu_program *program, tu_state *state, void *const *fetches, size_t done,
                           uint32_t steps);

#endif
