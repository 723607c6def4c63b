/* Multi-step calls on several devices at once (`repeat_joint` of the device interface). */
#ifndef TU__RUN_JOINT_H
#define TU__RUN_JOINT_H

#include <tutti/run.h>

#include "compile/partition.h"

typedef struct tu__joint_source tu__joint_source; /* what an entry of `moves` was made from */

typedef struct tu__joint {
    uint32_t part_count, move_count;
    uint32_t first;       /* index of the first active partition */
    tu_joint_part *parts; /* the active partitions */
    /* Per partition of the program: its index in `parts`; TU_NO_NODE if it is idle. */
    uint32_t *part_index;
    /* One step of all partitions, as a list of launches, copies, waits and collectives. */
    tu_joint_move *moves;
    tu__joint_source *sources; /* per entry of `moves` */
    uint32_t *ranks;           /* per rank of each collective: its index in `parts` */
    tu_repeat_feed *feeds;     /* of all partitions, one after another */
    tu_repeat_fetch *fetches;
} tu__joint;

/* Finds out whether the devices of a compiled program can run steps jointly. Otherwise sets `notice` to the
 * reason. */
tu_status tu__joint_init(tu_program *program, char *notice, size_t capacity);
void tu__joint_free(tu__joint *joint);

/* Runs `steps` steps with the feeds and fetches that tu_run_many has prepared. */
tu_status tu__joint_run(tu_program *program, uint32_t steps);

#endif
