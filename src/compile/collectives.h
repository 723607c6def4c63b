/* Collectives: values that several devices add up together (graph/ops/collective.c), as the engine holds them.
 *
 * Each rank of a collective is one part of the program. It *brings* its values once the last of them is computed, and
 * goes on computing; it *holds* the collective before the first kernel that may want the sums: waits until all have
 * brought theirs, adds up its share of all values and writes it to everybody, and waits until the others have done
 * the same.
 *
 * Nobody waits in a circle. A collective's level (tu__find_levels) is above that of everything brought to it, on every
 * rank; kernels run in the order of their levels, and collectives are held in the order of level and number, before the
 * first kernel of their level. So whoever holds one waits only for kernels of lower levels, and those only for
 * earlier collectives. */
#ifndef TU__COMPILE_COLLECTIVES_H
#define TU__COMPILE_COLLECTIVES_H

#include "base/arena.h"
#include "compile/partition.h"

/* How the ranks of a collective reach each other: hold.c. */
typedef enum tu__collective_path {
    TU__COLLECTIVE_ON_HOST,       /* all compute on the host's memory */
    TU__COLLECTIVE_ON_CARD,       /* all are parts of one card, which adds up by itself */
    TU__COLLECTIVE_BETWEEN_CARDS, /* as on one card: they reach each other's memory */
    TU__COLLECTIVE_THROUGH_HOST,  /* shares are brought to the host and back */
} tu__collective_path;

enum { TU__STAGED_BYTES = 1 << 18 }; /* of each rank's values at a time, where they go through the host */

typedef struct tu__member { /* one rank of a collective */
    uint32_t part;
    uint32_t membership; /* its place in the part's list of collectives */
    uint32_t *nodes;     /* per value: its all_reduce */
    uint32_t *in, *out;  /* per value: buffers of the part; equal memory where it is added up in place */
    uint32_t ready,
        held; /* places in the part's order: brought behind the kernels before the one, held before the other */
    uint32_t brought, done; /* events of the program */
    void *recorded;         /* the device's event behind what it brings; NULL: it has none */
} tu__member;

struct tu__collective {
    int64_t number;
    uint32_t level;
    uint32_t ranks, value_count;
    tu__member *members; /* per rank */
    uint64_t bytes;      /* that one rank brings */
    tu__collective_path way;
    /* bound to addresses: values of one element type are one combination; `rank` is for each to fill in */
    uint32_t combination_count;
    tu_combination *combinations;
    tu_combine_segment *segments; /* per value, in the order of combinations */
    void **addresses;             /* per value in and out of every rank, what segments point to */
    uint32_t *order;              /* values by element type */
};

typedef struct tu__collectives {
    tu__collective *list; /* in the order in which they are held */
    uint32_t count;
    tu__arena arena;
} tu__collectives;

/* Finds a graph's collectives. Refuses one that not all ranks attend with equal lists, each on a device of its own. */
tu_status tu__collectives_find(const tu__unit *unit, tu__collectives *collectives);
void tu__collectives_end(tu__collectives *collectives);

/* Levels of all nodes of the graph, and of the collectives, which are then in the order in which they are held. `*levels` is the
 * caller's to free. Refuses collectives that wait for each other. */
tu_status tu__find_levels(const tu_graph *graph, tu__collectives *collectives, uint32_t **levels);

/* Once plans are selected: which buffers are brought and taken away, and the events. */
tu_status tu__collectives_locate(tu__collectives *collectives, const tu_graph *graph, tu__partition *parts,
                                 size_t count, uint32_t *events);

/* What is needed beside addresses: events and staging memory. Made once, and freed by the second. */
tu_status tu__collectives_equip(tu__collectives *collectives, tu__partition *parts);
void tu__collectives_strip(tu__collectives *collectives, tu__partition *parts);

/* Once buffers have addresses. */
void tu__collectives_bind(tu__collectives *collectives, const tu_graph *graph, const tu__partition *parts);

#endif
