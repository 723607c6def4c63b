/* Tests of compiled programs on the CPU: memory use equals the plan, steps after the first allocate nothing, runs are
 * reproducible, several programs share a state, and exceeding a memory limit is an error with advice. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"

typedef struct trainer {
    tu_graph *graph;
    tu_network_graph model;
    tu_program *step;
    tu_state *state;
    float *images;
    int32_t *labels;
} trainer;

static void create_trainer(trainer *t, const char *name, const char *devices, int threads) {
    memset(t, 0, sizeof *t);
    assert_int_equal(tu_graph_new(&t->graph), TU_OK);
    t->model = TU_SIZED(tu_network_graph);
    assert_int_equal(tu_network_build(t->graph, name, &t->model, .batch = 4), TU_OK);
    assert_int_equal(tu_add_sgd(t->model.loss, 0.01, 0.9), TU_OK);
    if (tu_compile(t->graph, &t->step, .devices = devices, .threads = threads, .fetch = &t->model.loss,
                   .fetch_count = 1, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(t->graph, &t->state, .seed = 6), TU_OK);
    int64_t pixels = tu_shape_elements(tu_value_shape(t->model.images));
    t->images = test_malloc((size_t)pixels * sizeof(float));
    t->labels = test_malloc(4 * sizeof(int32_t));
    for (int64_t i = 0; i < pixels; i++) t->images[i] = (float)sin((double)i * 0.7);
    for (int i = 0; i < 4; i++) t->labels[i] = i;
}

static float run_step(trainer *t) {
    float loss;
    tu_feed feeds[] = {{t->model.images, t->images}, {t->model.labels, t->labels}};
    if (tu_run(t->step, t->state, 2, feeds, (void *[]){&loss}) != TU_OK) fail_msg("%s", tu_message());
    return loss;
}

static void free_trainer(trainer *t) {
    test_free(t->images);
    test_free(t->labels);
    tu_program_free(t->step);
    tu_state_free(t->state);
    tu_graph_free(t->graph);
}

static const char *const models[] = {"mlp", "tutorial-cnn", "resnet20"};

static void the_cpu_trains_like_the_reference(void **unused) {
    (void)unused;
    for (int m = 0; m < 3; m++) {
        trainer cpu, ref;
        create_trainer(&cpu, models[m], "cpu", 2);
        create_trainer(&ref, models[m], "ref", 1);
        for (int i = 0; i < 2; i++) {
            float got = run_step(&cpu), expected = run_step(&ref);
            if (!(fabsf(got - expected) <= 2e-4f * fmaxf(1, fabsf(expected))))
                fail_msg("%s, step %d: loss %g on the CPU, %g on the reference", models[m], i, (double)got,
                         (double)expected);
        }
        free_trainer(&cpu);
        free_trainer(&ref);
    }
}

static void later_steps_allocate_nothing(void **unused) {
    (void)unused;
    for (int m = 0; m < 3; m++) {
        trainer t;
        create_trainer(&t, models[m], m == 0 ? "cpu:0/2" : "cpu", 1);
        run_step(&t);
        uint64_t before = tu__alloc_count();
        for (int i = 0; i < 5; i++) run_step(&t);
        if (tu__alloc_count() != before)
            fail_msg("%s: %llu allocations in five steps", models[m],
                     (unsigned long long)(tu__alloc_count() - before));
        free_trainer(&t);
    }
}

static void allocated_memory_equals_planned_memory(void **unused) {
    (void)unused;
    for (int m = 0; m < 3; m++) {
        trainer t;
        tu_memory_report planned = TU_SIZED(tu_memory_report), allocated = TU_SIZED(tu_memory_report);
        create_trainer(&t, models[m], "cpu", 2);
        assert_int_equal(tu_program_memory(t.step, 0, &planned), TU_OK);
        assert_int_equal(planned.allocated_bytes, 0);
        run_step(&t);
        assert_int_equal(tu_program_memory(t.step, 0, &allocated), TU_OK);
        assert_int_equal(allocated.allocated_bytes, planned.scratch_bytes + planned.constant_bytes);
        assert_int_equal(allocated.scratch_bytes, planned.scratch_bytes);
        assert_int_equal(tu_program_memory(t.step, 1, &allocated), TU_NOT_FOUND);
        free_trainer(&t);
    }
}

/* Returns the weights of one layer after three steps. */
static void weights_after(const char *model, const char *name, size_t bytes, int threads, void *out) {
    trainer t;
    create_trainer(&t, model, "cpu", threads);
    for (int i = 0; i < 3; i++) run_step(&t);
    assert_int_equal(tu_state_get(t.state, name, out, bytes), TU_OK);
    free_trainer(&t);
}

/* Returns the number of repetitions; set TUTTI_REPEATS to a larger number to look for races. */
static int repetition_count(void) {
    const char *text = getenv("TUTTI_REPEATS");
    return text ? (int)strtol(text, NULL, 10) : 3;
}

static void runs_are_bit_identical(void **unused) {
    (void)unused;
    static float first[64 * 75], again[64 * 75];
    for (int threads = 1; threads <= 2; threads++) {
        weights_after("tutorial-cnn", "conv1/weights", sizeof first, threads, first);
        for (int i = 0; i < repetition_count(); i++) {
            weights_after("tutorial-cnn", "conv1/weights", sizeof again, threads, again);
            assert_memory_equal(first, again, sizeof first);
        }
    }
}

/* Training, a forward pass and evaluation of a smaller batch use one state and share scratch memory. */
static void several_programs_share_a_state(void **unused) {
    (void)unused;
    trainer t;
    create_trainer(&t, "mlp", "cpu", 1);
    tu_graph *small;
    tu_network_graph eval = TU_SIZED(tu_network_graph);
    tu_program *evaluate, *forward;
    assert_int_equal(tu_graph_new(&small), TU_OK);
    tu_set_training(small, false);
    assert_int_equal(tu_network_build(small, "mlp", &eval, .batch = 2), TU_OK);
    assert_int_equal(
        tu_compile(small, &evaluate, .devices = "cpu", .threads = 1, .fetch = &eval.loss, .fetch_count = 1),
        TU_OK);
    assert_int_equal(tu_compile(t.graph, &forward, .devices = "ref", .fetch = &t.model.loss, .fetch_count = 1,
                                .no_updates = true),
                     TU_OK);
    float before, small_before, small_after, reference;
    tu_feed small_feeds[] = {{eval.images, t.images}, {eval.labels, t.labels}};
    tu_feed feeds[] = {{t.model.images, t.images}, {t.model.labels, t.labels}};
    assert_int_equal(tu_run(evaluate, t.state, 2, small_feeds, (void *[]){&small_before}), TU_OK);
    before = run_step(&t);
    assert_int_equal(tu_run(evaluate, t.state, 2, small_feeds, (void *[]){&small_after}), TU_OK);
    assert_int_equal(tu_run(forward, t.state, 2, feeds, (void *[]){&reference}), TU_OK);
    assert_true(small_after < small_before && reference < before);
    assert_true(fabsf(run_step(&t) - reference) < 1e-4f);
    tu_program_free(evaluate);
    tu_program_free(forward);
    tu_graph_free(small);
    free_trainer(&t);
}

static void a_program_that_does_not_fit_is_rejected(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_network_graph model = TU_SIZED(tu_network_graph);
    tu_program *p;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_int_equal(tu_network_build(g, "tutorial-cnn", &model), TU_OK);
    assert_int_equal(tu_add_sgd(model.loss, 0.1, 0.9), TU_OK);
    assert_int_equal(tu_compile(g, &p, .devices = "cpu", .fetch = &model.loss, .fetch_count = 1,
                                .updates = true, .memory_limit = 1 << 20),
                     TU_NO_MEMORY);
    static const char *const words[] = {"cpu:0", "limit is 1 MiB",  "Largest",
                                        "conv",  "a smaller batch", "tu_recompute"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(tu_message(), words[i])) fail_msg("'%s' is not in: %s", words[i], tu_message());
    assert_int_equal(tu_compile(g, &p, .devices = "cpu", .fetch = &model.loss, .fetch_count = 1,
                                .updates = true, .memory_limit = (uint64_t)4 << 30),
                     TU_OK);
    tu_program_free(p);
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_trains_like_the_reference),
        cmocka_unit_test(later_steps_allocate_nothing),
        cmocka_unit_test(allocated_memory_equals_planned_memory),
        cmocka_unit_test(runs_are_bit_identical),
        cmocka_unit_test(several_programs_share_a_state),
        cmocka_unit_test(a_program_that_does_not_fit_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
