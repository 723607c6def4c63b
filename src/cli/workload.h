/* A workload to be measured: the training step of a network, or of `branches`, over one fixed random batch. */
#ifndef CLI_WORKLOAD_H
#define CLI_WORKLOAD_H

#include <tutti/model.h>
#include <tutti/run.h>

struct workload_settings {
    const char *model, *devices, *precision;
    const char *place, *lock; /* as for tu_compile and tu_program_check_placement; NULL: none */
    bool strict_placement;
    const char *strategy, *central; /* as for tu_compile; strategy NULL: compile/default_strategy.h */
    int invariant;
    bool bf16_gradients;
    int threads; /* 0: all cores */
    int64_t batch;
    uint64_t memory_limit;                         /* bytes on each device; 0: what it has */
    uint64_t gpu_memory_limit, gpu_memory_reserve; /* as for tu_compile */
    bool tune_kernels;
};

struct workload {
    tu_graph *graph, *list_graph;
    tu_program *list; /* computes next to nothing: what the list of devices came to */
    tu_model_graph net;
    tu_program *step;
    tu_state *state;
    float *images;
    int32_t *labels;
    float loss;           /* of the latest step */
    const char *strategy; /* "single", "mirrored", "central" */
    double compile_seconds;
    bool at_once; /* the device takes many steps in one call */
};

/* Builds, compiles and initialises; needs workload_end in any case. The same settings give the same bits. */
tu_status workload_begin(struct workload *workload, const struct workload_settings *settings);
/* The same as far as the plan goes, which need not fit: to be looked at. */
tu_status workload_plan(struct workload *workload, const struct workload_settings *settings);
void workload_end(struct workload *workload);

tu_status workload_step(struct workload *workload);
/* So many, in one call where the device takes them so. */
tu_status workload_steps(struct workload *workload, int64_t count);
/* Fails when the network computes nonsense, whose speed means nothing. */
tu_status workload_check_loss(const struct workload *workload);
/* SHA-256 of all variables: names, types, values. */
tu_status workload_digest(const struct workload *workload, char hex[TU_DIGEST_TEXT]);

/* Whether devices share its batch. */
bool workload_is_shared(const struct workload *workload);
/* How many devices the list has. */
size_t workload_device_count(const struct workload *workload);
/* Bytes of all devices together. What a card's context, libraries and other programs take is no part of the plan; nor are
 * tables of rows that inputs are fed from. */
struct workload_memory {
    uint64_t peak; /* of the plan: activations, gradients, workspaces, constants, variables */
    uint64_t overhead, tables;
};
struct workload_memory workload_memory(const struct workload *workload);

#endif
