/* Deciding how batches are shared. See sharing.h. */
#include "train/sharing.h"

#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

/* ---- Devices by name ---- */

tu_status tu__device_specs(const char *list, size_t *count, tu__device_spec words[TU__MAX_DEVICES]) {
    tu__device *devices[TU__MAX_DEVICES];
    TU_TRY(tu__devices_open(list, NULL, TU__MAX_DEVICES, devices, count));
    for (size_t i = 0; i < *count; i++) snprintf(words[i].text, sizeof words[i].text, "%s", devices[i]->word);
    tu__devices_close(*count, devices);
    return TU_OK;
}

/* ---- The strategy ---- */

const char *tu__strategy_of(const tu__settings *s) {
    if (*s->strategy) return s->strategy;
    return tu_default_strategy(s->devices, *s->place || *s->lock, s->invariant);
}

/* ---- Options ---- */

static bool can_be_divided(const tu__settings *s, int64_t samples, size_t devices) {
    int64_t parts = s->invariant ? s->invariant : (int64_t)devices;
    return samples == TU__ANY_SAMPLES || samples >= parts;
}

/* Where a few samples are left, one device takes them all: the weight of a sample does not hang on that. */
static tu_status leave_to_first(const tu__settings *s, int64_t samples, tu__device_spec *first,
                                tu_compile_options *o) {
    if (can_be_divided(s, samples, TU__MAX_DEVICES) && s->invariant <= samples) return TU_OK;
    tu__device_spec words[TU__MAX_DEVICES];
    size_t count;
    TU_TRY(tu__device_specs(s->devices, &count, words));
    if (can_be_divided(s, samples, count)) return TU_OK;
    *first = words[0];
    o->devices = first->text;
    o->strategy = o->central = NULL;
    o->invariant =
        s->invariant ? 1 : 0; /* one part, whose bits are to be the same wherever it is computed, too */
    o->bf16_gradients = false;
    return TU_OK;
}

tu_status tu__sharing_options(const tu__settings *s, int64_t samples, tu__device_spec *first,
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
    return leave_to_first(s, samples, first, o);
}
