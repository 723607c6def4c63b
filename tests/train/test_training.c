/* Training runs: they learn, their folder is complete, their settings work as documented. */
#include "train/fresh_run.h"

#include "io/safetensors.h"

/* ---- Learning ---- */

static void a_network_learns_the_small_dataset(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    train_small(set, &result, .out = in_scratch("run").text, .epochs = 12, .optimizer = "adam", .rate = 0.02);
    assert_int_equal(result.step, 12 * SMALL_STEPS);
    assert_true(result.loss < 0.2);
    assert_true(result.test_accuracy > 0.9);
    assert_true(result.best_accuracy >= result.validation_accuracy);
    assert_int_equal(result.validation_step, result.step);
    assert_int_equal(result.test_step, result.step);
}

static void a_convolutional_network_learns_with_all_settings(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    tu_status status = tu_train(
        "resnet20", NULL, &result, .set = set, .out = in_scratch("run").text, .threads = 1, .base = 4,
        .batch = 10, .epochs = 8, .optimizer = "nesterov", .rate = 0.05, .schedule = "cosine", .warmup = 5,
        .pad = 1, .cutout = 2, .brightness = 0.05, .contrast = 0.1, .standardize = 1, .weight_decay = 1e-4,
        .decay = "logits/*=0.01", .clip = 5, .average = 0.9, .label_smoothing = 0.05, .precision = "bf16");
    if (status != TU_OK) print_message("%s\n", tu_message());
    assert_int_equal(status, TU_OK);
    assert_true(result.test_accuracy > 0.6);
}

static void gradient_accumulation_gives_the_same_update(void **state) {
    (void)state;
    tu_train_result whole = TU_SIZED(tu_train_result), accumulated = TU_SIZED(tu_train_result);
    train_small(set, &whole, .out = in_scratch("whole").text, .recipe = "plain", .epochs = 2, .rate = 0.05);
    train_small(set, &accumulated, .out = in_scratch("accumulated").text, .recipe = "plain", .epochs = 2,
                .rate = 0.05, .accumulate = 4);
    assert_float_equal(whole.test_loss, accumulated.test_loss, 1e-5);
    assert_float_equal(whole.loss, accumulated.loss, 1e-5);
}

static void runs_with_the_same_seed_are_bit_identical(void **state) {
    (void)state;
    tu_train_result first = TU_SIZED(tu_train_result), second = TU_SIZED(tu_train_result),
                    other = TU_SIZED(tu_train_result);
    train_small(set, &first, .out = in_scratch("first").text, .steps = 5, .flip = 1, .pad = 1);
    train_small(set, &second, .out = in_scratch("second").text, .steps = 5, .flip = 1, .pad = 1);
    train_small(set, &other, .out = in_scratch("other").text, .steps = 5, .flip = 1, .pad = 1, .seed = 2);
    assert_string_equal(first.digest, second.digest);
    assert_string_not_equal(first.digest, other.digest);
}

static double rate_of_last_step;
static void keep_rate(void *context, const tu_train_report *report) {
    (void)context;
    if (report->event == TU_TRAIN_STEPPED) rate_of_last_step = report->rate;
}

static void momentum_can_be_set_to_zero(void **state) {
    (void)state;
    tu_train_result plain = TU_SIZED(tu_train_result), none = TU_SIZED(tu_train_result);
    train_small(set, &plain, .out = in_scratch("sgd").text, .recipe = "plain", .epochs = 3,
                .optimizer = "sgd");
    train_small(set, &none, .out = in_scratch("none").text, .recipe = "plain", .epochs = 3,
                .optimizer = "momentum", .momentum = -1);
    assert_true(plain.loss == none.loss && plain.test_loss == none.test_loss);
}

static void the_rate_factor_can_be_set_to_zero(void **state) {
    (void)state;
    train_small(set, NULL, .out = in_scratch("run").text, .recipe = "plain", .epochs = 2, .schedule = "step",
                .rate_every = 1, .rate_factor = -1, .on_report = keep_rate);
    assert_true(rate_of_last_step == 0);
}

static void rmsprop_has_no_momentum_by_default(void **state) {
    (void)state;
    tu_train_result by_default = TU_SIZED(tu_train_result), none = TU_SIZED(tu_train_result),
                    some = TU_SIZED(tu_train_result);
    train_small(set, &by_default, .out = in_scratch("silent").text, .epochs = 2, .optimizer = "rmsprop");
    train_small(set, &none, .out = in_scratch("none").text, .epochs = 2, .optimizer = "rmsprop",
                .momentum = -1);
    train_small(set, &some, .out = in_scratch("some").text, .epochs = 2, .optimizer = "rmsprop",
                .momentum = 0.9);
    assert_string_equal(by_default.digest, none.digest);
    assert_string_not_equal(by_default.digest, some.digest);
}

static void a_data_set_without_test_images_can_be_trained_on(void **state) {
    (void)state;
    const tu_source source = {.struct_size = sizeof source,
                              .name = "untested",
                              .count = {20, 0},
                              .height = SMALL_SIDE,
                              .width = SMALL_SIDE,
                              .channels = 1,
                              .dtype = TU_F32,
                              .classes = SMALL_CLASSES,
                              .read = small_dataset_read};
    tu_dataset *untested;
    tu_train_result result = TU_SIZED(tu_train_result);
    assert_int_equal(tu_dataset_from(&source, &untested), TU_OK);
    train_small(untested, &result, .out = in_scratch("run").text, .epochs = 2);
    assert_int_equal(result.test_step, -1);
    assert_int_equal(result.validation_images, 2);
    assert_int_equal(result.validation_step, result.step);
    assert_true(exists(in_scratch("run").text, "checkpoints/step-4.safetensors"));
    tu_dataset_free(untested);
}

static void a_run_that_does_not_improve_stops_early(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    train_small(set, &result, .out = in_scratch("run").text, .epochs = 50, .rate = 1e-9, .early_stop = 2);
    assert_true(result.stopped_early);
    assert_false(result.stopped);
    assert_int_equal(result.step,
                     3 * SMALL_STEPS); /* the first evaluation is the best; the run ends two epochs later */
    tu_train_result again = TU_SIZED(tu_train_result);
    assert_int_equal(tu_train(in_scratch("run").text, NULL, &again, .set = set, .resume = true), TU_OK);
    assert_int_equal(again.step, result.step);
}

/* ---- The folder ---- */

static void the_run_folder_is_complete(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("a/new/folder");
    train_small(set, NULL, .out = run.text, .epochs = 3, .keep = 2);
    const char *const files[] = {"config.json",
                                 "metrics.jsonl",
                                 "curves.svg",
                                 "kernels.txt",
                                 "graphs/step.graph",
                                 "graphs/step-short.graph",
                                 "graphs/evaluate.graph",
                                 "graphs/predict.graph",
                                 "checkpoints/best.safetensors",
                                 "checkpoints/step-8.safetensors",
                                 "checkpoints/step-12.safetensors"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!exists(run.text, files[i])) fail_msg("%s is missing", files[i]);
    assert_false(exists(run.text, "checkpoints/step-4.safetensors"));
    assert_int_equal(count_lines(run.text, "metrics.jsonl", "\"loss\""), 12);
    assert_int_equal(count_lines(run.text, "metrics.jsonl", "\"validation_accuracy\""), 3);
    assert_int_equal(count_lines(run.text, "metrics.jsonl", "\"test_accuracy\""), 1);
    assert_int_equal(count_lines(run.text, "config.json", "\"version\":1"), 1);
}

static void checkpoints_contain_the_complete_state(void **state) {
    (void)state;
    train_small(set, NULL, .out = in_scratch("run").text, .epochs = 1, .optimizer = "adam", .average = 0.5);
    tu__safetensors file;
    assert_int_equal(tu__safetensors_open(in_scratch("run/checkpoints/step-4.safetensors").text, &file),
                     TU_OK);
    const tu__named_tensor *step = tu__safetensors_find(&file, "step");
    assert_non_null(step);
    assert_int_equal(*(const int64_t *)step->data, 4);
    assert_non_null(tu__safetensors_find(&file, "hidden1/weights"));
    assert_non_null(tu__safetensors_find(&file, "average/hidden1/weights"));
    assert_string_equal(tu__safetensors_metadata(&file, "step"), "4");
    assert_string_equal(tu__safetensors_metadata(&file, "sample"), "50");
    tu__safetensors_close(&file);
}

static void runs_without_a_name_are_numbered(void **state) {
    (void)state;
    char before[512];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(scratch), 0);
    tu_train_result result = TU_SIZED(tu_train_result);
    train_small(set, &result, .steps = 1);
    assert_string_equal(result.folder, "runs/mlp-small-1");
    train_small(set, &result, .steps = 1);
    assert_string_equal(result.folder, "runs/mlp-small-2");
    assert_int_equal(chdir(before), 0);
}

/* ---- Settings ---- */

static void a_failed_start_leaves_no_folder(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run");
    const char *out = run.text;
    expect_error(tu_train("mpl", NULL, NULL, .set = set, .out = out), TU_NOT_FOUND, "did you mean 'mlp'?");
    expect_error(tu_train("mlp", NULL, NULL, .out = out), TU_INVALID, "--data");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = out, .recipe = "quik"), TU_NOT_FOUND,
                 "did you mean 'quick'?");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = out, .optimizer = "adm"), TU_INVALID, "adm");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = out, .schedule = "cosin"), TU_INVALID,
                 "cosin");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = out, .rate = 1e9), TU_INVALID,
                 "--rate 1000000000");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = out, .batch = -1), TU_INVALID, "--batch 0");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = out, .decay = "weights"), TU_INVALID,
                 "PATTERN=D");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = out, .freeze = "nothing*"), TU_NOT_FOUND,
                 "nothing*");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = out, .batch = 16, .accumulate = 3),
                 TU_INVALID, "--accumulate 3");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = out, .devices = "abacus"), TU_NOT_FOUND,
                 "abacus");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = out, .init = "nowhere"), TU_NOT_FOUND,
                 "nowhere");
    assert_int_not_equal(access(out, F_OK), 0);
}

static void options_override_the_recipe_and_the_recipe_overrides_defaults(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run");
    train_small(set, NULL, .out = run.text, .recipe = "tutorial", .steps = 2, .rate = 0.25, .flip = -1,
                .average = -1);
    assert_int_equal(count_lines(run.text, "config.json", "\"rate\":0.25"), 1);     /* given */
    assert_int_equal(count_lines(run.text, "config.json", "\"flip\":false"), 1);    /* given: none */
    assert_int_equal(count_lines(run.text, "config.json", "\"average\":0,"), 1);    /* given: none */
    assert_int_equal(count_lines(run.text, "config.json", "\"contrast\":0.8"), 1);  /* from the recipe */
    assert_int_equal(count_lines(run.text, "config.json", "\"rate_peak\":0.3"), 1); /* the default */
    assert_int_equal(count_lines(run.text, "config.json", "\"momentum\":0,"),
                     1); /* default of the optimizer sgd */
    assert_int_equal(count_lines(run.text, "config.json", "\"recipe\":\"tutorial\""), 1);
}

static void every_recipe_is_listed_and_runs(void **state) {
    (void)state;
    const char *name, *summary;
    size_t count = 0;
    for (; count < tu_recipe_count() && tu_recipe(count, &name, &summary) == TU_OK; count++) {
        assert_true(strlen(summary) > 10);
        train_small(set, NULL, .out = in_scratch(name).text, .recipe = name, .steps = 1);
    }
    assert_int_equal(count, 3);
}

/* ---- Plans ---- */

static uint64_t planned_bytes(const tu_train_plan *plan) {
    tu_memory_report report = TU_SIZED(tu_memory_report);
    assert_int_equal(tu_program_memory(plan->program, 0, &report), TU_OK);
    return report.need_bytes;
}

/* A plan reports the memory that a run needs without starting it. The number is exact: the run fits into a limit of
 * that many bytes, but not of one byte less. */
static void a_plan_reports_the_memory_that_a_run_needs(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run");
    tu_train_plan plan = TU_SIZED(tu_train_plan);
    assert_int_equal(tu_plan_training("mlp", NULL, &plan, .set = set, SMALL_RUN, .out = run.text), TU_OK);
    assert_true(plan.batch == SMALL_BATCH && plan.accumulate == 1 && plan.set == set);
    assert_string_equal(plan.precision, "f32");
    int64_t need = (int64_t)planned_bytes(&plan);
    tu_train_plan_free(&plan);
    assert_int_equal(access(run.text, F_OK), -1);
    assert_int_equal(tu_train("mlp", NULL, NULL, .set = set, SMALL_RUN, .out = run.text, .steps = 1,
                              .memory_limit = need - 1),
                     TU_NO_MEMORY);
    assert_int_equal(access(run.text, F_OK), -1);
    train_small(set, NULL, .out = run.text, .steps = 1, .memory_limit = need);
}

/* With gradient accumulation the update program, which uses all variables of the optimizer, may need more memory than
 * the step. */
static void a_plan_with_accumulation_includes_the_update(void **state) {
    (void)state;
    tu_train_plan sgd = TU_SIZED(tu_train_plan), adam = TU_SIZED(tu_train_plan);
    assert_int_equal(tu_plan_training("mlp", NULL, &sgd, .set = set, SMALL_RUN, .accumulate = 4,
                                      .recipe = "plain", .optimizer = "sgd"),
                     TU_OK);
    assert_int_equal(tu_plan_training("mlp", NULL, &adam, .set = set, SMALL_RUN, .accumulate = 4,
                                      .recipe = "plain", .optimizer = "adam"),
                     TU_OK);
    assert_int_equal(adam.accumulate, 4);
    assert_true(planned_bytes(&adam) > planned_bytes(&sgd));
    tu_train_plan_free(&sgd);
    tu_train_plan_free(&adam);
}

/* ---- Initial weights ---- */

/* Reads one tensor of a run's checkpoint. */
static void read_weights(const char *run, const char *checkpoint, const char *name, float *numbers,
                         size_t count) {
    char path[1024];
    tu__safetensors file;
    snprintf(path, sizeof path, "%s/checkpoints/%s.safetensors", run, checkpoint);
    assert_int_equal(tu__safetensors_open(path, &file), TU_OK);
    const tu__named_tensor *tensor = tu__safetensors_find(&file, name);
    assert_non_null(tensor);
    assert_int_equal(tu_type_bytes(tensor->type), count * sizeof *numbers);
    memcpy(numbers, tensor->data, count * sizeof *numbers);
    tu__safetensors_close(&file);
}

enum { HIDDEN = 8 * SMALL_SIDE * SMALL_SIDE };

static void a_run_can_start_from_the_weights_of_another(void **state) {
    (void)state;
    struct scratch_path first = in_scratch("first"), second = in_scratch("second");
    train_small(set, NULL, .out = first.text, .epochs = 1);
    *notice_log = '\0';
    train_small(set, NULL, .out = second.text, .steps = 1, .init = first.text, .freeze = "hidden1/*",
                .on_report = keep_notices);
    assert_non_null(strstr(notice_log, "6 variables from"));
    float before[HIDDEN], after[HIDDEN], moved[8 * 8], start[8 * 8];
    read_weights(first.text, "step-4", "hidden1/weights", before, HIDDEN);
    read_weights(second.text, "step-1", "hidden1/weights", after, HIDDEN);
    assert_memory_equal(before, after, sizeof before);
    read_weights(first.text, "step-4", "hidden2/weights", start, 8 * 8);
    read_weights(second.text, "step-1", "hidden2/weights", moved, 8 * 8);
    assert_memory_not_equal(start, moved, sizeof start);
}

static tu_status read_two_classes(void *context, tu_split split, int64_t index, void *image, int32_t *label) {
    tu_status status = small_dataset_read(context, split, index, image, label);
    *label = *label % 2;
    return status;
}

static void a_last_layer_with_other_classes_is_initialised(void **state) {
    (void)state;
    struct scratch_path first = in_scratch("first"), second = in_scratch("second");
    train_small(set, NULL, .out = first.text, .epochs = 1);
    const tu_source source = {.struct_size = sizeof source,
                              .name = "two",
                              .count = {20, 10},
                              .height = SMALL_SIDE,
                              .width = SMALL_SIDE,
                              .channels = 1,
                              .dtype = TU_F32,
                              .classes = 2,
                              .read = read_two_classes};
    tu_dataset *two;
    assert_int_equal(tu_dataset_from(&source, &two), TU_OK);
    *notice_log = '\0';
    train_small(two, NULL, .out = second.text, .steps = 2,
                .init = in_scratch("first/checkpoints/best.safetensors").text, .on_report = keep_notices);
    assert_non_null(strstr(notice_log, "4 variables from"));
    assert_non_null(
        strstr(notice_log, "not in the file, keep their initial values: logits/weights, logits/bias"));
    expect_error(tu_evaluate(first.text, &TU_SIZED(tu_evaluation), .set = two), TU_INVALID, "other classes");
    tu_dataset_free(two);
}

static void init_without_matching_tensors_fails(void **state) {
    (void)state;
    struct scratch_path first = in_scratch("first");
    train_small(set, NULL, .out = first.text, .steps = 1);
    expect_error(tu_train("tutorial-cnn", NULL, NULL, .set = set, .out = in_scratch("second").text,
                          .init = first.text, .base = 4, .batch = 10, .threads = 1),
                 TU_INVALID, "matches a variable of the network");
    assert_int_not_equal(access(in_scratch("second").text, F_OK), 0);
}

/* ---- Evaluation ---- */

static void evaluation_agrees_with_training(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    tu_evaluation e = TU_SIZED(tu_evaluation);
    struct scratch_path run = in_scratch("run");
    train_small(set, &result, .out = run.text, .epochs = 4, .optimizer = "adam", .rate = 0.01,
                .average = 0.8);
    assert_int_equal(tu_evaluate(run.text, &e, .set = set), TU_OK);
    assert_true(e.accuracy == result.test_accuracy);
    assert_true(e.loss == result.test_loss);
    assert_int_equal(e.images, SMALL_TEST);
    assert_int_equal(e.classes, SMALL_CLASSES);
    int64_t all = 0, correct = 0;
    for (int i = 0; i < SMALL_CLASSES; i++) {
        correct += e.confusion[i * SMALL_CLASSES + i];
        for (int k = 0; k < SMALL_CLASSES; k++) all += e.confusion[i * SMALL_CLASSES + k];
    }
    assert_int_equal(all, SMALL_TEST);
    assert_true((double)correct / SMALL_TEST == e.accuracy);
    assert_true(e.top5 == 1); /* there are three classes */
    assert_string_equal(e.class_names[2], "left");
    assert_int_equal(tu_evaluation_draw(&e, in_scratch("matrix.svg").text), TU_OK);
    assert_int_equal(count_lines(scratch, "matrix.svg", "<title>small: "), 1);
    expect_error(tu_evaluation_draw(&e, in_scratch("none/matrix.svg").text), TU_IO, "none/matrix.svg");
    tu_evaluation_free(&e);
    assert_int_equal(tu_evaluate(run.text, &e, .set = set, .checkpoint = "best"), TU_OK);
    assert_int_equal(e.step, result.best_step);
    tu_evaluation_free(&e);
    expect_error(tu_evaluate(run.text, &e, .set = set, .checkpoint = "3"), TU_NOT_FOUND,
                 "expected last, best or the step");
    expect_error(tu_evaluate(run.text, &e), TU_INVALID, "--data");
    expect_error(tu_evaluate(scratch, &e), TU_NOT_FOUND, "is not a run folder");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(a_network_learns_the_small_dataset),
        fresh(a_convolutional_network_learns_with_all_settings),
        fresh(gradient_accumulation_gives_the_same_update),
        fresh(runs_with_the_same_seed_are_bit_identical),
        fresh(momentum_can_be_set_to_zero),
        fresh(the_rate_factor_can_be_set_to_zero),
        fresh(rmsprop_has_no_momentum_by_default),
        fresh(a_data_set_without_test_images_can_be_trained_on),
        fresh(a_run_that_does_not_improve_stops_early),
        fresh(the_run_folder_is_complete),
        fresh(checkpoints_contain_the_complete_state),
        fresh(runs_without_a_name_are_numbered),
        fresh(a_failed_start_leaves_no_folder),
        fresh(options_override_the_recipe_and_the_recipe_overrides_defaults),
        fresh(every_recipe_is_listed_and_runs),
        fresh(a_plan_reports_the_memory_that_a_run_needs),
        fresh(a_plan_with_accumulation_includes_the_update),
        fresh(a_run_can_start_from_the_weights_of_another),
        fresh(a_last_layer_with_other_classes_is_initialised),
        fresh(init_without_matching_tensors_fails),
        fresh(evaluation_agrees_with_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
