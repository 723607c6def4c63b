/* One device's part of a program: its kernels in order, its memory, and what it exchanges with the others. */
#ifndef TU__COMPILE_PARTITION_H
#define TU__COMPILE_PARTITION_H

#include <stdatomic.h>

#include "compile/plan_memory.h"
#include "device/device.h"
#include "pass/pass.h"

/* A leaf of the part: a value the engine puts into a buffer. */
typedef struct tu__leaf {
    uint32_t node; /* INPUT, CONSTANT, VARIABLE, COPY or ALL_REDUCE */
    uint32_t buffer;
    struct tu__variable *variable; /* VARIABLE, bound to a state: bind.c */
    struct tu__mirror *mirror;     /* of it, where the part has one; NULL: it has the variable itself */
} tu__leaf;

/* A copy that comes in: waits until the other part has made the value, then fetches it. */
typedef struct tu__receive {
    uint32_t node;   /* the COPY */
    tu__edge source; /* the value copied */
    uint32_t source_part, source_buffer;
    uint32_t part, buffer;  /* where it goes */
    uint32_t mover;         /* the part one of whose threads brings it: one of the two */
    uint32_t made, arrived; /* events of the program */
    bool at_hand;           /* a variable or a constant: it is made before the run begins */
    bool early;             /* that, or made before the part that makes it waits for anything */
    void *ready;      /* the source device's event: `made` says that it is recorded; NULL: it has none */
    void *landed;     /* the mover's, behind a move that is begun and not waited for; NULL: it waits */
    bool pinned;      /* bound: the mover reaches the host's end of it where it lies */
    bool by_launcher; /* in this run: the mover's launching thread begins the move, not its copying one */
    uint64_t begun;   /* the latest run in which it was begun */
} tu__receive;

/* An assignment: what lies in `buffer` after the run becomes the variable's value. */
typedef struct tu__update {
    uint32_t variable, assign; /* nodes */
    uint32_t buffer;
    bool in_place; /* it lies in the variable's memory already */
    void *staging; /* where a value that is itself a variable waits, so that two can be exchanged */
    /* bound to a state: bind.c */
    struct tu__variable *target;
    struct tu__mirror
        *mirror;     /* of the target, where the part updates that; NULL: it updates the target itself */
    uint64_t before; /* the target's version when the run began */
} tu__update;

/* An receive that is waited for without being read, before the kernel at a place of the order. */
typedef struct tu__wait {
    uint32_t buffer, before;
    uint32_t next; /* another one before the same kernel; TU_NO_NODE: none */
} tu__wait;

typedef struct tu__collective tu__collective; /* meet.h */
typedef struct tu__collectives tu__collectives;

/* A collective that the part goes to. */
typedef struct tu__membership {
    tu__collective *collective;
    uint32_t rank;
} tu__membership;

/* One thing after another, on the part's thread. */
typedef struct tu__step {
    enum {
        TU__STEP_WAIT,
        TU__STEP_LAUNCH,
        TU__STEP_SIGNAL,
        TU__STEP_POST,       /* what a collective wants is computed */
        TU__STEP_COLLECTIVE, /* holds a collective */
        TU__STEP_BARRIER
    } kind;
    uint32_t event;        /* WAIT, SIGNAL */
    tu__receive *receive;  /* which it is about */
    uint32_t membership;   /* BRING, MEET: of the part's collectives */
    uint32_t first, count; /* LAUNCH: kernels in order */
} tu__step;

enum { TU__FILLING = 1 << 30 }; /* what a part is at: above every number of a step */

typedef struct tu__partition {
    tu__device *device;
    uint64_t memory_limit; /* bytes that the program may plan with there; 0: what the device has */
    uint32_t *nodes, node_count;
    tu__edge *exports;
    uint32_t export_count;
    uint32_t *slot;      /* node of the graph -> its first output in buffer_of */
    uint32_t *buffer_of; /* output of a node -> its dense buffer in the plan, or TU_NO_NODE */
    uint32_t output_count;
    tu_plan *plan;
    uint32_t *order, update_kernels; /* the last so many of the order apply updates */
    tu__memory_plan memory;
    tu__leaf *leaves;
    uint32_t leaf_count;
    tu__receive *receives;
    uint32_t receive_count;
    tu__receive **moves; /* what its threads bring, here or to a processor: steps.c */
    uint32_t move_count;
    uint32_t copier_moves; /* so many of them, in this run, its copying thread */
    tu__update *updates;
    uint32_t update_count;
    tu__wait *waits; /* for what is not read: tu_after */
    uint32_t wait_count;
    tu__membership *collectives; /* in the order in which they are held */
    uint32_t collective_count;
    tu__step *steps;
    uint32_t step_count;
    uint64_t reaches; /* bit p: its kernels may use the memory of part p, which is elsewhere: reach.c */
    bool idle;        /* it has no kernels, and nothing comes or goes: nobody runs it or waits for it */
    /* for whoever must say what is late: the step being taken, or from TU__FILLING on the feed; and whose event a thread
     * waits for, one more than the number of that part, 0: nobody's */
    atomic_uint at, awaited_by_launcher, awaited_by_copier;
    atomic_bool there; /* it has come to the barrier */
    /* bound to addresses: bind.c */
    char *staging; /* a piece of every rank's values, of collectives that go through the host: hold.c */
    uint32_t staged_ranks;
    void **addresses, **workspaces;
    void *constants;
    bool constants_filled;
    size_t constant_bytes, variable_bytes;
    uint64_t scratch_generation;
} tu__partition;

/* Builds all parts of a unit whose nodes are placed and whose copies are made: select, schedule, plan memory, steps.
 * `*event_count` events are needed. */
tu_status tu__partitions_build(const tu__unit *unit, size_t count, tu__device **devices, tu__partition *parts,
                               tu__collectives *collectives, uint32_t *event_count);
void tu__partitions_free(size_t count, tu__partition *parts);

/* steps.c: notes which parts have nothing to do. */
void tu__find_idle_partitions(tu__partition *parts, size_t count);
/* steps.c: what the part's thread does one after another, once kernels are ordered and receives known. */
tu_status tu__write_steps(tu__partition *parts, size_t count, size_t index);
/* steps.c: what the part's threads bring, once steps are written. */
tu_status tu__list_moves(tu__partition *parts, uint32_t index);
/* steps.c: notes what is made early, once steps are written. */
void tu__find_early_receives(tu__partition *parts, size_t count);

/* reach.c: lets devices that exchange values use each other's memory, where they can. */
tu_status tu__partitions_enable_peer_access(const tu__collectives *collectives, tu__partition *parts,
                                            size_t count);
/* reach.c: how a value comes from one part to another. */
typedef enum tu__copy_way {
    TU__COPY_DIRECT, /* the host has one end of it, both are of one device, or of a kind that knows no peers */
    TU__COPY_PEERS,  /* from device to device */
    TU__COPY_THROUGH_HOST /* they do not reach each other */
} tu__copy_way;
/* reach.c: whether two parts are on one device: its logical ones share its memory. */
bool tu__partition_is_with(const tu__partition *part, const tu__partition *other);
tu__copy_way tu__partitions_copy_way(const tu__partition *parts, uint32_t from, uint32_t to);

/* Whether a next value lies in a variable's own memory, and must wait elsewhere while variables change. */
bool tu__update_waits(const tu__partition *part, const tu__update *update);

/* The part a node is placed on. */
uint32_t tu__partition_of(const tu__unit *unit, uint32_t node);
/* The dense buffer of a value in a part; TU_NO_NODE when it has none. */
uint32_t tu__partition_buffer(const tu__partition *part, tu__edge value);

#endif
