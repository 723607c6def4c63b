/* Programs that several processes run together: compares what they compile, and numbers the replicas of all of them.
 *
 * A process that compiled something else would wait for other collectives than the rest, or train another network. So
 * the processes exchange what must be equal before the passes run, and the first difference is named.
 *
 * Devices may have other instruction sets or libraries on other hosts. Then the same operation may round differently.
 * Mirrored processes, which all update a copy of the variables, would soon have different ones; with a central device
 * there is one copy, and only the bits of the result depend on who computes what. */
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
    char device[48];                        /* the first one, and how many more */
    char description[256], arithmetic[256]; /* of all its devices: tu_device_info */
} facts;

/* Appends what a device says of itself, unless another one has said it. */
static void add_once(char *text, size_t capacity, const char *more) {
    size_t used = strlen(text);
    if (!strstr(text, more)) snprintf(text + used, capacity - used, "%s%s", used ? "; " : "", more);
}

static tu_status describe_devices(const tu__device_list *list, size_t count, facts *f) {
    for (size_t i = 0; i < count; i++) {
        const tu__device *d = list->devices[i];
        tu_device_info info = TU_SIZED(tu_device_info);
        TU_TRY(tu__device_describe(d->api, d->instance, d->options.index, &info));
        add_once(f->description, sizeof f->description, info.description);
        add_once(f->arithmetic, sizeof f->arithmetic, info.arithmetic ? info.arithmetic : info.description);
    }
    return TU_OK;
}

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
    return describe_devices(list, unit->device_count, f);
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

static tu_status fail_unequal(const tu__replication *r, const tu_process_group *g, const facts *all,
                              uint32_t rank) {
    bool is_cpu = strcmp(all[0].texts[DEVICES], "cpu") == 0;
    return tu_fail(
        TU_INVALID, "rank %u on host '%s' computes with %s, but rank 0 on host '%s' with %s: %s; %s%s", rank,
        g->processes[rank].host, all[rank].arithmetic, g->processes[0].host, all[0].arithmetic,
        r->invariant ? "'invariant' needs equal rounding in all processes"
                     : "with strategy 'mirrored' their copies of the variables would become different",
        is_cpu ? "set the environment variable TUTTI_ISA of all processes to an instruction set that all "
                 "hosts have, for example TUTTI_ISA=avx2, and install the same libraries"
               : "use hosts with the same devices and libraries",
        r->invariant ? "" : ", or choose strategy 'central'");
}

static tu_status note_unequal(tu__replication *r, const tu_process_group *g, const facts *all,
                              uint32_t rank) {
    enum { LENGTH = 800 };
    if (!r->unequal_devices) r->unequal_devices = tu__alloc(LENGTH, "a notice");
    if (!r->unequal_devices) return TU_NO_MEMORY;
    snprintf(
        r->unequal_devices, LENGTH,
        "the processes have different devices (rank %u on host '%s': %s; rank 0 on host '%s': %s): the last digits of "
        "results depend on which process has which rank",
        rank, g->processes[rank].host, all[rank].description, g->processes[0].host, all[0].description);
    return TU_OK;
}

/* Fails if copies of the variables would become different; otherwise notes the first difference. */
static tu_status compare_devices(const tu_process_group *g, const facts *all, tu__replication *r) {
    bool needs_same_bits = r->strategy == TU__MIRRORED || r->invariant;
    uint32_t different = 0;
    for (uint32_t rank = 1; rank < g->info.size; rank++) {
        bool same_bits = strcmp(all[rank].arithmetic, all[0].arithmetic) == 0;
        if (!same_bits && needs_same_bits) return fail_unequal(r, g, all, rank);
        if (!different && (!same_bits || strcmp(all[rank].description, all[0].description) != 0))
            different = rank;
    }
    return different ? note_unequal(r, g, all, different) : TU_OK;
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
    TU_TRY(compare_devices(g, all, &unit->replication));
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
