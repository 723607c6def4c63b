/* Programs that several processes run together: compares what they compile, and numbers the replicas of all of them.
 *
 * A process that compiled something else would wait for other collectives than the rest, or train another network. So
 * the processes exchange what must be equal before the passes run, and the first difference is named. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/group_reduce.h"
#include "compile/placement.h"

/* What the processes exchange. Texts that are compared come first. */
enum { VERSION, GRAPH, DEVICES, STRATEGY, CENTRAL, PRECISION, NUMBERS, COMPARED };
static const char *const titles[COMPARED] = {"version of Tutti", "graph",     "kind of device", "strategy",
                                             "central device",   "precision", "options"};

typedef struct facts {
    char texts[COMPARED][TU_DIGEST_TEXT + 32];
    uint32_t replicas;
    char device[48]; /* the first one, and how many more */
} facts;

static tu_status collect(const tu__device_list *list, const tu__unit *unit, const tu_compile_options *o,
                         facts *f) {
    *f = (facts){.replicas = (uint32_t)unit->device_count};
    int length = snprintf(f->device, sizeof f->device, "%s", list->devices[0]->name);
    if (f->replicas > 1 && length > 0 && (size_t)length < sizeof f->device)
        snprintf(f->device + length, sizeof f->device - (size_t)length, " and %u more", f->replicas - 1);
    snprintf(f->texts[VERSION], sizeof f->texts[VERSION], "%s", tu_version());
    TU_TRY(tu_graph_digest(unit->graph, f->texts[GRAPH]));
    snprintf(f->texts[DEVICES], sizeof f->texts[DEVICES], "%s", list->devices[0]->api->kind);
    snprintf(f->texts[STRATEGY], sizeof f->texts[STRATEGY], "%s",
             tu__strategy_names[unit->replication.strategy]);
    snprintf(f->texts[CENTRAL], sizeof f->texts[CENTRAL], "%.80s", o->central ? o->central : "default");
    snprintf(f->texts[PRECISION], sizeof f->texts[PRECISION], "%s", o->precision ? o->precision : "f32");
    snprintf(f->texts[NUMBERS], sizeof f->texts[NUMBERS],
             "invariant %d, bf16 gradients %d, %zu results, updates %d", o->invariant, o->bf16_gradients,
             o->fetch_count, o->updates);
    return TU_OK;
}

static tu_status compare(const tu_process_group *g, const facts *all) {
    for (uint32_t r = 1; r < g->info.size; r++)
        for (int i = 0; i < COMPARED; i++)
            if (strcmp(all[0].texts[i], all[r].texts[i]) != 0)
                return tu_fail(
                    TU_INVALID,
                    "rank %u on host '%s' has another %s (%s) than rank 0 on host '%s' (%s): all processes "
                    "must train the same",
                    r, g->processes[r].host, titles[i], all[r].texts[i], g->processes[0].host,
                    all[0].texts[i]);
    return TU_OK;
}

/* Sums are added in the same order for any number of processes only if all have equally many devices. */
static tu_status check_equal_counts(const tu_process_group *g, const facts *all, int invariant) {
    for (uint32_t r = 1; invariant && r < g->info.size; r++)
        if (all[r].replicas != all[0].replicas)
            return tu_fail(
                TU_INVALID,
                "invariant %d: rank %u on host '%s' has %u devices, rank 0 has %u: expected equally many",
                invariant, r, g->processes[r].host, all[r].replicas, all[0].replicas);
    return TU_OK;
}

/* Numbers the devices of all processes. */
static tu_status number(tu__unit *unit, const tu_process_group *g, const facts *all) {
    tu__replication *r = &unit->replication;
    uint32_t *first = tu__alloc_array((size_t)g->info.size + 1, sizeof *first, "the replicas of processes");
    if (!first) return TU_NO_MEMORY;
    for (uint32_t p = 0; p < g->info.size; p++) first[p + 1] = first[p] + all[p].replicas;
    r->process_count = g->info.size;
    r->process = g->info.rank;
    r->first_replica_of = first;
    return TU_OK;
}

static tu_status exchange(const tu__device_list *list, tu__unit *unit, const tu_compile_options *o,
                          facts *all) {
    tu_process_group *g = o->group;
    facts mine;
    TU_TRY(collect(list, unit, o, &mine));
    TU_TRY(tu_process_group_gather(g, &mine, sizeof mine, all));
    TU_TRY(compare(g, all));
    TU_TRY(check_equal_counts(g, all, o->invariant));
    unit->replication.processes_share_memory = tu__group_adds_in_memory(g);
    for (uint32_t r = 0; r < g->info.size; r++) tu__group_set_device(g, r, all[r].device);
    return number(unit, g, all);
}

tu_status tu__number_replicas(const tu__device_list *list, tu__unit *unit, const tu_compile_options *o) {
    facts *all = tu__alloc_array(o->group->info.size, sizeof *all, "a program of several processes");
    tu_status status = all ? exchange(list, unit, o, all) : TU_NO_MEMORY;
    tu__free(all);
    return status;
}
