/* A step whose numbers are not finite: the state stays as it was, and the message names the step and the culprit. */
#include "train/small_set.h"

#include "io/safetensors.h"

static tu_dataset *set;

/* The digest that a checkpoint says its tensors have. */
static void digest_of(const char *path, char digest[TU_DIGEST_TEXT]) {
    tu__safetensors file;
    assert_int_equal(tu__safetensors_open(path, &file), TU_OK);
    snprintf(digest, TU_DIGEST_TEXT, "%s", tu__safetensors_metadata(&file, "digest"));
    tu__safetensors_close(&file);
}

static void expect_message(const char *part) {
    if (!strstr(tu_message(), part)) print_message("said: %s\n", tu_message());
    assert_non_null(strstr(tu_message(), part));
}

static void a_bad_pixel_is_named_as_the_input(void **state) {
    (void)state;
    small_set_poison = 7;
    tu_status status =
        tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("run").text, SMALL_RUN, .epochs = 2);
    small_set_poison = -1;
    assert_int_equal(status, TU_NUMERIC);
    expect_message("first value that is not: input 'images'");
}

static void a_bad_pixel_in_a_later_piece_is_found_too(void **state) {
    (void)state;
    small_set_poison = 7;
    tu_status status = tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("run").text, SMALL_RUN,
                                .epochs = 2, .accumulate = 4);
    small_set_poison = -1;
    assert_int_equal(status, TU_NUMERIC);
    expect_message("input 'images'");
}

static void a_rate_that_is_too_high_names_the_operation_and_keeps_the_state(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run");
    tu_status status =
        tu_train("mlp", NULL, NULL, .set = set, .out = run.text, SMALL_RUN, .recipe = "plain", .epochs = 50,
                 .rate = 1e6, .optimizer = "sgd", .checkpoint_every = 1, .keep = 1000);
    assert_int_equal(status, TU_NUMERIC);
    expect_message("first value that is not: operation '");
    long long step = 0, saved = -1;
    assert_int_equal(sscanf(tu_message(), "step %lld:", &step), 1);
    const char *where = strstr(tu_message(), "the state before it is checkpoint ");
    assert_non_null(where);
    assert_int_equal(sscanf(where, "the state before it is checkpoint %lld", &saved), 1);
    assert_int_equal(saved, step - 1);

    /* The same run with one step less ends in the state that was kept. */
    tu_train_result shorter;
    train_small(set, &shorter, .out = in_scratch("shorter").text, .recipe = "plain", .epochs = 50,
                .rate = 1e6, .optimizer = "sgd", .steps = step - 1);
    char path[1024], digest[TU_DIGEST_TEXT];
    snprintf(path, sizeof path, "%s/checkpoints/step-%lld.safetensors", run.text, saved);
    digest_of(path, digest);
    assert_string_equal(digest, shorter.digest);
}

static int begin(void **state) {
    set = small_set();
    return scratch_begin(state);
}

static int end(void **state) {
    tu_dataset_free(set);
    return scratch_end(state);
}

#define fresh(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(a_bad_pixel_is_named_as_the_input),
        fresh(a_bad_pixel_in_a_later_piece_is_found_too),
        fresh(a_rate_that_is_too_high_names_the_operation_and_keeps_the_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
