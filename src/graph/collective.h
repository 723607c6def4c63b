/* Collective operations: what their nodes have in common. ops/collective.c describes what each computes. */
#ifndef TU__GRAPH_COLLECTIVE_H
#define TU__GRAPH_COLLECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/shared.h"

typedef struct tu__node tu__node;

typedef enum tu__collective_kind {
    TU__ALL_REDUCE,
    TU__REDUCE_SCATTER,
    TU__ALL_GATHER,
    TU__BROADCAST,
    TU__REDUCE,
} tu__collective_kind;

/* The attributes of a collective node. */
typedef struct tu__collective_info {
    tu__collective_kind kind;
    int64_t collective, rank, ranks;
    int64_t
        root; /* of a broadcast: the rank whose value all ranks get; of a reduce: the rank that gets the sum; otherwise 0 */
} tu__collective_info;

/* Returns the attributes of a node whose operation has the trait TU__COLLECTIVE. */
TU__SHARED tu__collective_info tu__collective_of(const tu__node *node);

/* True if the result may have the memory of its own rank's input. Then every element of the result is computed by the
 * rank that reads this element of all inputs, and by no other. */
bool tu__collective_may_be_in_place(tu__collective_kind kind);

/* Returns the name of the operation: "all_reduce". */
const char *tu__collective_name(tu__collective_kind kind);

#endif
