/* A workload to be measured: the training step of a built-in network over one fixed random batch. */
#ifndef CLI_WORKLOAD_H
#define CLI_WORKLOAD_H

#include <tutti/model.h>
#include <tutti/run.h>

#include "base/sha256.h"

struct workload_settings {
    const char *model, *devices, *precision;
    int threads; /* 0: all cores */
    int64_t batch;
};

struct workload {
    tu_graph *graph;
    tu_model_graph net;
    tu_program *step;
    tu_state *state;
    float *images;
    int32_t *labels;
    float loss; /* of the latest step */
    double compile_seconds;
};

/* Builds, compiles and initialises; needs workload_end in any case. The same settings give the same bits. */
tu_status workload_begin(struct workload *workload, const struct workload_settings *settings);
void workload_end(struct workload *workload);

tu_status workload_step(struct workload *workload);
/* Fails when the network computes nonsense, whose speed means nothing. */
tu_status workload_check_loss(const struct workload *workload);
/* SHA-256 of all variables: names, types, values. */
tu_status workload_digest(const struct workload *workload, char hex[TU__SHA256_HEX]);
/* Bytes the program's plan takes on its device, which is named too: scratch, constants, variables. A list of several
 * devices is refused: one training step is one device's work. */
tu_status workload_memory(const struct workload *workload, const char **device, uint64_t *bytes);

/* Seconds by a clock that only ever goes forward. */
double seconds_now(void);

#endif
