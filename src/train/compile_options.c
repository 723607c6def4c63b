/* Compile options of a run's programs. See compile_options.h. */
#include "train/compile_options.h"

#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

/* ---- Device specs ---- */

tu_status tu__device_specs(const char *list, size_t *count, tu__device_spec specs[TU__MAX_DEVICES]) {
    tu__device *devices[TU__MAX_DEVICES];
    TU_TRY(tu__devices_open(list, NULL, TU__MAX_DEVICES, devices, count));
    for (size_t i = 0; i < *count; i++) snprintf(specs[i].text, sizeof specs[i].text, "%s", devices[i]->spec);
    tu__devices_close(*count, devices);
    return TU_OK;
}

/* ---- The strategy ---- */

const char *tu__strategy_of(const tu__settings *s) {
    if (*s->strategy) return s->strategy;
    return tu_default_strategy(s->devices, *s->place || *s->lock, s->invariant);
}

/* ---- Options ---- */

static bool can_be_sharded(const tu__settings *s, int64_t samples, size_t devices) {
    int64_t shards = s->invariant ? s->invariant : (int64_t)devices;
    return samples == TU__ANY_SAMPLES || samples >= shards;
}

/* Uses only the first device if there are fewer samples than shards. The weight of a sample in the gradient does not
 * depend on this. */
static tu_status use_first_if_small(const tu__settings *s, int64_t samples, tu__device_spec *first,
                                    tu_compile_options *o) {
    if (can_be_sharded(s, samples, TU__MAX_DEVICES) && s->invariant <= samples) return TU_OK;
    tu__device_spec specs[TU__MAX_DEVICES];
    size_t count;
    TU_TRY(tu__device_specs(s->devices, &count, specs));
    if (can_be_sharded(s, samples, count)) return TU_OK;
    *first = specs[0];
    o->devices = first->text;
    o->strategy = o->central = NULL;
    o->invariant = s->invariant ? 1 : 0; /* one shard, which must also be bit-identical on every device */
    o->bf16_gradients = false;
    return TU_OK;
}

tu_status tu__run_compile_options(const tu__settings *s, int64_t samples, tu__device_spec *first,
                                  tu_compile_options *o) {
    *o = (tu_compile_options){.struct_size = sizeof *o,
                              .devices = s->devices,
                              .threads = (int)s->threads,
                              .memory_limit = (uint64_t)s->memory_limit,
                              .gpu_memory_limit = (uint64_t)s->gpu_memory_limit,
                              .gpu_memory_reserve = (uint64_t)s->gpu_memory_reserve,
                              .timeout = s->timeout,
                              .precision = s->precision,
                              .tune_kernels = s->tune_kernels,
                              .place = *s->place ? s->place : NULL,
                              .strict_placement = s->strict_placement,
                              .strategy = tu__strategy_of(s),
                              .central = *s->central ? s->central : NULL,
                              .invariant = (int)s->invariant,
                              .bf16_gradients = s->bf16_gradients};
    if (strcmp(o->strategy, "single") == 0 || samples == TU__ANY_SAMPLES) return TU_OK;
    return use_first_if_small(s, samples, first, o);
}
