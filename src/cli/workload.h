/* The workload of `tutti bench`: training steps of a network, or of `branches`, with one fixed random batch. */
#ifndef TU__CLI_WORKLOAD_H
#define TU__CLI_WORKLOAD_H

#include <tutti/network.h>
#include <tutti/run.h>
#include <tutti/stack.h>

struct workload_settings {
    const char *model, *devices, *precision;
    const char *place, *lock; /* see tu_compile and tu_program_check_placement; NULL: none */
    bool strict_placement;
    const char *strategy, *central; /* see tu_compile; strategy NULL: tu_default_strategy() */
    int invariant;
    bool bf16_gradients;
    int threads; /* 0: one per core */
    int64_t batch;
    uint64_t memory_limit;                         /* bytes per device; 0: no limit */
    uint64_t gpu_memory_limit, gpu_memory_reserve; /* see tu_compile */
    bool tune_kernels;
    int64_t base;  /* width of the network's first layer; 0: its default */
    int64_t stack; /* networks that the step trains as one program, each with the batch; 0 or 1: one */
    tu_process_group *group; /* the processes that share the batch; NULL: this one alone */
};

struct workload {
    tu_graph *graph, *device_list_graph;
    tu_stacked *stack;       /* of several networks; NULL: one. Its graph has the inputs and the loss */
    tu_program *device_list; /* a trivial program: its devices are those of the list */
    tu_network_graph net;
    tu_program *step;
    tu_state *state;
    float *images;
    int32_t *labels, *tokens; /* a network takes images and labels, or tokens */
    float loss;               /* of the last step, of the first network */
    float *losses;            /* of the last step, of all networks */
    const char *strategy;     /* "single", "mirrored", "central" */
    double compile_seconds;
    bool multi_step; /* the device runs many steps in one call (tu_run_many) */
};

/* Builds, compiles and initialises the workload. Call workload_free() even if it fails. The same settings give
 * bit-identical results. */
tu_status workload_init(struct workload *workload, const struct workload_settings *settings);
/* Only builds and plans the workload, to read the plan, which may exceed the memory limit. */
tu_status workload_plan(struct workload *workload, const struct workload_settings *settings);
void workload_free(struct workload *workload);

tu_status workload_step(struct workload *workload);
/* Runs `count` steps, in one call if `multi_step` is true. */
tu_status workload_steps(struct workload *workload, int64_t count);
/* Fails if the loss is not finite: times of such steps are meaningless. */
tu_status workload_check_loss(const struct workload *workload);
/* Computes the SHA-256 of the names, types and values of all variables. */
tu_status workload_digest(const struct workload *workload, char hex[TU_DIGEST_TEXT]);

/* True if the batch is sharded: the strategy is not "single". */
bool workload_is_sharded(const struct workload *workload);
/* Returns the number of devices in the list. */
size_t workload_device_count(const struct workload *workload);
/* Memory in bytes, summed over all devices. */
struct workload_memory {
    uint64_t peak;     /* planned peak: activations, gradients, workspaces, constants, variables */
    uint64_t overhead; /* not planned: a GPU's context, libraries and other processes */
    uint64_t tables;   /* not planned: input tables in device memory */
};
struct workload_memory workload_memory(const struct workload *workload);

#endif
