/* Units (a graph with the request to compile it) and the list of passes. */
#include <string.h>

#include "base/alloc.h"
#include "base/choice.h"
#include "pass/pass.h"

tu_status tu__precision_parse(const char *name, tu__precision *precision) {
    size_t index = TU__PRECISION_AS_BUILT;
    if (name) TU_TRY(tu__choice_find("precision", name, tu__precision_names, &index));
    *precision = (tu__precision)index;
    return TU_OK;
}

tu_status tu__strategy_parse(const char *name, tu__strategy *strategy) {
    size_t index = TU__SINGLE;
    if (name) TU_TRY(tu__choice_find("strategy", name, tu__strategy_names, &index));
    *strategy = (tu__strategy)index;
    return TU_OK;
}

/* ---- Creation ---- */

/* Copies the whole graph: passes never modify the user's graph. */
static tu_status copy_graph(tu__unit *unit, const tu_graph *graph) {
    tu__rewrite r;
    TU_TRY(tu__rewrite_begin(&r, graph));
    tu_status status = TU_OK;
    for (uint32_t i = 0; i < graph->node_count && status == TU_OK; i++)
        status = tu__rewrite_copy(&r, graph->nodes[i]);
    if (status == TU_OK) return tu__rewrite_finish(&r, unit);
    tu__rewrite_abandon(&r);
    return status;
}

tu_status tu__unit_begin(tu__unit *unit, const tu_graph *graph, size_t fetch_count, const tu_value *fetch,
                         bool updates) {
    *unit = (tu__unit){.fetch_count = fetch_count, .updates = updates};
    TU_TRY(tu_graph_status(graph));
    for (size_t i = 0; i < fetch_count; i++)
        if (fetch[i].graph != graph || !tu_ok(fetch[i]))
            return tu_fail(TU_INVALID, "fetch %zu is not a value of the graph being compiled", i);
    unit->fetch = tu__alloc_array(fetch_count + 1, sizeof *unit->fetch, "the fetches of a program");
    if (!unit->fetch) return TU_NO_MEMORY;
    for (size_t i = 0; i < fetch_count; i++) unit->fetch[i] = (tu__edge){fetch[i].node, fetch[i].output};
    tu_status status = copy_graph(unit, graph);
    if (status != TU_OK) tu__unit_end(unit);
    return status;
}

void tu__unit_end(tu__unit *unit) {
    tu_graph_free(unit->graph);
    tu__free(unit->fetch);
    tu__free(unit->kept);
    tu__free(unit->replication.first_replica_of);
    tu__free(unit->replication.unequal_devices);
    *unit = (tu__unit){0};
}

bool *tu__unit_needed(const tu__unit *unit) {
    const tu_graph *graph = unit->graph;
    bool *needed = tu__alloc_array((size_t)graph->node_count + 1, sizeof *needed, "a pass");
    if (!needed) return NULL;
    for (size_t i = 0; i < unit->fetch_count; i++) needed[unit->fetch[i].node] = true;
    for (size_t i = 0; i < unit->kept_count; i++) needed[unit->kept[i].node] = true;
    for (uint32_t id = graph->node_count; id-- > 0;) {
        const tu__node *node = graph->nodes[id];
        if (unit->updates && (node->op->traits & TU__EFFECT)) needed[id] = true;
        if (node->op->traits & TU__COLLECTIVE) needed[id] = true; /* the other ranks wait for it */
        for (uint32_t i = 0; needed[id] && i < node->input_count; i++) needed[node->inputs[i].node] = true;
        for (uint32_t i = 0; needed[id] && i < node->after_count; i++) needed[node->after[i]] = true;
    }
    return needed;
}

tu_status tu__unit_drop_dead(tu__unit *unit) {
    tu__rewrite r;
    bool *needed = tu__unit_needed(unit);
    tu_status status = needed ? tu__rewrite_begin(&r, unit->graph) : TU_NO_MEMORY;
    if (status == TU_OK) {
        for (uint32_t i = 0; i < unit->graph->node_count && status == TU_OK; i++)
            if (needed[i]) status = tu__rewrite_copy(&r, unit->graph->nodes[i]);
        if (status == TU_OK)
            status = tu__rewrite_finish(&r, unit);
        else
            tu__rewrite_abandon(&r);
    }
    tu__free(needed);
    return status;
}

/* ---- Replicas of several processes ---- */

size_t tu__all_replicas(const tu__replication *r) {
    return r->process_count ? r->first_replica_of[r->process_count] : r->replica_count;
}

size_t tu__first_replica(const tu__replication *r) {
    return r->process_count ? r->first_replica_of[r->process] : 0;
}

uint32_t tu__process_of_rank(const tu__replication *r, uint32_t rank) {
    uint32_t process = 0;
    if (r->strategy != TU__MIRRORED) return rank;
    while (process + 1 < r->process_count && r->first_replica_of[process + 1] <= rank) process++;
    return process;
}

/* ---- All passes ---- */

const tu__pass tu__passes[] = {
    {"simplify", "fold constants, merge equal nodes, drop unused nodes", tu__pass_simplify},
    {"replicate", "one shard of the batch per replica, sums between replicas", tu__pass_replicate},
    {"precision", "half precision where requested, with casts at the borders", tu__pass_precision},
    {"place", "a device for every node", tu__pass_place},
    {"partition", "copies on edges between devices", tu__pass_partition},
    {0},
};

static tu_status fail_unknown_pass(const char *name) {
    enum { PASS_COUNT = sizeof tu__passes / sizeof *tu__passes - 1 };
    const char *names[PASS_COUNT];
    for (size_t i = 0; i < PASS_COUNT; i++) names[i] = tu__passes[i].name;
    return tu__fail_unknown_choice(TU_NOT_FOUND, "unknown pass", name, PASS_COUNT, names);
}

static tu_status run_pass(const tu__pass *pass, tu__unit *unit) {
    TU_TRY(pass->run(unit));
#ifndef NDEBUG
    tu_status status = tu_graph_verify(unit->graph);
    if (status == TU_NO_MEMORY) return status;
    if (status != TU_OK)
        return tu_fail(TU_INTERNAL, "internal error: the graph is invalid after the pass '%s': %s",
                       pass->name, tu_message());
#endif
    return TU_OK;
}

tu_status tu__run_passes(tu__unit *unit, const char *last) {
    bool is_known = !last;
    for (const tu__pass *pass = tu__passes; pass->name && !is_known; pass++)
        is_known = strcmp(pass->name, last) == 0;
    if (!is_known) return fail_unknown_pass(last);
    for (const tu__pass *pass = tu__passes; pass->name; pass++) {
        TU_TRY(run_pass(pass, unit));
        if (last && strcmp(pass->name, last) == 0) return TU_OK;
    }
    return TU_OK;
}
