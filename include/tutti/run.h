/* Running graphs: states hold variables, programs compute.
 *
 * A state owns what outlives a run: variables under their scoped names, the seed, the ordinal of the next sample.
 * A program is compiled from a graph for a set of results. Programs and states are apart: the training step, the
 * evaluation of a smaller batch and a user's own probe are three programs over one state.
 *
 *     tu_program *step;
 *     tu_state *state;
 *     tu_compile(g, &step, .fetch = {loss}, .fetch_count = 1, .updates = true);
 *     tu_state_new(g, &state, .seed = 1);
 *     float value;
 *     tu_run(step, state, 2, (tu_feed[]){{x, images}, {y, labels}}, (void *[]){&value});
 */
#ifndef TUTTI_RUN_H
#define TUTTI_RUN_H

#include <tutti/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_state tu_state;
typedef struct tu_program tu_program;

/* ---- State -------------------------------------------------------------------------------------------------- */

typedef struct tu_state_options {
    size_t struct_size;
    uint64_t seed;
} tu_state_options;
/* A state with all variables of the graph, set by their initialisers: the same seed gives the same bits. */
TU_API tu_status tu_state_new_with(const tu_graph *graph, tu_state **state, const tu_state_options *options);
#define tu_state_new(graph, state, ...)                                                                      \
    tu_state_new_with(graph, state, TU_OPTIONS(tu_state_options, __VA_ARGS__))
TU_API void tu_state_free(tu_state *state);

/* Adds the variables of another graph that the state does not have yet; those it has must agree in type. */
TU_API tu_status tu_state_extend(tu_state *state, const tu_graph *graph);

TU_API size_t tu_state_count(const tu_state *state);
/* Name and type of variable `index`, in the order made. */
TU_API tu_status tu_state_variable(const tu_state *state, size_t index, const char **name, tu_type *type);
/* Copies a variable out or in; `bytes` must be its size. */
TU_API tu_status tu_state_get(const tu_state *state, const char *name, void *data, size_t bytes);
TU_API tu_status tu_state_set(tu_state *state, const char *name, const void *data, size_t bytes);

/* The ordinal of the next sample: what the input "sample_ordinal" counts from when it is not fed. A run of a
 * program with updates moves it on by the number of samples. */
TU_API int64_t tu_state_sample(const tu_state *state);
TU_API void tu_state_set_sample(tu_state *state, int64_t ordinal);

/* ---- Programs ----------------------------------------------------------------------------------------------- */

typedef struct tu_compile_options {
    size_t struct_size;
    const char *device;    /* NULL: "ref" */
    const tu_value *fetch; /* the results of a run, in this order */
    size_t fetch_count;
    bool updates; /* also run every assignment of the graph */
} tu_compile_options;
/* Fails with the graph's first mistake, if one was made. The graph must outlive the program and grow no more. */
TU_API tu_status tu_compile_with(tu_graph *graph, tu_program **program, const tu_compile_options *options);
#define tu_compile(graph, program, ...)                                                                      \
    tu_compile_with(graph, program, TU_OPTIONS(tu_compile_options, __VA_ARGS__))
TU_API void tu_program_free(tu_program *program);

typedef struct tu_feed {
    tu_value input;
    const void *data; /* dense, row-major, of the input's type */
} tu_feed;

/* One run: reads feeds and variables, writes fetches[i] (dense, of fetch i's type; NULL to drop it), then applies
 * the assignments. A run that fails changes nothing. */
TU_API tu_status tu_run(tu_program *program, tu_state *state, size_t feed_count, const tu_feed *feeds,
                        void *const *fetches);

/* ---- Devices ------------------------------------------------------------------------------------------------ */

typedef struct tu_device_info {
    const char *name; /* "ref" */
    const char *kind; /* "reference" */
    const char *description;
    uint64_t memory_bytes; /* 0: unknown */
    const char *unusable;  /* NULL, or why it cannot be used and what to do */
} tu_device_info;
/* Describes device `index`; TU_NOT_FOUND past the last. */
TU_API tu_status tu_device(size_t index, tu_device_info *info);

#ifdef __cplusplus
}
#endif
#endif
