/* Steps on the CPU that select their images by index from a data set in memory: nothing is prefetched, and the run is
 * identical to one that is fed with batches, also if a step is not finite. */
#include "train/checkpoint_digest.h"
#include "train/memory_dataset.h"

/* Puts the data set into memory and makes reading single training images fail. */
static void use_memory(void) {
    small_dataset_unreadable[TU_TRAIN] = -1;
    keep_dataset_in_memory();
    small_dataset_unreadable[TU_TRAIN] = 3;
}

static void use_batches(void) {
    small_dataset_unreadable[TU_TRAIN] = -1;
    stop_keeping_dataset_in_memory();
}

#define train(result, out_, ...)                                                                             \
    tu_train("mlp", NULL, result, .set = set, .batch = SMALL_BATCH, .base = 8, .epochs = 3,                  \
             .out = in_scratch(out_).text, __VA_ARGS__)
#define train_indexed(...) (use_memory(), train(__VA_ARGS__))
#define train_fed(...) (use_batches(), train(__VA_ARGS__))

static int end_indexed(void **state) {
    small_dataset_unreadable[TU_TRAIN] = -1;
    return end_fresh(state);
}

static void expect_ok(tu_status status) {
    if (status != TU_OK) fail_msg("%s", tu_message());
}

static void selecting_images_by_index_gives_the_same_run(void **state) {
    (void)state;
    for (int64_t threads = 1; threads <= 3; threads++)
        for (int64_t micro_batches = 1; micro_batches <= 2; micro_batches++) {
            tu_train_result fed = TU_SIZED(tu_train_result), indexed = TU_SIZED(tu_train_result);
            char names[2][32];
            snprintf(names[0], sizeof names[0], "fed-%d-%d", (int)threads, (int)micro_batches);
            snprintf(names[1], sizeof names[1], "indexed-%d-%d", (int)threads, (int)micro_batches);
            expect_ok(train_fed(&fed, names[0], .devices = "cpu:0", .threads = threads,
                                .accumulate = micro_batches));
            expect_ok(train_indexed(&indexed, names[1], .devices = "cpu:0", .threads = threads,
                                    .accumulate = micro_batches));
            assert_string_equal(fed.digest, indexed.digest);
            assert_true(fed.loss == indexed.loss && fed.test_loss == indexed.test_loss);
        }
}

static void bootstrap_samples_can_be_selected_by_index(void **state) {
    (void)state;
    tu_train_result fed = TU_SIZED(tu_train_result), indexed = TU_SIZED(tu_train_result);
    expect_ok(train_fed(&fed, "fed", .devices = "cpu:0", .threads = 1, .bootstrap = true));
    expect_ok(train_indexed(&indexed, "indexed", .devices = "cpu:0", .threads = 1, .bootstrap = true));
    assert_string_equal(fed.digest, indexed.digest);
}

static void a_resumed_run_selects_by_index(void **state) {
    (void)state;
    tu_train_result whole = TU_SIZED(tu_train_result), part = TU_SIZED(tu_train_result),
                    rest = TU_SIZED(tu_train_result);
    expect_ok(train_fed(&whole, "whole", .devices = "cpu:0", .threads = 2));
    stop_flag = 0;
    stop_at = 6;
    expect_ok(train_indexed(&part, "part", .devices = "cpu:0", .threads = 2, .stop = &stop_flag,
                            .on_report = stop_there));
    assert_true(part.stopped && part.step == 6);
    expect_ok(train_indexed(&rest, "part", .devices = "cpu:0", .threads = 2, .resume = true));
    assert_string_equal(whole.digest, rest.digest);
}

/* Logical devices compute on their own threads, which are fed with batches. */
static void logical_devices_are_fed(void **state) {
    (void)state;
    tu_train_result fed = TU_SIZED(tu_train_result), from_memory = TU_SIZED(tu_train_result);
    expect_ok(train_fed(&fed, "fed", .devices = "cpu:0/2", .threads = 1));
    keep_dataset_in_memory();
    expect_ok(train(&from_memory, "memory", .devices = "cpu:0/2", .threads = 1));
    assert_string_equal(fed.digest, from_memory.digest);
}

/* Result of a run with a NaN image: its message and the digest of its last checkpoint. */
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

static void a_nan_image_is_reported(void **state) {
    (void)state;
    for (int64_t micro_batches = 1; micro_batches <= 2; micro_batches++) {
        const char *const names[2][2] = {{"fed", "indexed"}, {"fed-accumulating", "indexed-accumulating"}};
        const char *const *name = names[micro_batches - 1];
        small_dataset_nan = image_of_step(3, 1, -1);
        struct failure fed = failure_of(
            train_fed(NULL, name[0], .devices = "cpu:0", .threads = 1, .accumulate = micro_batches), name[0],
            "step-2");
        keep_dataset_in_memory();
        struct failure indexed =
            failure_of(train(NULL, name[1], .devices = "cpu:0", .threads = 1, .accumulate = micro_batches),
                       name[1], "step-2");
        small_dataset_nan = -1;
        assert_non_null(strstr(fed.message, "input 'images', training image"));
        assert_string_equal(fed.message, indexed.message);
        assert_string_equal(fed.digest, indexed.digest);
    }
}

#define indexed(test) cmocka_unit_test_setup_teardown(test, begin_fresh, end_indexed)

int main(void) {
    const struct CMUnitTest tests[] = {
        indexed(selecting_images_by_index_gives_the_same_run),
        indexed(bootstrap_samples_can_be_selected_by_index),
        indexed(a_resumed_run_selects_by_index),
        indexed(logical_devices_are_fed),
        indexed(a_nan_image_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
