/* Many steps of all a program's devices at once, where they can be joined. */
#ifndef TU__RUN_JOINT_H
#define TU__RUN_JOINT_H

#include <tutti/run.h>

#include "compile/partition.h"

typedef struct tu__joint_source tu__joint_source; /* what a move is about */

typedef struct tu__joint {
    uint32_t part_count, move_count;
    uint32_t first;       /* of the program's parts */
    tu_joint_part *parts; /* those that have something to do */
    uint32_t *number; /* per part of the program: its place in `parts`; TU_NO_NODE: it has nothing to do */
    tu_joint_move *moves; /* of a step of all parts */
    tu__joint_source *sources;
    uint32_t *ranks;       /* of all collectives: the place in `parts` of each rank */
    tu_repeat_feed *feeds; /* of all parts, one part's behind the other's */
    tu_repeat_fetch *fetches;
} tu__joint;

/* Finds out, once a program is compiled, whether its devices take steps together. `notice` says why not. */
tu_status tu__joint_begin(tu_program *program, char *notice, size_t capacity);
void tu__joint_end(tu__joint *joint);

/* Takes `steps` steps with what tu_run_many has prepared for them. */
tu_status tu__joint_take(tu_program *program, uint32_t steps);

#endif
