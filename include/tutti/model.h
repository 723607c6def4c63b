/* Models: trained networks that answer.
 *
 *     tu_model *model;
 *     float probabilities[10];
 *     tu_model_load("cifar10.model", &model);
 *     tu_model_run(model, 1, images, probabilities);
 *
 * A model comes from a model file (`tutti export`, docs/model-file.md), or from a graph and a state. It has inputs and
 * outputs with a row per sample, and computes any number of samples at once. Its variables are constants: batch
 * normalisation is folded into the weights, and weights are laid out once for the kernels of the device.
 *
 * Shapes are static, so a model has a program for each of a few batch sizes, the powers of two up to .max_batch. Other
 * numbers of samples are divided into these, largest first: 13 = 8 + 4 + 1. On a CPU the bits of an answer depend neither
 * on the samples it is computed with, nor on the number of threads.
 *
 * Threads. Any thread may call tu_model_run. At most .sessions calls compute at once, the others wait. Loading allocates
 * all memory that runs need: tu_model_memory. */
#ifndef TUTTI_MODEL_H
#define TUTTI_MODEL_H

#include <tutti/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_model tu_model;

typedef struct tu_model_options {
    size_t struct_size;
    const char
        *devices; /* one device: "cpu:0", "gpu:1", "ref"; NULL: the first GPU, or the CPU without one */
    const char *precision; /* "bf16", "f16" or "tf32": as of tu_compile; NULL or "f32": as trained */
    int threads;           /* of a CPU, per call; 0: one per core */
    int64_t max_batch;     /* the largest number of samples in one program; others are divided; 0: 32 */
    int sessions;          /* calls that compute at once, each with its own scratch memory; 0: 1 */
    uint64_t memory_limit; /* bytes on the device; 0: all it has */
} tu_model_options;

/* Loads a model file. Fails with TU_CORRUPT if any of its bytes is damaged. */
TU_API tu_status tu_model_load_with(const char *path, tu_model **model, const tu_model_options *options);
#define tu_model_load(path, model, ...)                                                                      \
    tu_model_load_with(path, model, TU_OPTIONS(tu_model_options, __VA_ARGS__))
/* Makes a model of the named results (tu_output) of a graph, with the current values of its variables. The graph must be
 * built for inference: without assignments and random numbers, with batch inputs (tu_batch_input). */
TU_API tu_status tu_model_new_with(const tu_graph *graph, const tu_state *state, tu_model **model,
                                   const tu_model_options *options);
#define tu_model_new(graph, state, model, ...)                                                               \
    tu_model_new_with(graph, state, model, TU_OPTIONS(tu_model_options, __VA_ARGS__))
/* Frees the model, when no call uses it. */
TU_API void tu_model_free(tu_model *model);

/* ---- What a model computes ---------------------------------------------------------------------------------- */

TU_API size_t tu_model_input_count(const tu_model *model);
TU_API size_t tu_model_output_count(const tu_model *model);
/* Get the name and the type of one sample (a row, without the axis of samples). Fail with TU_NOT_FOUND from the count
 * on. */
TU_API tu_status tu_model_input(const tu_model *model, size_t index, const char **name, tu_type *type);
TU_API tu_status tu_model_output(const tu_model *model, size_t index, const char **name, tu_type *type);
/* Returns the number of class names, and class name `index`; 0 and NULL if the model has none. */
TU_API size_t tu_model_label_count(const tu_model *model);
TU_API const char *tu_model_label(const tu_model *model, size_t index);
/* Returns a text of the model file, such as "name" or "licence"; NULL if it has none with this key. */
TU_API const char *tu_model_text(const tu_model *model, const char *key);

/* ---- Running ------------------------------------------------------------------------------------------------ */

/* Computes the first output for `count` samples of a model with one input. Both arrays are dense, one sample after
 * another. */
TU_API tu_status tu_model_run(tu_model *model, int64_t count, const void *input, void *output);

/* Arrays of all samples, with their type [count, ...]. Frozen: they get no more fields. */
typedef struct tu_model_feed {
    const char *input;
    tu_type type;
    const void *data;
} tu_model_feed;
typedef struct tu_model_fetch {
    const char *output;
    tu_type type;
    void *data;
} tu_model_fetch;
/* Computes some outputs for `count` samples. Every input must be given once. Fails with TU_INVALID, and a message with
 * what was expected, for a wrong name or type. */
TU_API tu_status tu_model_run_named(tu_model *model, int64_t count, size_t feed_count,
                                    const tu_model_feed *feeds, size_t fetch_count,
                                    const tu_model_fetch *fetches);

/* ---- Programs and memory ------------------------------------------------------------------------------------ */

/* Returns the number of programs, and the batch size of program `index` (0 from the count on), largest first. */
TU_API size_t tu_model_program_count(const tu_model *model);
TU_API int64_t tu_model_program_batch(const tu_model *model, size_t index);
/* Returns program `index` to inspect it, with the functions of run.h; NULL from the count on. */
TU_API const tu_program *tu_model_program(const tu_model *model, size_t index);

typedef struct tu_model_memory_report {
    size_t struct_size;
    const char *device;
    uint64_t weight_bytes;  /* constants in the device's memory, as laid out for its kernels */
    uint64_t scratch_bytes; /* of one session: as much as its largest program needs */
    int sessions;
    uint64_t total_bytes; /* weights, and the scratch of all sessions */
} tu_model_memory_report;
TU_API tu_status tu_model_memory(const tu_model *model, tu_model_memory_report *report);

/* ---- Verifying a model file ----------------------------------------------------------------------------------- */

typedef enum tu_verify_outcome {
    TU_VERIFY_PASSED,
    TU_VERIFY_FAILED,
    TU_VERIFY_SKIPPED, /* the device does not support the precision, or the file has no bound for it */
} tu_verify_outcome;

/* An output of a model file, computed on one device in one precision, compared with the golden output. Filled by the
 * library, which sets struct_size. */
typedef struct tu_verify_check {
    size_t struct_size;
    const char *device, *precision, *output;
    tu_verify_outcome outcome;
    double difference;  /* the largest of all golden samples */
    double limit;       /* 0: the bits must be equal */
    bool relative;      /* both are fractions of the largest absolute value in the output of the sample */
    bool any_batch;     /* also compared, bit by bit, between batches of different sizes */
    const char *reason; /* NULL, or why it failed or was skipped */
} tu_verify_check;

typedef struct tu_verify_options {
    size_t struct_size;
    const char *devices; /* with commas; NULL: all that can be used, and "ref" */
    int threads;         /* of a CPU; 0: one per core */
    void (*on_check)(void *context, const tu_verify_check *check);
    void *context;
} tu_verify_options;

typedef struct tu_verify_result {
    size_t struct_size;
    int64_t passed, failed, skipped; /* checks */
    int64_t samples;                 /* golden samples */
    int64_t tensors;                 /* whose digests were compared */
    uint64_t bytes;                  /* of the file */
} tu_verify_result;

/* Checks the digest of every tensor of a model file, and computes the golden samples on each device in each precision. On
 * `ref` the outputs must have the bits of the golden ones. Elsewhere they must be within the bounds that the file states;
 * on a CPU, the bits must not depend on the batch in which a sample is computed. Succeeds if all could be computed, even if
 * checks failed: see result->failed. `result` may be NULL. */
TU_API tu_status tu_model_verify_with(const char *path, tu_verify_result *result,
                                      const tu_verify_options *options);
#define tu_model_verify(path, result, ...)                                                                   \
    tu_model_verify_with(path, result, TU_OPTIONS(tu_verify_options, __VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif
