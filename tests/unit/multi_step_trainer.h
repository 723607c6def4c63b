/* A small network in training, and data for its steps, for tests of tu_run_many. */
#ifndef TUTTI_MULTI_STEP_TRAINER_H
#define TUTTI_MULTI_STEP_TRAINER_H

#include "discrete_device.h"

#include <math.h>
#include <string.h>

#include <tutti/tutti.h>

enum { BATCH = 2, STEPS = 4, ROWS = 7 };

typedef struct trainer {
    tu_graph *graph;
    tu_network_graph model;
    tu_program *step;
    tu_state *state;
    size_t pixels; /* per image */
    float *images; /* ROWS images */
    tu_table *table;
} trainer;

static const int64_t rows[STEPS * BATCH] = {3, 0, 6, 6, 1, 2, 5, 4};
static const int32_t labels[STEPS * BATCH] = {0, 1, 2, 3, 4, 5, 6, 7};

static bool discrete_has_no_submit; /* if set, the device of the next trainer has no `submit` */

static inline void begin_with_limit(trainer *t, const char *name, const char *devices,
                                    uint64_t memory_limit) {
    memset(t, 0, sizeof *t);
    register_discrete_device();
    if (discrete_has_no_submit) remove_discrete_lists();
    discrete_has_no_submit = false;
    assert_int_equal(tu_graph_new(&t->graph), TU_OK);
    t->model = TU_SIZED(tu_network_graph);
    assert_int_equal(tu_network_build(t->graph, name, &t->model, .batch = BATCH), TU_OK);
    assert_int_equal(tu_add_sgd(t->model.loss, 0.01, 0.9), TU_OK);
    if (tu_compile(t->graph, &t->step, .devices = devices, .threads = 1, .memory_limit = memory_limit,
                   .fetch = &t->model.loss, .fetch_count = 1, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(t->graph, &t->state, .seed = 6), TU_OK);
    t->pixels = (size_t)tu_shape_elements(tu_value_shape(t->model.images)) / BATCH;
    t->images = test_malloc(ROWS * t->pixels * sizeof(float));
    for (size_t i = 0; i < ROWS * t->pixels; i++) t->images[i] = (float)sin((double)i * 0.7);
    assert_int_equal(tu_table_new(t->images, t->pixels * sizeof(float), ROWS, &t->table), TU_OK);
}

static inline void begin(trainer *t, const char *name, const char *devices) {
    begin_with_limit(t, name, devices, 0);
}

static inline void end(trainer *t) {
    tu_table_free(t->table);
    test_free(t->images);
    tu_program_free(t->step);
    tu_state_free(t->state);
    tu_graph_free(t->graph);
}

/* Returns the images of all steps, one after another; the test frees them. */
static inline float *batches(const trainer *t) {
    float *all = test_malloc(STEPS * BATCH * t->pixels * sizeof(float));
    for (size_t i = 0; i < STEPS * BATCH; i++)
        memcpy(all + i * t->pixels, t->images + (size_t)rows[i] * t->pixels, t->pixels * sizeof(float));
    return all;
}

/* Runs steps [first, first + count) of STEPS, from the table. `losses`: of all STEPS. */
static inline tu_status run_many_from_table(trainer *t, size_t first, size_t count, float *losses) {
    tu_feed_many feeds[] = {{.input = t->model.images, .table = t->table, .rows = rows + first * BATCH},
                            {.input = t->model.labels, .data = labels + first * BATCH}};
    return tu_run_many(t->step, t->state, count, 2, feeds, (void *[]){losses + first});
}

/* Runs all steps, one tu_run each. */
static inline void run_step_by_step(trainer *t, float *losses) {
    float *all = batches(t);
    for (size_t s = 0; s < STEPS; s++) {
        tu_feed feeds[] = {{t->model.images, all + s * BATCH * t->pixels},
                           {t->model.labels, labels + s * BATCH}};
        if (tu_run(t->step, t->state, 2, feeds, (void *[]){&losses[s]}) != TU_OK)
            fail_msg("%s", tu_message());
    }
    test_free(all);
}

#endif
