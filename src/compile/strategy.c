/* Translates the strategy fields of tu_compile_options into the input of the pass `replicate`.
 *
 * The devices of the list are the replicas. A central device that is not in the list is opened in addition, and
 * computes no shard of the batch. */
#include <string.h>

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

/* Finds the central device: the named one, else the first host device of the list, else the CPU. */
static tu_status find_central(tu__device_list *list, tu__unit *unit, const char *requested) {
    const char *found = requested ? find_by_name(unit, requested) : find_host(list);
    if (!found) {
        TU_TRY(tu__device_list_add(list, unit, requested ? requested : "cpu:0"));
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
    return strategy == TU__CENTRAL ? find_central(list, unit, compile_options->central) : TU_OK;
}
