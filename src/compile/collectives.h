/* Collectives over several devices (graph/ops/collective.c), as the engine executes them.
 *
 * Each rank of a collective is one partition of the program. A rank *posts* its values after the kernel that writes
 * the last of them, and continues computing. It *runs* the collective before the first kernel that may read the
 * results: it waits until all ranks have posted, does its share of the work (comm/communicator.h), and waits until the
 * other ranks have done the same.
 *
 * Collectives cannot deadlock. A collective's level (tu__find_levels) is above the level of every node that it
 * reads, on every rank. Kernels run in the order of their levels. Collectives run in the order of level, then
 * id, before the first kernel of their level. So a rank that runs a collective waits only for kernels of lower
 * levels, and those wait only for earlier collectives. */
#ifndef TU__COMPILE_COLLECTIVES_H
#define TU__COMPILE_COLLECTIVES_H

#include "base/arena.h"
#include "compile/partition.h"
#include "graph/collective.h"

/* How the ranks of a collective access each other's values: run/perform_collective.c. */
typedef enum tu__collective_path {
    TU__COLLECTIVE_ON_HOST, /* the memory of all ranks is host memory */
    TU__COLLECTIVE_ON_ONE_GPU, /* all ranks are logical devices of one GPU, which adds and copies with a kernel */
    /* The ranks are GPUs with peer access to each other, which add and copy with a kernel. */
    TU__COLLECTIVE_PEER_TO_PEER,
    TU__COLLECTIVE_THROUGH_HOST, /* values are copied to the host, added there and copied back */
    /* The group's communication thread reduces them, with those of other processes (run/group_collective.c). */
    TU__COLLECTIVE_OVER_PROCESSES,
    /* The same, but the devices reduce them, with those of other processes (run/connect_processes.c). */
    TU__COLLECTIVE_BY_DEVICES,
    /* All processes share memory, so the compute threads reduce them, with those of other processes. */
    TU__COLLECTIVE_IN_SHARED_MEMORY,
} tu__collective_path;

/* True for a collective that other processes take part in; true if the communication thread performs it. */
#define TU__SPANS_PROCESSES(c)                                                                               \
    ((c)->path == TU__COLLECTIVE_OVER_PROCESSES || (c)->path == TU__COLLECTIVE_BY_DEVICES ||                 \
     (c)->path == TU__COLLECTIVE_IN_SHARED_MEMORY)
#define TU__NEEDS_COMMUNICATION_THREAD(c)                                                                    \
    ((c)->path == TU__COLLECTIVE_OVER_PROCESSES || (c)->path == TU__COLLECTIVE_BY_DEVICES)

typedef struct tu__member { /* one rank of a collective */
    uint32_t partition;
    uint32_t membership; /* index in the partition's list of collectives */
    uint32_t *nodes;     /* per value: its collective node */
    /* Per value: buffers of the partition; same address if computed in place. The same buffer if the rank does not pass
     * a value (tu__collective_reads), or gets none (tu__collective_writes). */
    uint32_t *in, *out;
    /* Positions in the partition's kernel order. The rank posts its values before the kernel at post_position.
     * Before the kernel at wait_position it runs the collective, i.e. it waits for the other ranks' values. */
    uint32_t post_position, wait_position;
    uint32_t posted, done; /* events of a run, numbered after those of the command list (run/run_sync.h) */
} tu__member;

struct tu__collective {
    int64_t id; /* the attribute `collective` of its nodes */
    tu__collective_kind kind;
    uint32_t root;               /* of a broadcast or reduce: a rank of all processes */
    uint32_t index;              /* in the program's collectives, and in its command list */
    uint32_t level;              /* see tu__find_levels */
    uint32_t ranks, value_count; /* ranks: of this process */
    tu__member *members;         /* per rank of this process */
    /* If it spans processes: the index of this process's first rank, and the number of all ranks. Otherwise 0 and
     * `ranks`. */
    uint32_t first_rank, all_ranks;
    uint64_t bytes; /* bytes that each rank posts */
    tu__collective_path path;
};

typedef struct tu__collectives {
    tu__collective *list; /* in the order in which they run */
    uint32_t count;
    bool span_processes; /* other processes have ranks of each of them, too */
    bool share_memory;   /* so do all these processes */
    tu__arena arena;
} tu__collectives;

/* If a collective spans processes, a rank needs no buffer for what it does not use: the value of a rank other than the
 * root in a broadcast, the result of the root, and the result of a rank other than the root in a reduce, unless
 * something reads it. Return true if the node's value, and its result, need a buffer. */
bool tu__collective_needs_value(const tu__node *node, bool spans_processes);
bool tu__collective_needs_result(const tu__node *node, bool spans_processes, bool is_read);

/* Return true if the collective reads the buffer `in` of a rank's value, and writes the buffer `out`. */
bool tu__collective_reads(const tu__collective *c, uint32_t rank, uint32_t value);
bool tu__collective_writes(const tu__collective *c, uint32_t rank, uint32_t value);

/* Finds a graph's collectives. Fails with TU_INVALID if the nodes of a collective have different operations or roots,
 * if its ranks do not all pass the same list of values, or if two ranks are on one device. */
tu_status tu__collectives_find(const tu__unit *unit, tu__collectives *collectives);
void tu__collectives_free(tu__collectives *collectives);

/* Computes the levels of all nodes and collectives, and sorts the collectives into the order in which they run. The
 * caller frees `*levels`. Fails with TU_INVALID if collectives depend on each other in a cycle. */
tu_status tu__find_levels(const tu_graph *graph, tu__collectives *collectives, uint32_t **levels);

/* Sets the buffers of all members. Call after the devices have selected their kernels. */
tu_status tu__collectives_assign_buffers(tu__collectives *collectives, const tu_graph *graph,
                                         tu__partition *partitions, size_t count);
/* Numbers the events of all members from `first` on, and returns the next number. */
uint32_t tu__collectives_number_events(tu__collectives *collectives, uint32_t first);

#endif
