/* Runs that train together in a stack are bit-identical on `ref` to runs alone: members of an ensemble, runs with other rates
 * and dropout, a run that gets the place of another, a stopped and resumed ensemble, batches that cannot be read. */
#include <pthread.h>

#include "train/fresh_run.h"
#include "train/trainer.h"

enum { MEMBERS = 5, EPOCHS = 3, STEPS = EPOCHS * SMALL_STEPS };

#define ON_REF .devices = "ref:0", .threads = 1, .batch = SMALL_BATCH, .base = 8, .epochs = EPOCHS
#define RICH .pad = 1, .flip = 1, .brightness = 0.1, .clip = 1, .label_smoothing = 0.1, .average = 0.9

static tu_train_result member_of(const tu_ensemble_result *ensemble, int64_t index) {
    tu_train_result member = TU_SIZED(tu_train_result);
    assert_int_equal(tu_ensemble_result_member(ensemble, index, &member), TU_OK);
    return member;
}

static void expect_same_members(const tu_ensemble_result *a, const tu_ensemble_result *b) {
    for (int64_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(member_of(a, i).step, STEPS);
        assert_string_equal(member_of(a, i).digest, member_of(b, i).digest);
        assert_true(member_of(a, i).loss == member_of(b, i).loss);
        assert_true(member_of(a, i).test_accuracy == member_of(b, i).test_accuracy);
    }
}

/* ---- Ensembles ---- */

/* With two places, members 2 to 4 get a place that another has left, at other positions in their epochs. */
static void stacked_members_are_identical_to_members_alone(void **state) {
    (void)state;
    tu_ensemble_result alone = TU_SIZED(tu_ensemble_result);
    assert_int_equal(tu_train_ensemble("mlp", NULL, MEMBERS, &alone, .set = set,
                                       .out = in_scratch("alone").text, ON_REF, RICH, .bootstrap = 1),
                     TU_OK);
    static const char *const places[] = {"2", "5", "64"};
    for (int i = 0; i < 3; i++) {
        tu_ensemble_result stacked = TU_SIZED(tu_ensemble_result);
        assert_int_equal(tu_train_ensemble("mlp", NULL, MEMBERS, &stacked, .set = set,
                                           .out = in_scratch(places[i]).text, ON_REF, RICH, .bootstrap = 1,
                                           .stack = places[i]),
                         TU_OK);
        expect_same_members(&stacked, &alone);
        tu_ensemble_result_free(&stacked);
    }
    tu_ensemble_result_free(&alone);
}

static volatile sig_atomic_t ensemble_stop;
static int64_t stop_after; /* total steps of all members */

static void stop_all_there(void *context, const tu_train_report *report) {
    (void)context;
    if (report->event == TU_TRAIN_STEPPED && report->step >= stop_after) ensemble_stop = 1;
}

static void a_resumed_stack_is_bit_identical(void **state) {
    (void)state;
    tu_ensemble_result whole = TU_SIZED(tu_ensemble_result), part = TU_SIZED(tu_ensemble_result);
    assert_int_equal(tu_train_ensemble("mlp", NULL, MEMBERS, &whole, .set = set,
                                       .out = in_scratch("whole").text, ON_REF, RICH),
                     TU_OK);
    for (stop_after = 1; stop_after < MEMBERS * STEPS; stop_after += 11) {
        char name[32];
        snprintf(name, sizeof name, "part-%d", (int)stop_after);
        struct scratch_path folder = in_scratch(name);
        ensemble_stop = 0;
        assert_int_equal(tu_train_ensemble("mlp", NULL, MEMBERS, &part, .set = set, .out = folder.text,
                                           ON_REF, RICH, .stack = "3", .stop = &ensemble_stop,
                                           .on_report = stop_all_there),
                         TU_OK);
        assert_true(part.stopped);
        tu_ensemble_result_free(&part);
        assert_int_equal(tu_train_ensemble(folder.text, NULL, 0, &part, .set = set, .resume = true), TU_OK);
        expect_same_members(&part, &whole);
        tu_ensemble_result_free(&part);
    }
    tu_ensemble_result_free(&whole);
}

/* The chosen number is stored, so that a resume computes the same. */
static void auto_is_replaced_by_a_number(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("auto");
    *notice_log = '\0';
    assert_int_equal(tu_train_ensemble("mlp", NULL, MEMBERS, NULL, .set = set, .out = folder.text, ON_REF,
                                       .stack = "auto", .on_report = keep_notices),
                     TU_OK);
    assert_non_null(strstr(notice_log, "--stack auto: "));
    assert_non_null(strstr(notice_log, "a step per member: 1: "));
    assert_int_equal(count_lines(folder.text, "config.json", "\"stack\":\"auto\""), 0);
}

static void a_member_whose_image_cannot_be_read_stops_alone(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("unreadable");
    tu_ensemble_result result = TU_SIZED(tu_ensemble_result), alone = TU_SIZED(tu_ensemble_result);
    assert_int_equal(
        tu_train_ensemble("mlp", NULL, MEMBERS, &alone, .set = set, .out = in_scratch("alone").text, ON_REF),
        TU_OK);
    small_dataset_unreadable[TU_TRAIN] = image_of_step(3, 2, 0); /* all members read it, in other steps */
    expect_error(tu_train_ensemble("mlp", NULL, MEMBERS, &result, .set = set, .out = folder.text, ON_REF,
                                   .stack = "5"),
                 TU_IO, "cannot be read");
    small_dataset_unreadable[TU_TRAIN] = -1;
    assert_int_equal(tu_train_ensemble(folder.text, NULL, 0, &result, .set = set, .resume = true), TU_OK);
    expect_same_members(&result, &alone);
    tu_ensemble_result_free(&result);
    tu_ensemble_result_free(&alone);
}

static void snapshots_go_on_from_each_other(void **state) {
    (void)state;
    tu_ensemble_result result = TU_SIZED(tu_ensemble_result);
    struct scratch_path folder = in_scratch("snapshots");
    assert_int_equal(tu_train_ensemble("mlp", NULL, 3, &result, .set = set, .out = folder.text, ON_REF,
                                       .rate = 0.1, .snapshots = 1),
                     TU_OK);
    tu_train_result expected = TU_SIZED(tu_train_result);
    char first[600];
    snprintf(first, sizeof first, "%s/members/0", folder.text);
    assert_int_equal(tu_train("mlp", NULL, &expected, .set = set, .out = in_scratch("second").text, ON_REF,
                              .rate = 0.1, .seed = 2, .schedule = "cosine", .init = first),
                     TU_OK);
    assert_string_equal(member_of(&result, 1).digest, expected.digest);
    tu_ensemble_result_free(&result);
}

/* ---- Runs with other settings ---- */

typedef struct stacked_run {
    tu__train_stack *stack;
    tu_train_options options;
    bool first; /* the stack waits for it */
    tu_status join, status;
    tu_train_result result;
    char message[512];
} stacked_run;

static void *train_in_stack(void *context) {
    stacked_run *r = context;
    tu__trainer t;
    r->join = r->status = tu__trainer_begin(&t, "mlp", NULL, &r->options, NULL);
    if (r->join == TU_OK) r->join = tu__train_stack_join(r->stack, &t);
    if (r->join != TU_OK && r->first) tu__train_stack_expect_fewer(r->stack, 1);
    if (r->join != TU_OK) snprintf(r->message, sizeof r->message, "%s", tu_message());
    r->status = r->join == TU_OK ? tu__trainer_run(&t, &r->result) : r->join;
    tu__trainer_end(&t);
    return NULL;
}

static tu_train_options options_of(double rate, double smoothing, int64_t seed, const char *name) {
    static struct scratch_path folders[16];
    static int used;
    struct scratch_path *folder = &folders[used++ % 16];
    *folder = in_scratch(name);
    return (tu_train_options){.struct_size = sizeof(tu_train_options),
                              .set = set,
                              .out = folder->text,
                              ON_REF,
                              .rate = rate,
                              .momentum = 0.5 + rate,
                              .weight_decay = rate / 100,
                              .label_smoothing = smoothing,
                              .seed = seed};
}

static void expect_like_alone(const stacked_run *r, const char *name) {
    tu_train_options o = r->options;
    tu_train_result alone = TU_SIZED(tu_train_result);
    struct scratch_path folder = in_scratch(name);
    o.out = folder.text;
    assert_int_equal(r->status, TU_OK);
    assert_int_equal(tu_train_with("mlp", NULL, &alone, &o), TU_OK);
    assert_string_equal(r->result.digest, alone.digest);
}

static void runs_with_other_rates_share_a_stack(void **state) {
    (void)state;
    tu__train_stack *stack;
    pthread_t threads[3];
    stacked_run runs[4] = {{.options = options_of(0.1, 0.1, 1, "a"), .first = true},
                           {.options = options_of(0.05, 0.2, 2, "b"), .first = true},
                           {.options = options_of(0.2, 0.05, 2, "c"), .first = true},
                           {.options = options_of(0.15, 0.15, 5, "late")}};
    runs[1].options.epochs = 1; /* its place is given to the last run */
    assert_int_equal(tu__train_stack_new(3, 3, &stack), TU_OK);
    for (int i = 0; i < 4; i++) runs[i].stack = stack;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, train_in_stack, &runs[i]), 0);
    pthread_join(threads[1], NULL);
    train_in_stack(&runs[3]);
    pthread_join(threads[0], NULL);
    pthread_join(threads[2], NULL);
    for (int i = 0; i < 4; i++) {
        if (runs[i].status != TU_OK) print_message("run %d: %s\n", i, runs[i].message);
        char name[24];
        snprintf(name, sizeof name, "alone-%d", i);
        expect_like_alone(&runs[i], name);
    }
    tu__train_stack_free(stack);
}

static void runs_that_cannot_be_stacked_are_refused(void **state) {
    (void)state;
    tu__train_stack *stack;
    pthread_t thread;
    stacked_run runs[3] = {{.options = options_of(0.1, 0.1, 1, "kept"), .first = true},
                           {.options = options_of(0.1, 0.1, 1, "accumulates"), .first = true},
                           {.options = options_of(0.1, 0.1, 1, "wider")}};
    runs[1].options.accumulate = 2;
    runs[2].options.base = 9;
    assert_int_equal(tu__train_stack_new(2, 2, &stack), TU_OK);
    for (int i = 0; i < 3; i++) runs[i].stack = stack;
    train_in_stack(&runs[1]);
    assert_int_equal(runs[1].join, TU_UNSUPPORTED);
    assert_non_null(strstr(runs[1].message, "it accumulates gradients"));
    runs[0].options.epochs = 40;
    assert_int_equal(pthread_create(&thread, NULL, train_in_stack, &runs[0]), 0);
    while (!exists(runs[0].options.out, "checkpoints/step-4.safetensors")) usleep(1000);
    train_in_stack(&runs[2]);
    assert_int_equal(runs[2].join, TU_INVALID);
    assert_non_null(strstr(runs[2].message, "another structure"));
    pthread_join(thread, NULL);
    assert_int_equal(runs[0].status, TU_OK);
    assert_int_equal(tu__train_stack_new(2, 3, &stack), TU_INVALID);
    tu__train_stack_free(runs[0].stack);
}

static void wrong_settings_are_refused(void **state) {
    (void)state;
    expect_error(tu_train("mlp", NULL, NULL, .set = set, ON_REF, .stack = "2"), TU_INVALID,
                 "--stack '2' without --ensemble");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, ON_REF, .snapshots = 1), TU_INVALID,
                 "--snapshots without --ensemble");
    expect_error(tu_train_ensemble("mlp", NULL, 2, NULL, .set = set, ON_REF, .stack = "many"), TU_INVALID,
                 "--stack 'many': expected a number of members from 1 to 10000, or auto");
    expect_error(tu_train_ensemble("mlp", NULL, 2, NULL, .set = set, ON_REF, .stack = "2", .snapshots = 1),
                 TU_INVALID, "--snapshots cannot be combined with --stack");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(stacked_members_are_identical_to_members_alone),
        fresh(a_resumed_stack_is_bit_identical),
        fresh(auto_is_replaced_by_a_number),
        fresh(a_member_whose_image_cannot_be_read_stops_alone),
        fresh(snapshots_go_on_from_each_other),
        fresh(runs_with_other_rates_share_a_stack),
        fresh(runs_that_cannot_be_stacked_are_refused),
        fresh(wrong_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
