/* A communicator: the group of ranks of one collective, and the buffers that they have registered for it.
 *
 * Ranks register their buffers when a program is bound to addresses, all of them before the first one runs the
 * collective. A command of a program names the collective, never an address of another rank: the transport finds it
 * here. Between ranks of one process a registration is an address. Every transport computes the same sum, pairwise in
 * the order of ranks: ((0 + 1) + (2 + 3)) + …; bf16 and f16 are added in f32 and rounded once. */
#ifndef TU__COMM_COMMUNICATOR_H
#define TU__COMM_COMMUNICATOR_H

#include <tutti/device.h>

#include "base/arena.h"

typedef struct tu__communicator {
    uint32_t ranks, value_count;
    /* The values of one element type are reduced together. */
    uint32_t combination_count;
    tu_combination *combinations; /* of rank 0, then of rank 1, … */
    tu_combine_segment *segments; /* per value, sorted by element type */
    uint32_t *segment_of;         /* per value: its segment */
    void **addresses;             /* per segment: inputs of all ranks, then results of all ranks */
    tu__arena arena;
} tu__communicator;

/* Creates a communicator for values of the given types. */
tu_status tu__communicator_new(tu__communicator *c, uint32_t ranks, uint32_t value_count,
                               const tu_type *types);
void tu__communicator_free(tu__communicator *c);

/* Registers the input and the result of a rank for one value; both may have the same address. */
void tu__communicator_register(tu__communicator *c, uint32_t rank, uint32_t value, const void *in, void *out);

/* Returns the `combination_count` combinations as one rank reduces them. */
const tu_combination *tu__communicator_of_rank(const tu__communicator *c, uint32_t rank);

#endif
