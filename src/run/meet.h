/* Meetings: values that several devices add up together (graph/ops/collective.c), as the engine holds them.
 *
 * Each rank of a meeting is one part of the program. It *brings* its values once the last of them is computed, and
 * goes on computing; it *holds* the meeting before the first kernel that may want the sums: waits until all have
 * brought theirs, adds up its share of all values and writes it to everybody, and waits until the others have done
 * the same.
 *
 * Nobody waits in a circle. A meeting's level (tu__find_levels) is above that of everything brought to it, on every
 * rank; kernels run in the order of their levels, and meetings are held in the order of level and number, before the
 * first kernel of their level. So whoever holds one waits only for kernels of lower levels, and those only for
 * earlier meetings. */
#ifndef TU__RUN_MEET_H
#define TU__RUN_MEET_H

#include "base/arena.h"
#include "run/part.h"

/* How the ranks of a meeting reach each other: hold.c. */
typedef enum tu__meeting_way {
    TU__MEET_ON_HOST,       /* all compute on the host's memory */
    TU__MEET_ON_CARD,       /* all are parts of one card, which adds up by itself */
    TU__MEET_BETWEEN_CARDS, /* as on one card: they reach each other's memory */
    TU__MEET_THROUGH_HOST,  /* shares are brought to the host and back */
} tu__meeting_way;

enum { TU__STAGED_BYTES = 1 << 18 }; /* of each rank's values at a time, where they go through the host */

typedef struct tu__attendee { /* one rank of a meeting */
    uint32_t part;
    uint32_t attendance; /* its place in the part's list of meetings */
    uint32_t *nodes;     /* per value: its all_reduce */
    uint32_t *in, *out;  /* per value: buffers of the part; equal memory where it is added up in place */
    uint32_t ready,
        held; /* places in the part's order: brought behind the kernels before the one, held before the other */
    uint32_t brought, done; /* events of the program */
    void *recorded;         /* the device's event behind what it brings; NULL: it has none */
} tu__attendee;

struct tu__meeting {
    int64_t number;
    uint32_t level;
    uint32_t ranks, value_count;
    tu__attendee *attendees; /* per rank */
    uint64_t bytes;          /* that one rank brings */
    tu__meeting_way way;
    /* bound to addresses: values of one element type are one combination; `rank` is for each to fill in */
    uint32_t combination_count;
    tu_combination *combinations;
    tu_combine_segment *segments; /* per value, in the order of combinations */
    void **addresses;             /* per value in and out of every rank, what segments point to */
    uint32_t *order;              /* values by element type */
};

typedef struct tu__meetings {
    tu__meeting *list; /* in the order in which they are held */
    uint32_t count;
    tu__arena arena;
} tu__meetings;

/* Finds a graph's meetings. Refuses one that not all ranks attend with equal lists, each on a device of its own. */
tu_status tu__meetings_find(const tu__unit *unit, tu__meetings *meetings);
void tu__meetings_end(tu__meetings *meetings);

/* Levels of all nodes of the graph, and of the meetings, which are then in the order in which they are held. `*levels` is the
 * caller's to free. Refuses meetings that wait for each other. */
tu_status tu__find_levels(const tu_graph *graph, tu__meetings *meetings, uint32_t **levels);

/* Once plans are selected: which buffers are brought and taken away, and the events. */
tu_status tu__meetings_locate(tu__meetings *meetings, const tu_graph *graph, tu__part *parts, size_t count,
                              uint32_t *events);

/* What is needed beside addresses: events and staging memory. Made once, and freed by the second. */
tu_status tu__meetings_equip(tu__meetings *meetings, tu__part *parts);
void tu__meetings_strip(tu__meetings *meetings, tu__part *parts);

/* Once buffers have addresses. */
void tu__meetings_bind(tu__meetings *meetings, const tu_graph *graph, const tu__part *parts);

#endif
