/* Shared by the tests of random graphs: generates random numbers, runs a graph on some devices, and compares its
 * results with those on other devices. Every run has a timeout, so that a deadlock is reported as a failure.
 *
 * Arguments of such a program: COUNT [FIRST [gpu]]. It checks the graphs with seeds FIRST … FIRST+COUNT-1. With
 * `gpu` it uses only device lists that contain a GPU, otherwise only those without. */
#ifndef TUTTI_RANDOM_GRAPH_H
#define TUTTI_RANDOM_GRAPH_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "graph/graph.h"

enum { RANDOM_STEPS = 3 };

/* Returns a random integer in [0, below). SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t random_below(uint64_t *state, uint64_t below) {
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 31)) % below;
}

/* Returns one of `values`, usually a recent one, so that graphs become deep as well as wide. */
static inline tu_value pick_value(uint64_t *random, const tu_value *values, int count) {
    uint64_t span = random_below(random, 3) ? 6 : (uint64_t)count;
    uint64_t back = random_below(random, span < (uint64_t)count ? span : (uint64_t)count);
    return values[count - 1 - (int)back];
}

/* ---- Running ---- */

/* The values fetched by the last step, followed by all float variables after it, as doubles. */
typedef struct outcome {
    double *numbers;
    size_t count;
} outcome;

static inline void add_numbers(outcome *o, tu_type type, const void *from) {
    size_t count = (size_t)tu_shape_elements(type.shape);
    o->numbers = realloc(o->numbers, (o->count + count) * sizeof *o->numbers);
    for (size_t i = 0; i < count; i++)
        o->numbers[o->count++] =
            type.dtype == TU_F64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

static inline void add_variables(outcome *o, const tu_state *state) {
    for (size_t i = 0; i < tu_state_variable_count(state); i++) {
        const char *name;
        tu_type type;
        tu_state_variable(state, i, &name, &type);
        if (type.dtype != TU_F64 && type.dtype != TU_F32) continue;
        void *data = malloc(tu_type_bytes(type));
        tu_state_get(state, name, data, tu_type_bytes(type));
        add_numbers(o, type, data);
        free(data);
    }
}

/* Runs RANDOM_STEPS steps and appends the results of the last to `o`. */
static inline bool run_steps(tu_program *program, tu_state *state, const tu_compile_options *options,
                             size_t feed_count, const tu_feed *feeds, outcome *o) {
    void **results = calloc(options->fetch_count + 1, sizeof *results);
    for (size_t i = 0; i < options->fetch_count; i++)
        results[i] = calloc(1, tu_type_bytes(tu_value_type(options->fetch[i])));
    bool ok = true;
    for (int step = 0; step < RANDOM_STEPS && ok; step++)
        ok = tu_run(program, state, feed_count, feeds, results) == TU_OK;
    for (size_t i = 0; i < options->fetch_count; i++) {
        if (ok) add_numbers(o, tu_value_type(options->fetch[i]), results[i]);
        free(results[i]);
    }
    free((void *)results);
    if (ok) add_variables(o, state);
    return ok;
}

/* Compiles the graph and runs some steps. All fetched values must be f32 or f64. */
static inline bool run_graph(tu_graph *graph, const tu_compile_options *given_options, size_t feed_count,
                             const tu_feed *feeds, outcome *o) {
    tu_program *program = NULL;
    tu_state *state = NULL;
    tu_compile_options options = *given_options;
    options.struct_size = sizeof options;
    options.updates = true;
    options.threads = 1;
    options.timeout = 20;
    bool ok = tu_compile_with(graph, &program, &options) == TU_OK &&
              tu_state_new(graph, &state, .seed = 4) == TU_OK &&
              run_steps(program, state, &options, feed_count, feeds, o);
    if (!ok)
        printf("     %s %s: %s\n", options.strategy ? options.strategy : "single", options.devices,
               tu_message());
    tu_program_free(program);
    tu_state_free(state);
    return ok;
}

/* ---- Comparing ---- */

/* Returns the name of the fetched value that contains number `index` of an outcome. */
static inline const char *name_of_number(const tu_value *fetches, size_t fetch_count, size_t index) {
    for (size_t i = 0; i < fetch_count; i++) {
        size_t count = (size_t)tu_shape_elements(tu_value_shape(fetches[i]));
        if (index < count) return tu_value_name(fetches[i]);
        index -= count;
    }
    return "variables";
}

/* True if the outcomes agree. `tolerance` is absolute for numbers up to 1, relative for larger ones; with 0 the
 * numbers must be equal. */
static inline bool outcomes_agree(const tu_value *fetches, size_t fetch_count, const outcome *single,
                                  const outcome *several, double tolerance) {
    if (single->count != several->count) {
        printf("     %zu elements on one device, %zu on several\n", single->count, several->count);
        return false;
    }
    for (size_t i = 0; i < single->count; i++) {
        double x = single->numbers[i], y = several->numbers[i];
        if (fabs(x - y) <= tolerance * fmax(1, fabs(x))) continue;
        printf("     %s, element %zu of the results: %.17g on one device, %.17g on several\n",
               name_of_number(fetches, fetch_count, i), i, x, y);
        return false;
    }
    return true;
}

/* ---- Running all graphs ---- */

static bool on_gpu; /* true: use only device lists with a GPU; false: only those without */

static inline bool is_for_this_run(const char *devices) {
    return (strstr(devices, "gpu") != NULL) == on_gpu;
}

static inline int check_graphs(int argc, char **argv, bool (*check)(uint64_t seed)) {
    int count = argc > 1 ? atoi(argv[1]) : 100, first = argc > 2 ? atoi(argv[2]) : 0, failed = 0;
    on_gpu = argc > 3 && strcmp(argv[3], "gpu") == 0;
    int64_t live = tu__alloc_live();
    for (int i = 0; i < count; i++) failed += !check((uint64_t)first + (uint64_t)i);
    if (tu__alloc_live() != live) {
        printf("FAIL %lld blocks leaked\n", (long long)(tu__alloc_live() - live));
        failed++;
    }
    printf("%d passed, %d failed\n", count - failed, failed);
    return failed != 0;
}

#endif
