/* How the programs of a run share their batches between devices: the settings --devices, --strategy, --central, --invariant
 * and --bf16-gradients as options of tu_compile, decided in one place for steps, updates and evaluations. */
#ifndef TU__TRAIN_SHARING_H
#define TU__TRAIN_SHARING_H

#include <tutti/run.h>

#include "device/device.h"
#include "train/settings.h"

/* A device as a list has it: "cpu:0.1/2". */
typedef struct tu__device_spec {
    char text[64];
} tu__device_spec;

/* The devices of a list one by one, `*count` of them. */
tu_status tu__device_specs(const char *list, size_t *count, tu__device_spec words[TU__MAX_DEVICES]);

/* The strategy of a run: the one that was asked for, else that of compile/default_strategy.h. */
const char *tu__strategy_of(const tu__settings *settings);

enum { TU__ANY_SAMPLES = 0 };

/* Options for a program over `samples` samples: everything but what it computes. A batch that is too small to be divided,
 * as the last one of an epoch may be, is left to the first device, whose name is kept in `*first`; TU__ANY_SAMPLES for
 * programs that are to be divided in any case, or refused. */
tu_status tu__sharing_options(const tu__settings *settings, int64_t samples, tu__device_spec *first,
                              tu_compile_options *options);

#endif
