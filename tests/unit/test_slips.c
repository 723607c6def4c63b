/* Statements about slips in C programs: what is easily forgotten or written twice gets a message, or does no harm. */
#include "test.h"

#include <math.h>
#include <string.h>

#include <tutti/tutti.h>

static tu_graph *fresh(void) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    return g;
}

static void assert_says(const char *part) {
    if (!strstr(tu_message(), part)) fail_msg("'%s' is not in: %s", part, tu_message());
}

/* ---- Fetches ---- */

static void a_list_of_fetches_needs_its_count_and_a_count_its_list(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    tu_value y = tu_neg(tu_input(g, "x", TU_F32, TU_SHAPE(2)));
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &y), TU_INVALID);
    assert_says(".fetch is a list, but .fetch_count is 0");
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch_count = 3), TU_INVALID);
    assert_says("3 fetches are announced, but there is no list of them");
    assert_null(program);
    tu_graph_free(g);
}

/* ---- Updates ---- */

/* w -= 0.1 dw of the mean square of x w, twice over: two trainable variables. */
static tu_value training_step(tu_graph *g) {
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2));
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(2), .init = {TU_INIT_CONSTANT, .a = 1});
    tu_value b = tu_variable(g, "b", TU_F32, TU_SHAPE(2));
    tu_value loss = tu_mean(tu_square(tu_add(tu_mul(x, w), b)));
    assert_int_equal(tu_add_sgd(loss, 0.1, 0), TU_OK);
    return loss;
}

static void an_optimizer_without_updates_is_refused(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    tu_value loss = training_step(g);
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &loss, .fetch_count = 1), TU_INVALID);
    assert_says("assigns 2 trainable variables ('w', ...), but is compiled without .updates");
    assert_says(".updates = true to train, or .no_updates = true");
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &loss, .fetch_count = 1,
                                .updates = true, .no_updates = true),
                     TU_INVALID);
    assert_says(".updates and .no_updates are both true");
    tu_graph_free(g);
}

static void a_probe_of_a_training_graph_says_that_it_updates_nothing(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    tu_value loss = training_step(g), x = tu_find(g, "x");
    tu_program *probe;
    tu_state *state;
    assert_int_equal(
        tu_compile(g, &probe, .devices = "ref", .fetch = &loss, .fetch_count = 1, .no_updates = true), TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    const float data[] = {1, 2};
    float first, second;
    assert_int_equal(tu_run(probe, state, 1, (tu_feed[]){{x, data}}, (void *[]){&first}), TU_OK);
    assert_int_equal(tu_run(probe, state, 1, (tu_feed[]){{x, data}}, (void *[]){&second}), TU_OK);
    assert_true(first == second && first == 2.5F);
    tu_program_free(probe);
    tu_state_free(state);
    tu_graph_free(g);
}

static void an_assignment_that_is_fetched_is_no_slip(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(2)), next = tu_assign(w, tu_shift(w, 1));
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &next, .fetch_count = 1), TU_OK);
    tu_program_free(program);
    tu_graph_free(g);
}

static void running_statistics_alone_ask_for_no_updates(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    tu_value y = tu_batch_norm(tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 3)));
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &y, .fetch_count = 1), TU_OK);
    tu_program_free(program);
    tu_graph_free(g);
}

/* A program built with a header that had no such option runs with this library. */
static void callers_of_an_older_header_are_not_asked(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    tu_value loss = training_step(g);
    tu_program *program;
    const tu_compile_options older = {.struct_size = offsetof(tu_compile_options, no_updates),
                                      .devices = "ref",
                                      .fetch = &loss,
                                      .fetch_count = 1};
    assert_int_equal(tu_compile_with(g, &program, &older), TU_OK);
    tu_program_free(program);
    tu_graph_free(g);
}

/* ---- Feeds ---- */

static void an_input_fed_twice_is_refused(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2)), y = tu_input(g, "y", TU_F32, TU_SHAPE(2)),
             sum = tu_add(x, y);
    tu_program *program;
    float data[2] = {1, 2}, out[2] = {7, 7};
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &sum, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_run(program, NULL, 3, (tu_feed[]){{x, data}, {y, data}, {x, data}}, (void *[]){out}),
                     TU_INVALID);
    assert_says("feeds 0 and 2 are both for input 'x'");
    const tu_feed_many many[] = {
        {.input = x, .data = data}, {.input = y, .data = data}, {.input = y, .data = data}};
    assert_int_equal(tu_run_many(program, NULL, 1, 3, many, (void *[]){out}), TU_INVALID);
    assert_says("feeds 1 and 2 are both for input 'y'");
    assert_true(out[0] == 7);
    tu_program_free(program);
    tu_graph_free(g);
}

/* ---- States ---- */

static void a_program_without_variables_needs_no_state(void **unused) {
    (void)unused;
    const char *const devices[] = {"ref", "cpu:0"};
    for (size_t d = 0; d < 2; d++) {
        tu_graph *g = fresh();
        tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2)), y = tu_neg(x);
        tu_variable(g, "aside", TU_F32, TU_SHAPE(2)); /* the program has no use for it */
        tu_program *program;
        tu_state *state;
        float data[4] = {1, 2, 3, 4}, out[4];
        assert_int_equal(tu_compile(g, &program, .devices = devices[d], .fetch = &y, .fetch_count = 1),
                         TU_OK);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(tu_run(program, NULL, 1, (tu_feed[]){{x, data}}, (void *[]){out}), TU_OK);
            assert_true(out[0] == -1 && out[1] == -2);
        }
        assert_int_equal(
            tu_run_many(program, NULL, 2, 1, (tu_feed_many[]){{.input = x, .data = data}}, (void *[]){out}),
            TU_OK);
        assert_true(out[2] == -3 && out[3] == -4);
        assert_int_equal(tu_state_new(g, &state), TU_OK); /* one that is given serves as well, in between */
        assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{x, data}}, (void *[]){out}), TU_OK);
        assert_int_equal(tu_run(program, NULL, 1, (tu_feed[]){{x, data}}, (void *[]){out}), TU_OK);
        assert_true(out[1] == -2);
        tu_program_free(program);
        tu_state_free(state);
        tu_graph_free(g);
    }
}

/* What is drawn without a state is what a new state of seed 0 draws, in every run. */
static void draws_without_a_state_are_those_of_a_new_one(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(8, 4)), y = tu_dropout(x, 0.5);
    tu_program *program;
    tu_state *state;
    float data[32], with[32], first[32], second[32];
    for (int i = 0; i < 32; i++) data[i] = 1;
    assert_int_equal(
        tu_compile(g, &program, .devices = "ref", .fetch = &y, .fetch_count = 1, .updates = true), TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{x, data}}, (void *[]){with}), TU_OK);
    assert_int_equal(tu_run(program, NULL, 1, (tu_feed[]){{x, data}}, (void *[]){first}), TU_OK);
    assert_int_equal(tu_run(program, NULL, 1, (tu_feed[]){{x, data}}, (void *[]){second}), TU_OK);
    assert_memory_equal(first, with, sizeof with);
    assert_memory_equal(first, second, sizeof with);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

static void a_program_with_variables_names_one_when_it_gets_no_state(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    tu_value w = tu_variable(g, "layer/w", TU_F32, TU_SHAPE(2)), y = tu_neg(w);
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_run(program, NULL, 0, NULL, NULL), TU_INVALID);
    assert_says("the state is NULL, but the program uses variable 'layer/w'");
    assert_int_equal(tu_run(NULL, NULL, 0, NULL, NULL), TU_INVALID);
    tu_program_free(program);
    tu_graph_free(g);
}

/* ---- Batch normalisation ---- */

static void a_momentum_of_zero_is_written_as_TU_ZERO(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    tu_value x = tu_batch_input(g, "x", TU_F64, TU_SHAPE(4, 1));
    tu_batch_norm(x, .momentum = TU_ZERO, .name = "bn");
    tu_program *step;
    tu_state *state;
    assert_int_equal(tu_compile(g, &step, .devices = "ref", .updates = true), TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    const double data[4] = {1, 3, 5, 7};
    double mean;
    assert_int_equal(tu_run(step, state, 1, (tu_feed[]){{x, data}}, NULL), TU_OK);
    tu_state_get(state, "bn/moving_mean", &mean, sizeof mean);
    assert_true(mean == 4); /* the batch's, nothing of what was there before */
    tu_program_free(step);
    tu_state_free(state);
    tu_graph_free(g);
}

#define NORM(...) tu_batch_norm(tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 3)), __VA_ARGS__)

static void a_momentum_written_as_zero_is_refused(void **unused) {
    (void)unused;
    double given = 0;
    for (int i = 0; i < 2; i++) {
        tu_graph *g = fresh();
        tu_value y = i ? NORM(.momentum = given) : NORM(.epsilon = 1e-3, .momentum = 0, .name = "bn");
        assert_false(tu_ok(y));
        assert_int_equal(tu_graph_status(g), TU_INVALID);
        assert_says("expected .momentum other than 0, because 0 means the default of 0.9");
        assert_says("TU_ZERO");
        tu_graph_free(g);
    }
}

static void a_momentum_left_out_is_the_default(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    assert_true(tu_ok(NORM(.epsilon = 1e-3, .name = "first")));
    assert_true(tu_ok(tu_batch_norm(tu_find(g, "x"), .name = "a.momentum"))); /* a name is no field */
    assert_true(tu_ok(tu_batch_norm_with(
        tu_find(g, "x"), &(tu_batch_norm_options){.struct_size = sizeof(tu_batch_norm_options),
                                                  .momentum = 0}))); /* forwarded: as it is in all options */
    tu_graph_free(g);
}

/* ---- Blocks ---- */

static tu_value returned_from_within(tu_graph *g) {
    tu_scope(g, "outer") tu_scope(g, "inner") return tu_fill(g, TU_F32, TU_SCALAR, 1);
    return (tu_value){0};
}

static void jump_out(tu_graph *g) {
    tu_scope(g, "outer") {
        tu_with_device(g, "cpu:0.1") goto out;
    }
out:
    return;
}

static void a_scope_closes_however_its_block_is_left(void **unused) {
    (void)unused;
    tu_graph *g = fresh();
    for (int i = 0; i < 2; i++) {
        tu_scope(g, "left") {
            if (i == 0) break;
            tu_fill(g, TU_F32, TU_SCALAR, 1);
        }
    }
    tu_value inside = returned_from_within(g);
    jump_out(g);
    tu_scope(g, "early") {
        if (tu_ok(inside)) continue;
        tu_fill(g, TU_F32, TU_SCALAR, 1);
    }
    tu_value after = tu_name(tu_fill(g, TU_F32, TU_SCALAR, 1), "after");
    assert_true(strncmp(tu_value_name(inside), "outer/inner/", 12) == 0);
    assert_string_equal(tu_value_name(after), "after");
    assert_null(tu_value_device(after));
    tu_graph_free(g);
}

static void a_device_and_a_recomputation_end_with_break(void **unused) {
    (void)unused;
    tu_graph *g = fresh(), *plain = fresh();
    tu_with_device(g, "cpu:0.1") break;
    tu_recompute(g) break;
    tu_graph *const graphs[] = {g, plain};
    int64_t nodes[2];
    for (int i = 0; i < 2; i++) { /* nothing is made again for the backward pass */
        tu_value x = tu_variable(graphs[i], "x", TU_F32, TU_SHAPE(2)), dx;
        tu_value h = tu_exp(tu_sin(x));
        assert_null(tu_value_device(h));
        assert_int_equal(tu_gradients(tu_sum(tu_square(h)), 1, &x, &dx), TU_OK);
        tu_graph_totals totals;
        assert_int_equal(tu_graph_total(graphs[i], &totals), TU_OK);
        nodes[i] = totals.nodes;
    }
    assert_int_equal(nodes[0], nodes[1]);
    tu_graph_free(g);
    tu_graph_free(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_of_fetches_needs_its_count_and_a_count_its_list),
        cmocka_unit_test(an_optimizer_without_updates_is_refused),
        cmocka_unit_test(a_probe_of_a_training_graph_says_that_it_updates_nothing),
        cmocka_unit_test(an_assignment_that_is_fetched_is_no_slip),
        cmocka_unit_test(running_statistics_alone_ask_for_no_updates),
        cmocka_unit_test(callers_of_an_older_header_are_not_asked),
        cmocka_unit_test(an_input_fed_twice_is_refused),
        cmocka_unit_test(a_program_without_variables_needs_no_state),
        cmocka_unit_test(draws_without_a_state_are_those_of_a_new_one),
        cmocka_unit_test(a_program_with_variables_names_one_when_it_gets_no_state),
        cmocka_unit_test(a_momentum_of_zero_is_written_as_TU_ZERO),
        cmocka_unit_test(a_momentum_written_as_zero_is_refused),
        cmocka_unit_test(a_momentum_left_out_is_the_default),
        cmocka_unit_test(a_scope_closes_however_its_block_is_left),
        cmocka_unit_test(a_device_and_a_recomputation_end_with_break),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
