/* Statements about a processor that picks the images of its steps from a set in memory: nothing is read ahead, and the run is
 * the one that is fed with batches, with its bad steps too. */
#include "train/checkpoint_digest.h"
#include "train/set_in_memory.h"

/* From memory, where none of the training images may be read one by one. */
static void pick(void) {
    small_set_unreadable[TU_TRAIN] = -1;
    put_in_memory();
    small_set_unreadable[TU_TRAIN] = 3;
}

static void feed(void) {
    small_set_unreadable[TU_TRAIN] = -1;
    take_from_memory();
}

#define train(result, out_, ...)                                                                             \
    tu_train("mlp", NULL, result, .set = set, .batch = SMALL_BATCH, .base = 8, .epochs = 3,                  \
             .out = in_scratch(out_).text, __VA_ARGS__)
#define train_picked(...) (pick(), train(__VA_ARGS__))
#define train_fed(...) (feed(), train(__VA_ARGS__))

static int end_picked(void **state) {
    small_set_unreadable[TU_TRAIN] = -1;
    return end_fresh(state);
}

static void expect_ok(tu_status status) {
    if (status != TU_OK) fail_msg("%s", tu_message());
}

static void a_run_that_picks_is_the_run_that_is_fed(void **state) {
    (void)state;
    for (int64_t threads = 1; threads <= 3; threads++)
        for (int64_t pieces = 1; pieces <= 2; pieces++) {
            tu_train_result fed = TU_SIZED(tu_train_result), picked = TU_SIZED(tu_train_result);
            char names[2][32];
            snprintf(names[0], sizeof names[0], "fed-%d-%d", (int)threads, (int)pieces);
            snprintf(names[1], sizeof names[1], "picked-%d-%d", (int)threads, (int)pieces);
            expect_ok(
                train_fed(&fed, names[0], .devices = "cpu:0", .threads = threads, .accumulate = pieces));
            expect_ok(train_picked(&picked, names[1], .devices = "cpu:0", .threads = threads,
                                   .accumulate = pieces));
            assert_string_equal(fed.digest, picked.digest);
            assert_true(fed.loss == picked.loss && fed.test_loss == picked.test_loss);
        }
}

static void a_bootstrap_sample_is_picked_too(void **state) {
    (void)state;
    tu_train_result fed = TU_SIZED(tu_train_result), picked = TU_SIZED(tu_train_result);
    expect_ok(train_fed(&fed, "fed", .devices = "cpu:0", .threads = 1, .bootstrap = true));
    expect_ok(train_picked(&picked, "picked", .devices = "cpu:0", .threads = 1, .bootstrap = true));
    assert_string_equal(fed.digest, picked.digest);
}

static void a_stopped_run_goes_on_picking(void **state) {
    (void)state;
    tu_train_result whole = TU_SIZED(tu_train_result), part = TU_SIZED(tu_train_result),
                    rest = TU_SIZED(tu_train_result);
    expect_ok(train_fed(&whole, "whole", .devices = "cpu:0", .threads = 2));
    stop_flag = 0;
    stop_at = 6;
    expect_ok(train_picked(&part, "part", .devices = "cpu:0", .threads = 2, .stop = &stop_flag,
                           .watch = stop_there));
    assert_true(part.stopped && part.step == 6);
    expect_ok(train_picked(&rest, "part", .devices = "cpu:0", .threads = 2, .resume = true));
    assert_string_equal(whole.digest, rest.digest);
}

/* Logical devices compute on threads of their own, which are fed. */
static void parts_of_a_processor_are_fed(void **state) {
    (void)state;
    tu_train_result fed = TU_SIZED(tu_train_result), from_memory = TU_SIZED(tu_train_result);
    expect_ok(train_fed(&fed, "fed", .devices = "cpu:0/2", .threads = 1));
    put_in_memory();
    expect_ok(train(&from_memory, "memory", .devices = "cpu:0/2", .threads = 1));
    assert_string_equal(fed.digest, from_memory.digest);
}

/* The message and the checkpoint that a run leaves which meets a bad image. */
struct failure {
    char message[1024], digest[TU_DIGEST_TEXT];
};

static struct failure failure_of(tu_status status, const char *out, const char *checkpoint) {
    struct failure f;
    assert_int_equal(status, TU_NUMERIC);
    snprintf(f.message, sizeof f.message, "%s", tu_message());
    checkpoint_digest(in_scratch(out).text, checkpoint, f.digest);
    return f;
}

static void a_bad_image_is_named(void **state) {
    (void)state;
    for (int64_t pieces = 1; pieces <= 2; pieces++) {
        const char *const names[2][2] = {{"fed", "picked"}, {"fed-in-pieces", "picked-in-pieces"}};
        const char *const *name = names[pieces - 1];
        small_set_poison = image_of_step(3, 1, -1);
        struct failure fed =
            failure_of(train_fed(NULL, name[0], .devices = "cpu:0", .threads = 1, .accumulate = pieces),
                       name[0], "step-2");
        put_in_memory();
        struct failure picked = failure_of(
            train(NULL, name[1], .devices = "cpu:0", .threads = 1, .accumulate = pieces), name[1], "step-2");
        small_set_poison = -1;
        assert_non_null(strstr(fed.message, "input 'images', training image"));
        assert_string_equal(fed.message, picked.message);
        assert_string_equal(fed.digest, picked.digest);
    }
}

#define picked(test) cmocka_unit_test_setup_teardown(test, begin_fresh, end_picked)

int main(void) {
    const struct CMUnitTest tests[] = {
        picked(a_run_that_picks_is_the_run_that_is_fed),
        picked(a_bootstrap_sample_is_picked_too),
        picked(a_stopped_run_goes_on_picking),
        picked(parts_of_a_processor_are_fed),
        picked(a_bad_image_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
