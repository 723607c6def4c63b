/* Translates the strategy fields of tu_compile_options into the input of the pass `replicate`.
 *
 * The devices of the list are the replicas. A central device that is not in the list is opened in addition, and
 * computes no shard of the batch. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <tutti/process_group.h>

#include "base/alloc.h"
#include "compile/placement.h"

static const char *find_by_name(const tu__unit *unit, const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < unit->device_count; i++) {
        const char *device = unit->devices[i];
        if (strncmp(device, name, length) == 0 && (!device[length] || strcmp(device + length, ":0") == 0))
            return device;
    }
    return NULL;
}

static const char *find_host(const tu__device_list *list) {
    for (size_t i = 0; i < *list->count; i++)
        if (list->devices[i]->api->host_memory) return list->devices[i]->name;
    return NULL;
}

/* Returns the first device of the kind that `name` begins with. */
static const char *find_by_kind(const tu__device_list *list, const char *name) {
    size_t length = strcspn(name, ":");
    for (size_t i = 0; i < *list->count; i++) {
        const char *device_kind = list->devices[i]->api->kind;
        if (strlen(device_kind) == length && strncmp(device_kind, name, length) == 0)
            return list->devices[i]->name;
    }
    return NULL;
}

/* Names the CPU to add to devices that are not in host memory. Processes that may use the same cores divide them. */
static const char *name_cpu(const tu_process_group *group, size_t size, char *text) {
    tu_process_info info = TU_SIZED(tu_process_info);
    snprintf(text, size, "cpu:0");
    if (group && tu_process_group_describe(group, &info) == TU_OK && info.core_size > 1)
        snprintf(text, size, "cpu:0.%u/%u", info.core_rank, info.core_size);
    return text;
}

/* Finds the central device: the named one, else the first host device of the list, else the CPU. The name is of a
 * device of process 0; the others use one of the same kind, so that they round like it, or else a host device. */
static tu_status find_central(tu__device_list *list, tu__unit *unit, const tu_compile_options *o) {
    char cpu[64];
    const char *requested = o->central;
    const char *found = requested ? find_by_name(unit, requested) : find_host(list);
    if (requested && unit->replication.process) {
        found = find_by_kind(list, requested);
        if (!found) found = find_host(list);
        requested = NULL;
    }
    if (!found) {
        TU_TRY(tu__device_list_add(list, unit, requested ? requested : name_cpu(o->group, sizeof cpu, cpu)));
        found = unit->devices[unit->device_count - 1];
    }
    unit->replication.central = found;
    return TU_OK;
}

/* Fails if options about sharing a batch contradict the strategy. */
static tu_status check_options(const tu__unit *unit, tu__strategy strategy,
                               const tu_compile_options *compile_options) {
    if (compile_options->central && strategy != TU__CENTRAL)
        return tu_fail(TU_INVALID, "central device '%s' with strategy '%s': expected strategy 'central'",
                       compile_options->central, tu__strategy_names[strategy]);
    if (compile_options->invariant && compile_options->threads > 1)
        return tu_fail(
            TU_INVALID,
            "invariant %d cannot be combined with %d threads per device: each shard uses one thread; to use more "
            "cores, split the CPU, as in \"cpu:0/%d\"",
            compile_options->invariant, compile_options->threads, compile_options->threads);
    if (compile_options->invariant && strategy == TU__SINGLE && unit->device_count > 1)
        return tu_fail(TU_INVALID,
                       "invariant %d on %zu devices with strategy 'single': expected strategy 'mirrored' or "
                       "'central', or one device",
                       compile_options->invariant, unit->device_count);
    return TU_OK;
}

/* Fails if the devices are of different kinds: results must not depend on which device computes a shard. */
static tu_status check_same_kind(const tu__device_list *list, int invariant) {
    const tu__device *first = list->devices[0];
    for (size_t i = 1; invariant && i < *list->count; i++)
        if (list->devices[i]->api != first->api)
            return tu_fail(
                TU_INVALID,
                "invariant %d on '%s' and '%s': expected devices of one kind, which round identically",
                invariant, first->name, list->devices[i]->name);
    return TU_OK;
}

/* Every mirrored replica updates its own copy of the variables. What it computes from them and from summed gradients (the
 * norms of clipping and of LARS) must have the same bits everywhere, or the copies drift apart. A sum depends on the
 * number of threads among which it is divided, so if that differs, the fewest threads of all replicas count. */
static tu_status limit_sum_threads(const tu__device_list *list, tu__unit *unit, tu_process_group *group) {
    enum { LEAST, MOST, COUNT };
    int mine[COUNT] = {INT_MAX, 0};
    for (size_t i = 0; i < unit->replication.replica_count; i++) {
        const tu__device *d = list->devices[i];
        tu_device_info info = TU_SIZED(tu_device_info);
        TU_TRY(tu__device_describe(d->api, d->instance, d->options.index, &info));
        if (!info.threads) continue; /* a GPU */
        if (info.threads < mine[LEAST]) mine[LEAST] = info.threads;
        if (info.threads > mine[MOST]) mine[MOST] = info.threads;
    }
    uint32_t processes = unit->replication.process_count;
    if (processes) {
        int(*all)[COUNT] = tu__alloc_array(processes, sizeof *all, "a program of several processes");
        tu_status status = all ? tu_process_group_gather(group, mine, sizeof mine, all) : TU_NO_MEMORY;
        for (uint32_t p = 0; status == TU_OK && p < processes; p++) {
            if (all[p][LEAST] < mine[LEAST]) mine[LEAST] = all[p][LEAST];
            if (all[p][MOST] > mine[MOST]) mine[MOST] = all[p][MOST];
        }
        tu__free(all);
        TU_TRY(status);
    }
    unit->replication.sum_threads = mine[LEAST] < mine[MOST] ? mine[LEAST] : 0;
    return TU_OK;
}

tu_status tu__replication_init(tu__device_list *list, tu__unit *unit,
                               const tu_compile_options *compile_options) {
    tu__strategy strategy;
    TU_TRY(tu__strategy_parse(compile_options->strategy, &strategy));
    TU_TRY(check_options(unit, strategy, compile_options));
    TU_TRY(check_same_kind(list, compile_options->invariant));
    if (compile_options->group && strategy == TU__SINGLE)
        return tu_fail(TU_INVALID,
                       "strategy 'single' on several processes: expected 'mirrored' or 'central'");
    if (strategy == TU__SINGLE && !compile_options->invariant) return TU_OK;
    unit->replication = (tu__replication){.strategy = strategy == TU__SINGLE ? TU__MIRRORED : strategy,
                                          .replica_count = unit->device_count,
                                          .replicas = unit->devices,
                                          .invariant = compile_options->invariant,
                                          .bf16_gradients = compile_options->bf16_gradients};
    if (compile_options->group) TU_TRY(tu__number_replicas(list, unit, compile_options));
    return strategy == TU__CENTRAL ? find_central(list, unit, compile_options)
                                   : limit_sum_threads(list, unit, compile_options->group);
}
