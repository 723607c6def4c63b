/* Golden samples: inputs with the outputs that `ref` computes for them, and how far other devices may be from these. */
#ifndef TU__INFER_GOLDEN_H
#define TU__INFER_GOLDEN_H

#include <tutti/run.h>

#include "base/shared.h"
#include "infer/model_file.h"

enum { TU__GOLDEN_SAMPLES = 8 }; /* in exported files */

/* Called with the number of samples that have been started, by the thread that called tu__golden_compute. */
typedef struct tu__golden_progress {
    void (*report)(void *context, int64_t samples);
    void *context;
} tu__golden_progress;

/* Computes all outputs of a graph for one sample on `ref`, one sample after another, several at once on the cores of the
 * host. `inputs` has `count` samples of each input, in the order of the graph; outputs[i] receives `count` samples of
 * output i. `progress` may be NULL. */
TU__SHARED tu_status tu__golden_compute(tu_graph *graph, tu_state *state, const char *precision,
                                        int64_t count, const tu__named_tensor *inputs, void *const *outputs,
                                        const tu__golden_progress *progress);

/* Returns how far `output` is from `golden`, an output with `count` samples of which one has the type `sample`: the largest
 * difference of two elements; if `relative`, divided by the largest absolute value in the golden sample. Equal numbers
 * that are not finite have the difference 0, others infinity. */
TU__SHARED double tu__golden_difference(tu_type sample, int64_t count, const void *golden, const void *output,
                                        bool relative);

/* Returns the bound of an output for a precision (tu__model_bound.limit), from the differences that `ref` has in bf16 and
 * f16; infinity if there is none, since the difference in this precision is infinite. docs/model-file.md says how. */
TU__SHARED double tu__golden_bound(const char *precision, double bf16, double f16);

#endif
