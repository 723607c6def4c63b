/* Compile options of a run's programs. See compile_options.h. */
#include "train/compile_options.h"

#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

#include "comm/process_group.h"

/* ---- Device specs ---- */

tu_status tu__device_specs(const char *list, size_t *count, tu__device_spec specs[TU__MAX_DEVICES]) {
    tu__device *devices[TU__MAX_DEVICES];
    TU_TRY(tu__devices_open(list, NULL, TU__MAX_DEVICES, devices, count));
    for (size_t i = 0; i < *count; i++) snprintf(specs[i].text, sizeof specs[i].text, "%s", devices[i]->spec);
    tu__devices_close(*count, devices);
    return TU_OK;
}

/* ---- The strategy ---- */

const char *tu__strategy_of(const tu__run_config *config) {
    const tu__settings *s = &config->settings;
    if (*s->strategy) return s->strategy;
    if (config->group) return "mirrored";
    return tu_default_strategy(s->devices, *s->place || *s->lock, s->invariant);
}

bool tu__has_run_variables(const tu__run_config *config) {
    return !config->group || config->group->info.rank == 0 || strcmp(tu__strategy_of(config), "central") != 0;
}

/* ---- Options ---- */

/* Returns the device list of this process. */
static const char *devices_of(const tu__run_config *config) {
    return config->rank_devices ? config->rank_devices : config->settings.devices;
}

static bool can_be_sharded(const tu__run_config *config, int64_t samples, size_t replicas) {
    int64_t shards = config->settings.invariant ? config->settings.invariant : (int64_t)replicas;
    return samples == TU__ANY_SAMPLES || samples >= shards;
}

/* Counts the devices of all processes. */
static tu_status count_replicas(tu_process_group *group, size_t own, size_t *replicas) {
    uint64_t mine = own, counts[TU__MAX_PROCESSES];
    *replicas = own;
    if (!group) return TU_OK;
    TU_TRY(tu_process_group_gather(group, &mine, sizeof mine, counts));
    *replicas = 0;
    for (uint32_t r = 0; r < group->info.size; r++) *replicas += (size_t)counts[r];
    return TU_OK;
}

/* Uses only the first device if there are fewer samples than shards. The weight of a sample in the gradient does not
 * depend on this. */
static tu_status use_first_if_small(const tu__run_config *config, int64_t samples, tu__device_spec *first,
                                    tu_compile_options *o) {
    const tu__settings *s = &config->settings;
    if (!config->group && can_be_sharded(config, samples, TU__MAX_DEVICES) && s->invariant <= samples)
        return TU_OK;
    tu__device_spec specs[TU__MAX_DEVICES];
    size_t count, replicas;
    TU_TRY(tu__device_specs(devices_of(config), &count, specs));
    TU_TRY(count_replicas(config->group, count, &replicas));
    if (can_be_sharded(config, samples, replicas)) return TU_OK;
    *first = specs[0];
    o->devices = first->text;
    o->group = NULL;
    o->strategy = o->central = NULL;
    o->invariant = s->invariant ? 1 : 0; /* one shard, which must also be bit-identical on every device */
    o->bf16_gradients = false;
    return TU_OK;
}

bool tu__computes_first_alone(const tu__run_config *config, const tu_compile_options *options) {
    return config->group && !options->group && strcmp(tu__strategy_of(config), "central") == 0;
}

tu_status tu__share_results(tu_process_group *group, tu_status status, void *results, size_t bytes) {
    TU_TRY(tu_process_group_agree(group, status));
    return tu_process_group_broadcast(group, 0, results, bytes);
}

tu_status tu__run_compile_options(const tu__run_config *config, int64_t samples, tu__device_spec *first,
                                  tu_compile_options *o) {
    const tu__settings *s = &config->settings;
    *o = (tu_compile_options){.struct_size = sizeof *o,
                              .devices = devices_of(config),
                              .threads = (int)s->threads,
                              .memory_limit = (uint64_t)s->memory_limit,
                              .gpu_memory_limit = (uint64_t)s->gpu_memory_limit,
                              .gpu_memory_reserve = (uint64_t)s->gpu_memory_reserve,
                              .timeout = s->timeout,
                              .precision = s->precision,
                              .tune_kernels = s->tune_kernels,
                              .place = *s->place ? s->place : NULL,
                              .strict_placement = s->strict_placement,
                              .strategy = tu__strategy_of(config),
                              .central = *s->central ? s->central : NULL,
                              .invariant = (int)s->invariant,
                              .bf16_gradients = s->bf16_gradients,
                              .group = config->group};
    if (strcmp(o->strategy, "single") == 0 || samples == TU__ANY_SAMPLES) return TU_OK;
    return use_first_if_small(config, samples, first, o);
}
