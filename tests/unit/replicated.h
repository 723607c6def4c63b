/* Compilation units for tests of the pass `replicate`, on devices that need not exist. */
#ifndef TESTS_UNIT_REPLICATED_H
#define TESTS_UNIT_REPLICATED_H

#include "interpret.h"

static const char *const replica_names[] = {"cpu:0.0", "cpu:0.1", "cpu:0.2", "cpu:0.3",
                                            "cpu:0.4", "cpu:0.5", "cpu:0.6", "cpu:0.7"};
static const char *const central_name = "ref:0";

/* Returns a compilation unit for the pass. The caller ends it with tu__unit_end, even if the pass fails. */
static inline tu__unit unit_to_replicate(tu_graph *graph, size_t count, const tu_value *fetch,
                                         tu__strategy strategy, size_t replicas) {
    static const char *const devices[] = {"cpu:0.0", "cpu:0.1", "cpu:0.2", "cpu:0.3", "cpu:0.4",
                                          "cpu:0.5", "cpu:0.6", "cpu:0.7", "ref:0"};
    tu__unit unit;
    if (tu__unit_begin(&unit, graph, count, fetch, true) != TU_OK) fail_msg("%s", tu_message());
    unit.devices = devices;
    unit.device_count = sizeof devices / sizeof *devices;
    unit.replication = (tu__replication){.strategy = strategy,
                                         .replica_count = replicas,
                                         .replicas = replica_names,
                                         .central = strategy == TU__CENTRAL ? central_name : NULL};
    return unit;
}

static inline void run_all_passes(tu__unit *unit) {
    if (tu__run_passes(unit, NULL) != TU_OK) fail_msg("%s", tu_message());
    if (tu_graph_verify(unit->graph) != TU_OK) fail_msg("%s", tu_message());
}

#endif
