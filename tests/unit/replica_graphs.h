/* Graphs of replicas, built by hand as the pass `replicate` would build them.
 *
 *     test_NAME [KIND [apart]]   uses logical devices of one device of that kind: cpu (the default), ref, gpu;
 *                                with `apart`, several physical devices */
#ifndef TUTTI_REPLICA_GRAPHS_H
#define TUTTI_REPLICA_GRAPHS_H

#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

#include "graph/collective.h"
#include "graph/graph.h"
#include "test.h"

enum { MAX_RANKS = 12 };

static const char *kind = "cpu";
static bool physical; /* several physical devices, not logical devices of one */

static void assert_ok(tu_status status) {
    if (status != TU_OK) fail_msg("%s", tu_message());
}

static tu_graph *new_graph(void) {
    tu_graph *graph;
    assert_ok(tu_graph_new(&graph));
    return graph;
}

static const char *device_name(int rank) {
    static char names[MAX_RANKS][32];
    snprintf(names[rank], sizeof names[rank], physical ? "%s:%d" : "%s:0.%d", kind, rank);
    return names[rank];
}

static const char *device_list(int ranks) {
    static char list[64];
    snprintf(list, sizeof list, physical ? "%s:0-%d" : "%s:0/%d", kind, physical ? ranks - 1 : ranks);
    return list;
}

/* Returns one rank's node of a collective. `root` is used by a broadcast and a reduce. */
static inline tu_value collective_of(tu__collective_kind collective_kind, tu_value value, int64_t collective,
                                     int rank, int ranks, int root) {
    static const tu__opcode ops[] = {[TU__ALL_REDUCE] = TU__OP_ALL_REDUCE,
                                     [TU__REDUCE_SCATTER] = TU__OP_REDUCE_SCATTER,
                                     [TU__ALL_GATHER] = TU__OP_ALL_GATHER,
                                     [TU__BROADCAST] = TU__OP_COLLECTIVE_BROADCAST,
                                     [TU__REDUCE] = TU__OP_COLLECTIVE_REDUCE};
    /* The attributes of the others are the first of these. */
    struct tu__collective_broadcast_attrs attrs = {
        .collective = collective, .rank = rank, .ranks = ranks, .root = root};
    return tu__make(value.graph, &(tu__node_request){.op = ops[collective_kind],
                                                     .attrs = &attrs,
                                                     .inputs = &value,
                                                     .input_count = 1,
                                                     .device = device_name(rank)});
}

static inline tu_value all_reduce_of(tu_value value, int64_t collective, int rank, int ranks) {
    return collective_of(TU__ALL_REDUCE, value, collective, rank, ranks, 0);
}

/* Returns an input that contains rows of the input `name`, from `first` on. */
static tu_value rows_of(tu_graph *g, const char *name, int rank, int64_t first, tu_dtype dtype,
                        tu_shape shape) {
    char shard_name[64];
    snprintf(shard_name, sizeof shard_name, "%s/part%d", name, rank);
    struct tu__input_attrs attrs = {.dtype = dtype, .shape = shape};
    return tu__make(g, &(tu__node_request){.op = TU__OP_INPUT,
                                           .name = shard_name,
                                           .exact_name = true,
                                           .attrs = &attrs,
                                           .device = device_name(rank),
                                           .stands_for = name,
                                           .first_row = first});
}

/* Reads the command line. */
static void choose_devices(int argc, char **argv) {
    if (argc > 1) kind = argv[1];
    physical = argc > 2 && strcmp(argv[2], "apart") == 0;
}

#endif
