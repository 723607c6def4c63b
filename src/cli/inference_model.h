/* The model that `tutti bench --inference` measures: a model file, or a built-in network with random weights. */
#ifndef TU__CLI_INFERENCE_MODEL_H
#define TU__CLI_INFERENCE_MODEL_H

#include <stdbool.h>

#include <tutti/model.h>

struct inference_settings {
    const char *model, *devices, *precision;
    int threads, sessions; /* threads 0: one per core */
    int64_t max_batch;
    uint64_t memory_limit; /* 0: none */
};

enum { INFERENCE_MAX_PORTS = 64 };

struct inference_model {
    tu_model *model;
    size_t input_count, output_count;
    tu_model_feed feeds[INFERENCE_MAX_PORTS]; /* random samples, max_batch of each input */
};

/* Opens the model and draws samples. The caller frees it, also after a failure. */
tu_status inference_model_open(struct inference_model *model, const struct inference_settings *settings);
void inference_model_free(struct inference_model *model);

/* The arrays for the outputs of one caller. */
struct inference_outputs {
    size_t count;
    tu_model_fetch fetches[INFERENCE_MAX_PORTS];
};
tu_status inference_outputs_new(const struct inference_model *model, int64_t max_batch,
                                struct inference_outputs *outputs);
void inference_outputs_free(struct inference_outputs *outputs);

/* Computes all outputs of the first `batch` samples. */
tu_status inference_model_run(const struct inference_model *model, int64_t batch,
                              struct inference_outputs *outputs);

#endif
