/* A communicator: the group of ranks of one collective, the buffers that they have registered for it, and the work of
 * each rank.
 *
 *     tu__communicator_new(&c, TU__ALL_GATHER, 0, ranks, value_count, types);
 *     for every rank and value: tu__communicator_register(&c, rank, value, in, out);
 *     tu__communicator_connect(&c);
 *     … rank r, when all ranks have written their inputs: computes tu__communicator_of_rank(&c, r) …
 *
 * Ranks register their buffers when a program is bound to addresses, all of them before the first one runs the
 * collective. A command of a program names the collective, never an address of another rank: the transport finds it
 * here. Between ranks of one process a registration is an address. Every transport computes the same sum, pairwise in
 * the order of ranks: ((0 + 1) + (2 + 3)) + …; bf16 and f16 are added in f32 and rounded once.
 *
 * Each rank does an equal share of the work, reading from other ranks and writing to them without staging buffers:
 *
 *     all_reduce       a slice of the elements of all values, in whole cache lines: the sum of all ranks' inputs, to
 *                      all ranks' outputs
 *     reduce_scatter   the rows that it gets: the sum of all ranks' inputs, to its own output
 *     all_gather       the rows that it has: a copy of its own input, to all ranks' outputs
 *     broadcast        a slice as of an all_reduce: a copy of the root's input, to all ranks' outputs
 *     reduce           a slice as of an all_reduce: the sum of all ranks' inputs, to the root's output
 *
 * In the last two and an all_reduce, the result may therefore have the address of the input.
 *
 * If a collective spans several processes, only the local ranks are registered. Its combinations then describe what
 * this process contributes to each portion of the work and what it gets of it; group_reduce.h does the rest. Portions
 * are the rows of each rank, of all processes, for a reduce_scatter and an all_gather; otherwise there is one, with all
 * elements. A combination may have no inputs or no outputs here. */
#ifndef TU__COMM_COMMUNICATOR_H
#define TU__COMM_COMMUNICATOR_H

#include <tutti/device.h>

#include "base/arena.h"
#include "graph/collective.h"

typedef struct tu__communicator {
    tu__collective_kind kind;
    uint32_t root;               /* of a broadcast or reduce: a rank of all processes */
    uint32_t ranks, value_count; /* ranks: of this process */
    bool spans_processes;
    uint32_t first_rank, all_ranks; /* of this process, and of all of them: 0 and `ranks` in one process */
    tu_dtype *dtypes;               /* per value */
    size_t *counts;                 /* per value: elements of a rank's input */
    const void **in;                /* per value: the inputs of all ranks */
    void **out;                     /* per value: the results of all ranks */
    tu__arena arena;
    /* Set by tu__communicator_connect. The values of one element type are combined together, so a rank has one
     * combination per element type; those of a rank with little work may have no segments. */
    uint32_t combination_count;
    tu_combination *combinations; /* of rank (or portion) 0, then of rank 1, … */
    tu__arena connections;
} tu__communicator;

/* Creates a communicator. `types`: per value, the type of a rank's *input*, which determines that of its result
 * (graph/ops/collective.c); the same for all ranks. `root` is used by a broadcast. */
tu_status tu__communicator_new(tu__communicator *c, tu__collective_kind kind, uint32_t root, uint32_t ranks,
                               uint32_t value_count, const tu_type *types);
void tu__communicator_free(tu__communicator *c);

/* Makes the registered ranks those from `first_rank` on of `all_ranks` in several processes. Call before registering.
 * The types of tu__communicator_new are then divided among all of them. */
void tu__communicator_span(tu__communicator *c, uint32_t first_rank, uint32_t all_ranks);

/* Registers the input and the result of a rank for one value. */
void tu__communicator_register(tu__communicator *c, uint32_t rank, uint32_t value, const void *in, void *out);

/* Makes the combinations of all ranks, when all have registered all values; again when addresses have changed. Frees
 * the previous combinations. */
tu_status tu__communicator_connect(tu__communicator *c);

/* Returns the `combination_count` combinations of one rank; of one portion, if the collective spans processes. */
const tu_combination *tu__communicator_of_rank(const tu__communicator *c, uint32_t rank);
/* Returns the number of portions of a collective that spans processes, and the rank that alone contributes to a portion, or
 * gets its result. */
uint32_t tu__communicator_portion_count(const tu__communicator *c);
uint32_t tu__communicator_rank_of_portion(const tu__communicator *c, uint32_t portion);

/* Return the rank of this process to which input, or output, `index` of all segments of a rank's (or portion's)
 * combinations belongs. */
uint32_t tu__communicator_rank_of_input(const tu__communicator *c, uint32_t rank, uint32_t index);
uint32_t tu__communicator_rank_of_output(const tu__communicator *c, uint32_t rank, uint32_t index);

#endif
