/* What tests of random graphs share: drawing, running a graph somewhere, and comparing what it came to there with what it
 * came to elsewhere. Every run has a deadline, so a deadlock is a failure with a name.
 *
 * A program of such tests is called with COUNT [FIRST [gpu]]: graphs FIRST … FIRST+COUNT-1; with gpu, on GPUs and the CPU
 * beside them alone. */
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

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(uint64_t *state, uint64_t below) {
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 31)) % below;
}

/* Mostly recent values, so that graphs grow deep as well as wide. */
static inline tu_value pick_value(uint64_t *random, const tu_value *values, int count) {
    uint64_t span = draw(random, 3) ? 6 : (uint64_t)count;
    uint64_t back = draw(random, span < (uint64_t)count ? span : (uint64_t)count);
    return values[count - 1 - (int)back];
}

/* ---- Running ---- */

/* What the last step fetched, and all variables of floating-point type after it, as one list. */
typedef struct outcome {
    double *numbers;
    size_t count;
} outcome;

static void add_numbers(outcome *o, tu_type type, const void *from) {
    size_t count = (size_t)tu_shape_elements(type.shape);
    o->numbers = realloc(o->numbers, (o->count + count) * sizeof *o->numbers);
    for (size_t i = 0; i < count; i++)
        o->numbers[o->count++] =
            type.dtype == TU_F64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

static void add_variables(outcome *o, const tu_state *state) {
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

static bool take_steps(tu_program *program, tu_state *state, const tu_compile_options *how, size_t feed_count,
                       const tu_feed *feeds, outcome *o) {
    void **results = calloc(how->fetch_count + 1, sizeof *results);
    for (size_t i = 0; i < how->fetch_count; i++)
        results[i] = calloc(1, tu_type_bytes(tu_value_type(how->fetch[i])));
    bool good = true;
    for (int step = 0; step < RANDOM_STEPS && good; step++)
        good = tu_run(program, state, feed_count, feeds, results) == TU_OK;
    for (size_t i = 0; i < how->fetch_count; i++) {
        if (good) add_numbers(o, tu_value_type(how->fetch[i]), results[i]);
        free(results[i]);
    }
    free((void *)results);
    if (good) add_variables(o, state);
    return good;
}

/* Some steps over one state; how->fetch must be of floating-point types. */
static bool run_graph(tu_graph *graph, const tu_compile_options *given, size_t feed_count,
                      const tu_feed *feeds, outcome *o) {
    tu_program *program = NULL;
    tu_state *state = NULL;
    tu_compile_options how = *given;
    how.struct_size = sizeof how;
    how.updates = true;
    how.threads = 1;
    how.timeout = 20;
    bool good = tu_compile_with(graph, &program, &how) == TU_OK &&
                tu_state_new(graph, &state, .seed = 4) == TU_OK &&
                take_steps(program, state, &how, feed_count, feeds, o);
    if (!good) printf("     %s %s: %s\n", how.strategy ? how.strategy : "single", how.devices, tu_message());
    tu_program_free(program);
    tu_state_free(state);
    return good;
}

/* ---- Comparing ---- */

/* What number `index` of an outcome is one of. */
static const char *name_of_number(const tu_value *fetches, size_t fetch_count, size_t index) {
    for (size_t i = 0; i < fetch_count; i++) {
        size_t count = (size_t)tu_shape_elements(tu_value_shape(fetches[i]));
        if (index < count) return tu_value_name(fetches[i]);
        index -= count;
    }
    return "variables";
}

/* `slack`: of numbers of size one and below, and for larger ones times these; 0: all bits must agree. */
static bool same_outcome(const tu_value *fetches, size_t fetch_count, const outcome *one, const outcome *many,
                         double slack) {
    if (one->count != many->count) {
        printf("     %zu numbers on one device, %zu on several\n", one->count, many->count);
        return false;
    }
    for (size_t i = 0; i < one->count; i++) {
        double x = one->numbers[i], y = many->numbers[i];
        if (fabs(x - y) <= slack * fmax(1, fabs(x))) continue;
        printf("     %s, number %zu of all: %.17g on one device, %.17g on several\n",
               name_of_number(fetches, fetch_count, i), i, x, y);
        return false;
    }
    return true;
}

/* ---- All of them ---- */

static bool on_gpu; /* only devices with GPUs among them; else only without */

static inline bool is_for_this_run(const char *devices) {
    return (strstr(devices, "gpu") != NULL) == on_gpu;
}

static int check_graphs(int argc, char **argv, bool (*check)(uint64_t seed)) {
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
