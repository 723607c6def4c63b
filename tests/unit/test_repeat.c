/* Statements about many steps in one call: the same bits as step by step, whoever takes the steps and wherever the data
 * lie; what cannot be is refused; a failure says which steps took effect. */
#include "far_device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "state_checks.h"

/* ---- A network in training, and data for its steps ---- */

enum { BATCH = 2, STEPS = 4, ROWS = 7 };

typedef struct trainer {
    tu_graph *graph;
    tu_model_graph model;
    tu_program *step;
    tu_state *state;
    size_t pixels; /* of an image */
    float *images; /* ROWS of them */
    tu_table *table;
} trainer;

static const int64_t rows[STEPS * BATCH] = {3, 0, 6, 6, 1, 2, 5, 4};
static const int32_t labels[STEPS * BATCH] = {0, 1, 2, 3, 4, 5, 6, 7};

static bool far_takes_one_step; /* the device of the next trainer has no `repeat` */

static void begin_with(trainer *t, const char *name, const char *devices, uint64_t memory_limit) {
    memset(t, 0, sizeof *t);
    plug_in_far();
    if (far_takes_one_step) far_api.repeat = NULL;
    far_takes_one_step = false;
    assert_int_equal(tu_graph_new(&t->graph), TU_OK);
    assert_int_equal(tu_model_build(t->graph, name, &t->model, .batch = BATCH), TU_OK);
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

static void begin(trainer *t, const char *name, const char *devices) {
    begin_with(t, name, devices, 0);
}

static void end(trainer *t) {
    tu_table_free(t->table);
    test_free(t->images);
    tu_program_free(t->step);
    tu_state_free(t->state);
    tu_graph_free(t->graph);
}

/* The images of all steps one after another, for a test to free. */
static float *batches(const trainer *t) {
    float *all = test_malloc(STEPS * BATCH * t->pixels * sizeof(float));
    for (size_t i = 0; i < STEPS * BATCH; i++)
        memcpy(all + i * t->pixels, t->images + (size_t)rows[i] * t->pixels, t->pixels * sizeof(float));
    return all;
}

/* Steps first … first+count-1 of STEPS, from the table; losses for all STEPS. */
static tu_status take_from_table(trainer *t, size_t first, size_t count, float *losses) {
    tu_feed_many feeds[] = {{.input = t->model.images, .table = t->table, .rows = rows + first * BATCH},
                            {.input = t->model.labels, .data = labels + first * BATCH}};
    return tu_run_many(t->step, t->state, count, 2, feeds, (void *[]){losses + first});
}

/* The same, one tu_run after another. */
static void take_by_hand(trainer *t, float *losses) {
    float *all = batches(t);
    for (size_t s = 0; s < STEPS; s++) {
        tu_feed feeds[] = {{t->model.images, all + s * BATCH * t->pixels},
                           {t->model.labels, labels + s * BATCH}};
        if (tu_run(t->step, t->state, 2, feeds, (void *[]){&losses[s]}) != TU_OK)
            fail_msg("%s", tu_message());
    }
    test_free(all);
}

/* ---- The same bits ---- */

typedef struct setting {
    const char *model, *by_hand, *many; /* devices */
} setting;

static const setting settings[] = {
    {"mlp", "cpu", "cpu"},          {"mlp", "cpu:0/2", "cpu:0/2"},     {"mlp", "ref", "ref"},
    {"mlp", "cpu", "far"},          {"mlp", "cpu:0.0/2", "far:0.0/2"}, {"mlp", "null", "null"},
    {"tutorial-cnn", "cpu", "cpu"}, {"tutorial-cnn", "cpu", "far"},    {"mlp", "cpu", "far,null"}};

static void many_steps_give_the_bits_of_one_after_another(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        trainer one, many;
        float expected[STEPS], got[STEPS];
        begin(&one, settings[i].model, settings[i].by_hand);
        begin(&many, settings[i].model, settings[i].many);
        take_by_hand(&one, expected);
        if (take_from_table(&many, 0, STEPS, got) != TU_OK) fail_msg("%s", tu_message());
        assert_memory_equal(expected, got, sizeof expected);
        assert_same_state(one.state, many.state);
        end(&one);
        end(&many);
    }
}

static void batches_in_a_row_are_as_good_as_a_table(void **unused) {
    (void)unused;
    static const char *const devices[] = {"cpu", "far"};
    for (int i = 0; i < 2; i++) {
        trainer a, b;
        float expected[STEPS], got[STEPS];
        begin(&a, "mlp", devices[i]);
        begin(&b, "mlp", devices[i]);
        assert_int_equal(take_from_table(&a, 0, STEPS, expected), TU_OK);
        float *all = batches(&b);
        tu_feed_many feeds[] = {{.input = b.model.images, .data = all},
                                {.input = b.model.labels, .data = labels}};
        assert_int_equal(tu_run_many(b.step, b.state, STEPS, 2, feeds, (void *[]){got}), TU_OK);
        assert_memory_equal(expected, got, sizeof expected);
        assert_same_state(a.state, b.state);
        test_free(all);
        end(&a);
        end(&b);
    }
}

static void one_batch_can_serve_all_steps(void **unused) {
    (void)unused;
    static const char *const devices[] = {"cpu", "far"};
    for (int i = 0; i < 2; i++) {
        trainer a, b, c;
        float expected[STEPS], got[STEPS], from_rows[STEPS];
        begin(&a, "mlp", devices[i]);
        begin(&b, "mlp", devices[i]);
        begin(&c, "mlp", devices[i]);
        tu_feed feeds[] = {{a.model.images, a.images}, {a.model.labels, labels}};
        for (int s = 0; s < STEPS; s++)
            assert_int_equal(tu_run(a.step, a.state, 2, feeds, (void *[]){&expected[s]}), TU_OK);
        tu_feed_many same[] = {{.input = b.model.images, .data = b.images, .same = true},
                               {.input = b.model.labels, .data = labels, .same = true}};
        assert_int_equal(tu_run_many(b.step, b.state, STEPS, 2, same, (void *[]){got}), TU_OK);
        assert_memory_equal(expected, got, sizeof expected);
        assert_same_state(a.state, b.state);
        static const int64_t first[BATCH] = {0, 1};
        tu_feed_many same_rows[] = {{.input = c.model.images, .table = c.table, .rows = first, .same = true},
                                    {.input = c.model.labels, .data = labels, .same = true}};
        assert_int_equal(tu_run_many(c.step, c.state, STEPS, 2, same_rows, (void *[]){from_rows}), TU_OK);
        assert_memory_equal(expected, from_rows, sizeof expected);
        end(&a);
        end(&b);
        end(&c);
    }
}

/* Noise drawn by sample: the ordinals that nobody fed go on from step to step, and stand still where nothing is updated. */
static void ordinals_are_made_for_every_step(void **unused) {
    (void)unused;
    static const char *const devices[] = {"ref", "far"};
    for (int updates = 0; updates < 2; updates++)
        for (int i = 0; i < 2; i++) {
            tu_graph *g;
            tu_program *program;
            tu_state *state;
            plug_in_far();
            assert_int_equal(tu_graph_new(&g), TU_OK);
            tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(3, 2)), y = tu_dropout(x, 0.5);
            tu_value count = tu_variable(g, "count", TU_F32, TU_SCALAR);
            tu_assign(count, tu_add(count, tu_fill(g, TU_F32, TU_SCALAR, 1)));
            if (tu_compile(g, &program, .devices = devices[i], .fetch = &y, .fetch_count = 1,
                           .updates = updates) != TU_OK)
                fail_msg("%s", tu_message());
            static const float ones[6] = {1, 1, 1, 1, 1, 1};
            float expected[5][6], got[5][6];
            assert_int_equal(tu_state_new(g, &state, .seed = 3), TU_OK);
            for (int s = 0; s < 5; s++)
                assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{x, ones}}, (void *[]){expected[s]}),
                                 TU_OK);
            tu_state_free(state);
            assert_int_equal(tu_state_new(g, &state, .seed = 3), TU_OK);
            tu_feed_many feed = {.input = x, .data = ones, .same = true};
            assert_int_equal(tu_run_many(program, state, 5, 1, &feed, (void *[]){got}), TU_OK);
            assert_memory_equal(expected, got, sizeof expected);
            assert_int_equal(tu_state_sample(state), updates ? 15 : 0);
            assert_int_equal(memcmp(got[0], got[1], sizeof got[0]) == 0, !updates);
            tu_program_free(program);
            tu_state_free(state);
            tu_graph_free(g);
        }
}

/* ---- Who takes the steps ---- */

static void a_device_that_can_takes_all_steps_in_one_call(void **unused) {
    (void)unused;
    trainer t;
    float losses[STEPS];
    tu_many_report report;
    begin(&t, "mlp", "far");
    assert_int_equal(tu_program_many(t.step, &report), TU_OK);
    assert_true(report.at_once && !report.notice);
    assert_int_equal(take_from_table(&t, 0, STEPS, losses), TU_OK);
    assert_int_equal(far.calls, 1);
    assert_int_equal(far.launches, 0);
    assert_int_equal(far.rows_read, STEPS * BATCH);
    assert_int_equal(tu_program_many(t.step, &report), TU_OK);
    assert_int_equal(report.table_bytes, ROWS * t.pixels * sizeof(float));
    assert_int_equal(report.gathered_bytes, 0);
    end(&t);
    assert_int_equal(far.held, 0);
}

static void a_program_of_one_device_is_launched_in_one_piece(void **unused) {
    (void)unused;
    trainer t;
    float losses[STEPS];
    begin(&t, "mlp", "far");
    take_by_hand(&t, losses);
    assert_int_equal(far.launches, STEPS);
    end(&t);
}

static void who_takes_one_step_at_a_time_says_why(void **unused) {
    (void)unused;
    trainer t;
    tu_many_report report;
    begin(&t, "mlp", "cpu");
    assert_int_equal(tu_program_many(t.step, &report), TU_OK);
    assert_false(report.at_once);
    assert_string_equal(report.notice, "device 'cpu:0' takes one step at a time");
    end(&t);
}

static void a_device_that_meets_itself_says_so_too(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    tu_many_report report;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value y = tu_sum(tu_tanh(tu_batch_input(g, "x", TU_F32, TU_SHAPE(4))));
    assert_int_equal(tu_compile(g, &program, .devices = "cpu", .invariant = 2, .fetch = &y, .fetch_count = 1),
                     TU_OK);
    assert_int_equal(tu_program_many(program, &report), TU_OK);
    assert_string_equal(report.notice, "device 'cpu:0' takes one step at a time");
    tu_program_free(program);
    tu_graph_free(g);
}

enum { MOST_MOVES = 256 };
static struct {
    uint32_t count;
    tu_joint_move list[MOST_MOVES];
} noted;

static tu_status note_moves(uint32_t part_count, const tu_joint_part *parts, uint32_t move_count,
                            const tu_joint_move *moves, uint32_t steps) {
    (void)part_count, (void)parts, (void)steps;
    assert_true(move_count <= MOST_MOVES);
    memcpy(noted.list, moves, move_count * sizeof *moves);
    noted.count = move_count;
    return TU_OK;
}

static tu_status add_nothing(tu_device_instance *device, const tu_combination *what) {
    (void)device, (void)what;
    return TU_OK;
}

/* Replicas have as many launches each in front of a meeting: what one of them could compute meanwhile stands behind it. */
static void nothing_is_put_in_front_of_a_meeting_that_need_not_be(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    uint32_t meetings = 0, launches[2] = {0};
    plug_in_far();
    far_api.combine = add_nothing;
    far_api.repeat_joint = note_moves;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 8));
    x = tu_dense(x, .units = 1100,
                 .act = TU_TANH); /* of the next one's weights the gradient fills a bucket */
    tu_value loss = tu_mean(tu_dense(x, .units = 1100, .name = "second"));
    assert_int_equal(tu_add_sgd(loss, 0.1, 0.9), TU_OK);
    assert_int_equal(tu_compile(g, &program, .devices = "far:0/2", .strategy = "mirrored", .updates = true,
                                .fetch = &loss, .fetch_count = 1, .plan_only = true),
                     TU_OK);
    for (uint32_t i = 0; i < noted.count; i++) {
        const tu_joint_move *m = &noted.list[i];
        if (m->kind == TU_JOINT_LAUNCH) launches[m->part]++;
        if (m->kind != TU_JOINT_MEET) continue;
        assert_int_equal(launches[0], launches[1]);
        meetings++;
    }
    assert_true(meetings > 1);
    tu_program_free(program);
    tu_graph_free(g);
    far_api.combine = NULL;
}

/* y = exp(tanh(x)), the second half where `second` says. */
static void expect_at_once(const char *second, bool at_once, const char *notice) {
    tu_graph *g;
    tu_program *program;
    tu_many_report report;
    plug_in_far();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), y = x;
    tu_with_device(g, "far:0") y = tu_tanh(x);
    tu_with_device(g, second) y = tu_exp(y);
    assert_int_equal(tu_compile(g, &program, .devices = "far,cpu", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_program_many(program, &report), TU_OK);
    assert_int_equal(report.at_once, at_once);
    if (notice) assert_string_equal(report.notice, notice);
    tu_program_free(program);
    tu_graph_free(g);
}

static void a_device_with_nothing_to_do_is_not_in_the_way(void **unused) {
    (void)unused;
    expect_at_once("far:0", true, NULL);
    expect_at_once("cpu:0", false, "the program has 2 devices, which meet in every step");
}

/* ---- Several devices together ---- */

enum { TOGETHER = 7 };

typedef struct
    couple { /* a network whose halves are on two far devices, and variables that one reads of the other */
    tu_graph *graph;
    tu_program *program;
    tu_state *state;
    tu_value x, fetches[2];
} couple;

static void begin_couple(couple *c) {
    assert_int_equal(tu_graph_new(&c->graph), TU_OK);
    tu_value y = {0}, rate = {0};
    tu_with_device(c->graph, "far:0.0") {
        c->x = tu_input(c->graph, "x", TU_F32, TU_SHAPE(3, 4));
        rate = tu_variable(c->graph, "rate", TU_F64, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 0.1},
                           .frozen = true);
        tu_assign(rate, tu_scale(rate, 0.9));
        y = tu_dense(c->x, .units = 5, .act = TU_TANH, .name = "first");
    }
    tu_with_device(c->graph, "far:0.1") y = tu_mean(tu_square(tu_dense(y, .units = 2, .name = "second")));
    c->fetches[0] = y;
    c->fetches[1] = rate;
    if (tu_add_optimizer(y, NULL, .name = "momentum", .momentum = 0.9, .rate = rate) != TU_OK)
        fail_msg("%s", tu_message());
    if (tu_compile(c->graph, &c->program, .devices = "far:0/2", .threads = 1, .fetch = c->fetches,
                   .fetch_count = 2, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(c->graph, &c->state, .seed = 9), TU_OK);
}

static void end_couple(couple *c) {
    tu_program_free(c->program);
    tu_state_free(c->state);
    tu_graph_free(c->graph);
}

typedef struct couple_results {
    float loss[TOGETHER];
    double rate[TOGETHER];
} couple_results;

static const float couple_data[TOGETHER][12] = {{1, 2, 3}, {-1}, {0.5f}, {0, 0, 4}, {3}, {2, -2}, {7}};

static void run_couple(const couple *c, bool one_by_one, couple_results *r) {
    memset(r, 0, sizeof *r);
    if (!one_by_one) {
        tu_feed_many feed = {.input = c->x, .data = couple_data};
        if (tu_run_many(c->program, c->state, TOGETHER, 1, &feed, (void *[]){r->loss, r->rate}) != TU_OK)
            fail_msg("%s", tu_message());
        return;
    }
    for (int s = 0; s < TOGETHER; s++)
        assert_int_equal(tu_run(c->program, c->state, 1, (tu_feed[]){{c->x, couple_data[s]}},
                                (void *[]){&r->loss[s], &r->rate[s]}),
                         TU_OK);
}

static void expect_couple(const char *refusal, const char *notice) {
    couple one, many;
    couple_results expected, got;
    tu_many_report report;
    plug_in_far();
    far.refuses_to_join = refusal;
    begin_couple(&one);
    begin_couple(&many);
    assert_int_equal(tu_program_many(many.program, &report), TU_OK);
    assert_int_equal(report.at_once, !refusal);
    if (notice) assert_string_equal(report.notice, notice);
    run_couple(&one, true, &expected);
    int launches = far.launches;
    run_couple(&many, false, &got);
    assert_int_equal(far.calls, refusal ? 0 : 1);
    assert_int_equal(far.launches == launches, !refusal);
    assert_memory_equal(&expected, &got, sizeof got);
    assert_same_state(one.state, many.state);
    end_couple(&one);
    end_couple(&many);
    assert_int_equal(far.held, 0);
}

static void devices_that_can_be_joined_take_all_steps_together(void **unused) {
    (void)unused;
    expect_couple(NULL, NULL);
}

static void devices_that_refuse_to_be_joined_say_why(void **unused) {
    (void)unused;
    expect_couple("one of them is asleep",
                  "the program's devices take one step at a time: one of them is asleep");
}

static void a_failure_together_says_which_steps_may_have_taken_effect(void **unused) {
    (void)unused;
    couple c;
    plug_in_far();
    far.fails_in_call = 1;
    begin_couple(&c);
    tu_feed_many feed = {.input = c.x, .data = couple_data};
    assert_int_equal(tu_run_many(c.program, c.state, TOGETHER, 1, &feed, NULL), TU_INTERNAL);
    assert_string_equal(tu_message(),
                        "steps 1 to 7 of 7, which all devices took at once, failed; the 0 before them took "
                        "effect, of these some may have: the far devices have gone away");
    end_couple(&c);
}

/* Two variables exchange their values: neither can be written before the other was read. */
static void an_update_out_of_place_keeps_to_one_step_at_a_time(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    tu_many_report report;
    plug_in_far();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value a = tu_variable(g, "a", TU_F32, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 1});
    tu_value b = tu_variable(g, "b", TU_F32, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 2});
    tu_assign(a, b);
    tu_assign(b, a);
    assert_int_equal(tu_compile(g, &program, .devices = "far", .updates = true), TU_OK);
    assert_int_equal(tu_program_many(program, &report), TU_OK);
    assert_false(report.at_once);
    assert_non_null(strstr(report.notice, "is not updated in its own memory"));
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    assert_int_equal(tu_run_many(program, state, 3, 0, NULL, NULL), TU_OK);
    float value;
    assert_int_equal(tu_state_get(state, "a", &value, sizeof value), TU_OK);
    assert_true(value == 2);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

static void later_calls_allocate_nothing(void **unused) {
    (void)unused;
    static const char *const devices[] = {"cpu", "far"};
    for (int i = 0; i < 2; i++) {
        trainer t;
        float losses[STEPS];
        begin(&t, "mlp", devices[i]);
        assert_int_equal(take_from_table(&t, 0, STEPS, losses), TU_OK);
        uint64_t before = tu__alloc_count();
        assert_int_equal(take_from_table(&t, 0, STEPS, losses), TU_OK);
        assert_int_equal(tu__alloc_count(), before);
        end(&t);
    }
}

/* A processor copies rows into its inputs with its own threads; its parts, and devices elsewhere, get them from a block. */
static void rows_go_straight_into_the_inputs_of_a_whole_processor(void **unused) {
    (void)unused;
    static const struct {
        const char *devices;
        bool straight;
    } cases[] = {{"cpu", true}, {"ref", true}, {"cpu:0/2", false}, {"cpu:0.0/2", false}, {"far", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trainer t;
        float losses[STEPS];
        tu_many_report report;
        begin(&t, "mlp", cases[i].devices);
        if (take_from_table(&t, 0, STEPS, losses) != TU_OK) fail_msg("%s", tu_message());
        assert_int_equal(tu_program_many(t.step, &report), TU_OK);
        assert_int_equal(report.straight, cases[i].straight);
        if (cases[i].straight) {
            assert_int_equal(report.table_bytes, 0);
            assert_int_equal(report.gathered_bytes, STEPS * BATCH * t.pixels * sizeof(float));
        }
        end(&t);
    }
}

/* ---- Tables that do not fit ---- */

/* Trains from a table on a far device and expects it to have stayed on the host, with the same results. */
static void expect_streaming(trainer *t) {
    trainer one;
    float expected[STEPS], got[STEPS];
    tu_many_report report;
    if (take_from_table(t, 0, 1, got) != TU_OK) fail_msg("%s", tu_message());
    far.has_no_room = false;
    if (take_from_table(t, 1, STEPS - 1, got) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(far.rows_read, 0);
    assert_int_equal(tu_program_many(t->step, &report), TU_OK);
    assert_true(report.at_once);
    assert_int_equal(report.table_bytes, 0);
    assert_int_equal(report.gathered_bytes, (STEPS - 1) * BATCH * t->pixels * sizeof(float));
    assert_non_null(report.notice);
    if (!strstr(report.notice, "does not fit into device 'far:0'")) fail_msg("%s", report.notice);
    begin(&one, "mlp", "cpu");
    take_by_hand(&one, expected);
    assert_memory_equal(expected, got, sizeof expected);
    assert_same_state(one.state, t->state);
    end(&one);
}

static void a_table_beyond_the_limit_stays_on_the_host(void **unused) {
    (void)unused;
    trainer t;
    tu_memory_report memory;
    begin(&t, "mlp", "far");
    assert_int_equal(tu_program_memory(t.step, 0, &memory), TU_OK);
    uint64_t need = memory.scratch_bytes + memory.constant_bytes + memory.variable_bytes;
    size_t bytes = ROWS * t.pixels * sizeof(float);
    end(&t);
    begin_with(&t, "mlp", "far", need + bytes - 1);
    expect_streaming(&t);
    end(&t);
    begin_with(&t, "mlp", "far", need + bytes);
    float losses[STEPS];
    assert_int_equal(take_from_table(&t, 0, STEPS, losses), TU_OK);
    assert_int_equal(far.rows_read, STEPS * BATCH);
    end(&t);
}

static void a_table_takes_at_most_half_of_what_the_program_leaves(void **unused) {
    (void)unused;
    trainer t;
    tu_memory_report memory;
    begin(&t, "mlp", "far");
    assert_int_equal(tu_program_memory(t.step, 0, &memory), TU_OK);
    far.memory = memory.scratch_bytes + memory.constant_bytes + memory.variable_bytes +
                 2 * ROWS * t.pixels * sizeof(float) - 2;
    expect_streaming(&t);
    end(&t);
}

static void a_table_that_the_device_has_no_room_for_is_not_tried_again(void **unused) {
    (void)unused;
    trainer t;
    begin(&t, "mlp", "far");
    float *all = batches(&t);
    tu_feed feeds[] = {{t.model.images, all}, {t.model.labels, labels}};
    float loss;
    tu_state *other;
    assert_int_equal(tu_state_new(t.graph, &other, .seed = 6), TU_OK);
    assert_int_equal(tu_run(t.step, t.state, 2, feeds, (void *[]){&loss}), TU_OK); /* memory is taken now */
    const char *name;
    tu_type type;
    for (size_t i = 0; i < tu_state_count(other); i++) { /* and the step taken back */
        assert_int_equal(tu_state_variable(other, i, &name, &type), TU_OK);
        void *value = test_malloc(tu_type_bytes(type));
        assert_int_equal(tu_state_get(other, name, value, tu_type_bytes(type)), TU_OK);
        assert_int_equal(tu_state_set(t.state, name, value, tu_type_bytes(type)), TU_OK);
        test_free(value);
    }
    tu_state_set_sample(t.state, tu_state_sample(other));
    far.has_no_room = true;
    expect_streaming(&t);
    tu_state_free(other);
    test_free(all);
    end(&t);
}

/* Rows of 16 MiB that must be gathered: six steps are taken four and two at a time. */
static void rows_are_gathered_for_as_many_steps_as_there_is_room_for(void **unused) {
    (void)unused;
    enum { WIDTH = 4 << 20 };
    static const int64_t order[6] = {0, 1, 1, 0, 1, 0};
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    tu_table *table;
    tu_memory_report memory;
    plug_in_far();
    float *data = test_malloc(2 * (size_t)WIDTH * sizeof *data), got[6];
    for (size_t i = 0; i < 2 * (size_t)WIDTH; i++) data[i] = i < WIDTH ? 1 : 2;
    assert_int_equal(tu_table_new(data, WIDTH * sizeof *data, 2, &table), TU_OK);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(WIDTH)), y = tu_max(x);
    assert_int_equal(tu_compile(g, &program, .devices = "far", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    assert_int_equal(tu_program_memory(program, 0, &memory), TU_OK);
    far.memory = memory.scratch_bytes + memory.constant_bytes + 1;
    tu_feed_many feed = {.input = x, .table = table, .rows = order};
    if (tu_run_many(program, state, 6, 1, &feed, (void *[]){got}) != TU_OK) fail_msg("%s", tu_message());
    for (int i = 0; i < 6; i++) assert_true(got[i] == (float)(order[i] + 1));
    assert_int_equal(far.calls, 2);
    assert_int_equal(far.longest_call, 4);
    far.fails_in_call = 4;
    assert_int_equal(tu_run_many(program, state, 6, 1, &feed, (void *[]){got}), TU_INTERNAL);
    assert_non_null(strstr(tu_message(), "steps 5 to 6 of 6"));
    assert_non_null(strstr(tu_message(), "the 4 before them took effect"));
    tu_table_free(table);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    test_free(data);
}

/* ---- What cannot be ---- */

static void expect_refusal(trainer *t, tu_feed_many images, const char *words) {
    tu_feed_many feeds[] = {images, {.input = t->model.labels, .data = labels}};
    float losses[STEPS];
    assert_int_equal(tu_run_many(t->step, t->state, STEPS, 2, feeds, (void *[]){losses}), TU_INVALID);
    if (!strstr(tu_message(), words)) fail_msg("'%s' is not in: %s", words, tu_message());
}

static void what_cannot_be_fed_is_refused(void **unused) {
    (void)unused;
    static const char *const devices[] = {"cpu", "far"};
    for (int i = 0; i < 2; i++) {
        trainer t;
        begin(&t, "mlp", devices[i]);
        tu_value x = t.model.images;
        int64_t wrong[STEPS * BATCH] = {0};
        wrong[5] = ROWS;
        expect_refusal(&t, (tu_feed_many){.input = x, .table = t.table, .rows = wrong},
                       "asks for row 7 (number 5 of its list): the table's rows are 0 to 6");
        wrong[5] = -1;
        expect_refusal(&t, (tu_feed_many){.input = x, .table = t.table, .rows = wrong}, "asks for row -1");
        expect_refusal(&t, (tu_feed_many){.input = x, .table = t.table}, "no numbers of rows");
        expect_refusal(&t, (tu_feed_many){.input = x}, "neither data nor a table");
        expect_refusal(&t, (tu_feed_many){.input = x, .data = t.images, .table = t.table, .rows = rows},
                       "both data and a table");
        expect_refusal(&t, (tu_feed_many){.input = t.model.loss, .data = t.images}, "only inputs are fed");
        expect_refusal(&t, (tu_feed_many){.input = t.model.labels, .data = labels}, "was not fed");
        tu_table *odd;
        assert_int_equal(tu_table_new(t.images, 1000, 3, &odd), TU_OK);
        expect_refusal(&t, (tu_feed_many){.input = x, .table = odd, .rows = rows}, "no whole rows");
        tu_table_free(odd);
        end(&t);
    }
}

static void impossible_tables_are_refused(void **unused) {
    (void)unused;
    tu_table *table;
    assert_int_equal(tu_table_new(NULL, 4, 4, &table), TU_INVALID);
    assert_int_equal(tu_table_new("abcd", 0, 4, &table), TU_INVALID);
    assert_int_equal(tu_table_new("abcd", 4, 0, &table), TU_INVALID);
    assert_int_equal(tu_table_new("abcd", SIZE_MAX / 2, 4, &table), TU_INVALID);
    assert_null(table);
    tu_table_free(NULL);
}

/* ---- Failing ---- */

static void a_failing_step_leaves_those_before_it(void **unused) {
    (void)unused;
    trainer one, t;
    float expected[STEPS], losses[STEPS];
    begin(&one, "mlp", "cpu");
    take_by_hand(&one, expected);
    end(&one);
    far_takes_one_step = true;
    begin(&t, "mlp", "far");
    far.fails_in_launch = 2 + 1;
    assert_int_equal(take_from_table(&t, 0, STEPS, losses), TU_DEVICE);
    assert_non_null(strstr(tu_message(), "step 3 of 4 failed, the 2 before it took effect: "));
    assert_non_null(strstr(tu_message(), "device 'far:0' failed at its "));
    assert_non_null(strstr(tu_message(), ": the far device has gone away"));
    if (take_from_table(&t, 2, 2, losses) != TU_OK) fail_msg("%s", tu_message());
    assert_memory_equal(expected, losses, sizeof losses);
    end(&t);
}

static void steps_taken_at_once_fail_together(void **unused) {
    (void)unused;
    trainer t;
    float losses[STEPS];
    begin(&t, "mlp", "far");
    far.fails_in_call = 1;
    assert_int_equal(take_from_table(&t, 0, STEPS, losses), TU_INTERNAL);
    assert_string_equal(
        tu_message(), "steps 1 to 4 of 4, which device 'far:0' took at once, failed; the 0 before them took "
                      "effect, of these some may have: the far device has gone away");
    end(&t);
}

static void without_memory_nothing_is_lost(void **unused) {
    (void)unused;
    trainer one, t;
    float expected[STEPS], got[STEPS];
    begin(&one, "mlp", "cpu");
    begin(&t, "mlp", "far");
    take_by_hand(&one, expected);
    int failures = 0;
    tu_status status;
    do {
        tu__alloc_fail_at(1 + (uint64_t)failures);
        status = take_from_table(&t, 0, STEPS, got);
        tu__alloc_fail_at(0);
        assert_true(status == TU_OK || status == TU_NO_MEMORY);
        failures += status != TU_OK;
    } while (status != TU_OK);
    assert_true(failures > 3);
    assert_memory_equal(expected, got, sizeof expected);
    assert_same_state(one.state, t.state);
    end(&one);
    end(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_steps_give_the_bits_of_one_after_another),
        cmocka_unit_test(batches_in_a_row_are_as_good_as_a_table),
        cmocka_unit_test(one_batch_can_serve_all_steps),
        cmocka_unit_test(ordinals_are_made_for_every_step),
        cmocka_unit_test(a_device_that_can_takes_all_steps_in_one_call),
        cmocka_unit_test(a_program_of_one_device_is_launched_in_one_piece),
        cmocka_unit_test(who_takes_one_step_at_a_time_says_why),
        cmocka_unit_test(a_device_that_meets_itself_says_so_too),
        cmocka_unit_test(nothing_is_put_in_front_of_a_meeting_that_need_not_be),
        cmocka_unit_test(a_device_with_nothing_to_do_is_not_in_the_way),
        cmocka_unit_test(an_update_out_of_place_keeps_to_one_step_at_a_time),
        cmocka_unit_test(devices_that_can_be_joined_take_all_steps_together),
        cmocka_unit_test(devices_that_refuse_to_be_joined_say_why),
        cmocka_unit_test(a_failure_together_says_which_steps_may_have_taken_effect),
        cmocka_unit_test(later_calls_allocate_nothing),
        cmocka_unit_test(rows_go_straight_into_the_inputs_of_a_whole_processor),
        cmocka_unit_test(a_table_beyond_the_limit_stays_on_the_host),
        cmocka_unit_test(a_table_takes_at_most_half_of_what_the_program_leaves),
        cmocka_unit_test(a_table_that_the_device_has_no_room_for_is_not_tried_again),
        cmocka_unit_test(rows_are_gathered_for_as_many_steps_as_there_is_room_for),
        cmocka_unit_test(what_cannot_be_fed_is_refused),
        cmocka_unit_test(impossible_tables_are_refused),
        cmocka_unit_test(a_failing_step_leaves_those_before_it),
        cmocka_unit_test(steps_taken_at_once_fail_together),
        cmocka_unit_test(without_memory_nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
