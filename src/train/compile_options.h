/* Compile options of a run's programs: translates --devices, --strategy, --central, --invariant and --bf16-gradients
 * for steps, updates and evaluations. */
#ifndef TU__TRAIN_COMPILE_OPTIONS_H
#define TU__TRAIN_COMPILE_OPTIONS_H

#include <tutti/run.h>

#include "device/device.h"
#include "train/run_folder.h"

/* A device spec: "cpu:0.1/2". */
typedef struct tu__device_spec {
    char text[64];
} tu__device_spec;

/* Splits a device list into device specs. */
tu_status tu__device_specs(const char *list, size_t *count, tu__device_spec specs[TU__MAX_DEVICES]);

/* Returns the strategy of a run: the requested one, else that of tu_default_strategy; on several processes "mirrored". */
const char *tu__strategy_of(const tu__run_config *config);

/* False for the processes other than 0 of a run with strategy "central": their state has no variables. */
bool tu__has_run_variables(const tu__run_config *config);

enum { TU__ANY_SAMPLES = 0 };

/* Fills the options of a program that processes `samples` samples, except what it computes. If there are fewer
 * samples than shards, as in the last batch of an epoch, the program runs on the first device only, whose spec is
 * stored in `*first`; every process then computes all samples, or process 0 alone (tu__computes_first_alone).
 * TU__ANY_SAMPLES: the program is always sharded, or fails to compile. */
tu_status tu__run_compile_options(const tu__run_config *config, int64_t samples, tu__device_spec *first,
                                  tu_compile_options *options);

/* True if process 0 alone computes a program that is not sharded, because only it has the variables: with strategy
 * "central". The others need no program. */
bool tu__computes_first_alone(const tu__run_config *config, const tu_compile_options *options);
/* Gives all processes the results of process 0. If one of them has failed, all fail. */
tu_status tu__share_results(tu_process_group *group, tu_status status, void *results, size_t bytes);

#endif
