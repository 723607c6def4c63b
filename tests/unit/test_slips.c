/* Common mistakes in C programs that use the library fail with a message or are harmless. */
#include "test.h"

#include <math.h>
#include <string.h>

#include <tutti/tutti.h>

static tu_graph *new_graph(void) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    return g;
}

static void assert_message_contains(const char *part) {
    if (!strstr(tu_message(), part)) fail_msg("'%s' is not in: %s", part, tu_message());
}

/* ---- Fetches ---- */

static void fetch_and_fetch_count_must_be_set_together(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value y = tu_neg(tu_input(g, "x", TU_F32, TU_SHAPE(2)));
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &y), TU_INVALID);
    assert_message_contains(".fetch is set, but .fetch_count is 0");
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch_count = 3), TU_INVALID);
    assert_message_contains(".fetch_count is 3, but .fetch is NULL");
    assert_null(program);
    tu_graph_free(g);
}

/* ---- Updates ---- */

/* Builds an SGD step of the mean square of x w + b, with the trainable variables w and b. */
static tu_value training_step(tu_graph *g) {
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2));
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(2), .init = {TU_INIT_CONSTANT, .a = 1});
    tu_value b = tu_variable(g, "b", TU_F32, TU_SHAPE(2));
    tu_value loss = tu_mean(tu_square(tu_add(tu_mul(x, w), b)));
    assert_int_equal(tu_add_sgd(loss, 0.1, 0), TU_OK);
    return loss;
}

static void compiling_a_training_graph_without_updates_is_rejected(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value loss = training_step(g);
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &loss, .fetch_count = 1), TU_INVALID);
    assert_message_contains("assigns 2 trainable variables ('w', ...), but is compiled without .updates");
    assert_message_contains(".updates = true to train, or .no_updates = true");
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &loss, .fetch_count = 1,
                                .updates = true, .no_updates = true),
                     TU_INVALID);
    assert_message_contains(".updates and .no_updates are both true");
    tu_graph_free(g);
}

static void no_updates_compiles_a_training_graph_without_its_updates(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
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

static void a_fetched_assignment_needs_no_updates_option(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(2)), next = tu_assign(w, tu_shift(w, 1));
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &next, .fetch_count = 1), TU_OK);
    tu_program_free(program);
    tu_graph_free(g);
}

static void running_statistics_need_no_updates_option(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value y = tu_batch_norm(tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 3)));
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &y, .fetch_count = 1), TU_OK);
    tu_program_free(program);
    tu_graph_free(g);
}

/* Programs compiled with a header without .no_updates still work. */
static void options_of_an_older_header_need_no_updates_option(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
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

static void an_input_fed_twice_is_rejected(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2)), y = tu_input(g, "y", TU_F32, TU_SHAPE(2)),
             sum = tu_add(x, y);
    tu_program *program;
    float data[2] = {1, 2}, out[2] = {7, 7};
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &sum, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_run(program, NULL, 3, (tu_feed[]){{x, data}, {y, data}, {x, data}}, (void *[]){out}),
                     TU_INVALID);
    assert_message_contains("feeds 0 and 2 are both for input 'x'");
    const tu_feed_many feeds[] = {
        {.input = x, .data = data}, {.input = y, .data = data}, {.input = y, .data = data}};
    assert_int_equal(tu_run_many(program, NULL, 1, 3, feeds, (void *[]){out}), TU_INVALID);
    assert_message_contains("feeds 1 and 2 are both for input 'y'");
    assert_true(out[0] == 7);
    tu_program_free(program);
    tu_graph_free(g);
}

/* ---- States ---- */

static void a_program_without_variables_needs_no_state(void **unused) {
    (void)unused;
    const char *const devices[] = {"ref", "cpu:0"};
    for (size_t d = 0; d < 2; d++) {
        tu_graph *g = new_graph();
        tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2)), y = tu_neg(x);
        tu_variable(g, "aside", TU_F32, TU_SHAPE(2)); /* not used by the program */
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
        assert_int_equal(tu_state_new(g, &state), TU_OK); /* a state may be passed nevertheless */
        assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{x, data}}, (void *[]){out}), TU_OK);
        assert_int_equal(tu_run(program, NULL, 1, (tu_feed[]){{x, data}}, (void *[]){out}), TU_OK);
        assert_true(out[1] == -2);
        tu_program_free(program);
        tu_state_free(state);
        tu_graph_free(g);
    }
}

/* Runs without a state use the random numbers of a new state with seed 0. */
static void random_numbers_without_a_state_are_those_of_a_new_state(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(8, 4)), y = tu_dropout(x, 0.5);
    tu_program *program;
    tu_state *state;
    float data[32], with_state[32], first[32], second[32];
    for (int i = 0; i < 32; i++) data[i] = 1;
    assert_int_equal(
        tu_compile(g, &program, .devices = "ref", .fetch = &y, .fetch_count = 1, .updates = true), TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{x, data}}, (void *[]){with_state}), TU_OK);
    assert_int_equal(tu_run(program, NULL, 1, (tu_feed[]){{x, data}}, (void *[]){first}), TU_OK);
    assert_int_equal(tu_run(program, NULL, 1, (tu_feed[]){{x, data}}, (void *[]){second}), TU_OK);
    assert_memory_equal(first, with_state, sizeof with_state);
    assert_memory_equal(first, second, sizeof with_state);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

static void a_program_with_variables_needs_a_state(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value w = tu_variable(g, "layer/w", TU_F32, TU_SHAPE(2)), y = tu_neg(w);
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_run(program, NULL, 0, NULL, NULL), TU_INVALID);
    assert_message_contains("the state is NULL, but the program uses variable 'layer/w'");
    assert_int_equal(tu_run(NULL, NULL, 0, NULL, NULL), TU_INVALID);
    tu_program_free(program);
    tu_graph_free(g);
}

/* ---- Batch normalisation ---- */

static void a_momentum_of_zero_is_written_as_TU_ZERO(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
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
    assert_true(mean == 4); /* the mean of the batch only */
    tu_program_free(step);
    tu_state_free(state);
    tu_graph_free(g);
}

#define NORM(...) tu_batch_norm(tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 3)), __VA_ARGS__)

static void a_momentum_written_as_zero_is_rejected(void **unused) {
    (void)unused;
    double momentum = 0;
    for (int i = 0; i < 2; i++) {
        tu_graph *g = new_graph();
        tu_value y = i ? NORM(.momentum = momentum) : NORM(.epsilon = 1e-3, .momentum = 0, .name = "bn");
        assert_false(tu_ok(y));
        assert_int_equal(tu_graph_status(g), TU_INVALID);
        assert_message_contains("expected .momentum other than 0, because 0 means the default of 0.9");
        assert_message_contains("TU_ZERO");
        tu_graph_free(g);
    }
}

static void an_omitted_momentum_is_the_default(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    assert_true(tu_ok(NORM(.epsilon = 1e-3, .name = "first")));
    assert_true(tu_ok(tu_batch_norm(
        tu_find(g, "x"), .name = "a.momentum"))); /* ".momentum" inside a string is not the field */
    assert_true(tu_ok(tu_batch_norm_with(
        tu_find(g, "x"), &(tu_batch_norm_options){.struct_size = sizeof(tu_batch_norm_options),
                                                  .momentum = 0}))); /* in a structure, 0 means the default */
    tu_graph_free(g);
}

/* ---- Blocks ---- */

static tu_value return_from_scope(tu_graph *g) {
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

static void scopes_close_on_break_return_goto_and_continue(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    for (int i = 0; i < 2; i++) {
        tu_scope(g, "left") {
            if (i == 0) break;
            tu_fill(g, TU_F32, TU_SCALAR, 1);
        }
    }
    tu_value inside = return_from_scope(g);
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

static void device_and_recompute_blocks_close_on_break(void **unused) {
    (void)unused;
    tu_graph *g = new_graph(), *plain = new_graph();
    tu_with_device(g, "cpu:0.1") break;
    tu_recompute(g) break;
    tu_graph *const graphs[] = {g, plain};
    int64_t nodes[2];
    for (int i = 0; i < 2; i++) { /* no node is recomputed in the backward pass */
        tu_value x = tu_variable(graphs[i], "x", TU_F32, TU_SHAPE(2)), dx;
        tu_value h = tu_exp(tu_sin(x));
        assert_null(tu_value_device(h));
        assert_int_equal(tu_gradients(tu_sum(tu_square(h)), 1, &x, &dx), TU_OK);
        tu_graph_totals totals = TU_SIZED(tu_graph_totals);
        assert_int_equal(tu_graph_total(graphs[i], &totals), TU_OK);
        nodes[i] = totals.nodes;
    }
    assert_int_equal(nodes[0], nodes[1]);
    tu_graph_free(g);
    tu_graph_free(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fetch_and_fetch_count_must_be_set_together),
        cmocka_unit_test(compiling_a_training_graph_without_updates_is_rejected),
        cmocka_unit_test(no_updates_compiles_a_training_graph_without_its_updates),
        cmocka_unit_test(a_fetched_assignment_needs_no_updates_option),
        cmocka_unit_test(running_statistics_need_no_updates_option),
        cmocka_unit_test(options_of_an_older_header_need_no_updates_option),
        cmocka_unit_test(an_input_fed_twice_is_rejected),
        cmocka_unit_test(a_program_without_variables_needs_no_state),
        cmocka_unit_test(random_numbers_without_a_state_are_those_of_a_new_state),
        cmocka_unit_test(a_program_with_variables_needs_a_state),
        cmocka_unit_test(a_momentum_of_zero_is_written_as_TU_ZERO),
        cmocka_unit_test(a_momentum_written_as_zero_is_rejected),
        cmocka_unit_test(an_omitted_momentum_is_the_default),
        cmocka_unit_test(scopes_close_on_break_return_goto_and_continue),
        cmocka_unit_test(device_and_recompute_blocks_close_on_break),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
