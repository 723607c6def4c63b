/* A run folder whose files do not match, because somebody edited or mixed them, fails with one message in training,
 * evaluation and prediction: none of them writes past a buffer. */
#include "train/fresh_run.h"

#include <tutti/ops.h>

static tu_status resume(const char *run) {
    return tu_train(run, NULL, NULL, .set = set, .resume = true);
}

static tu_status evaluate(const char *run) {
    tu_evaluation e = TU_SIZED(tu_evaluation);
    tu_status status = tu_evaluate(run, &e, .set = set);
    if (status == TU_OK) tu_evaluation_free(&e);
    return status;
}

static tu_status open_predictor(const char *run) {
    tu_predictor *predictor;
    tu_status status = tu_predictor_new(run, &predictor);
    tu_predictor_free(predictor);
    return status;
}

/* Starts a run of four steps and stops it after the first. */
#define begin_run(name, ...)                                                                                 \
    struct scratch_path run = in_scratch(name);                                                              \
    stop_at = 1;                                                                                             \
    stop_flag = 0;                                                                                           \
    train_small(set, NULL, .out = run.text, .epochs = 1, .stop = &stop_flag, .on_report = stop_there,        \
                __VA_ARGS__)

/* ---- config.json ---- */

static void another_image_size_than_in_the_graphs_fails(void **state) {
    (void)state;
    begin_run("size", .seed = 1);
    replace_in_config(run.text, "\"height\":8", "\"height\":4096");
    expect_error(open_predictor(run.text), TU_CORRUPT, "graph 'predict': 'images' has type f32[1,8,8,1]");
    expect_error(evaluate(run.text), TU_CORRUPT, "graph 'evaluate': 'images' has type");
    assert_int_not_equal(resume(run.text), TU_OK);
}

static void another_image_type_than_in_the_graphs_fails(void **state) {
    (void)state;
    begin_run("type", .seed = 1);
    replace_in_config(run.text, "\"dtype\":\"f32\"", "\"dtype\":\"u8\"");
    expect_error(open_predictor(run.text), TU_CORRUPT, "expected u8[1,8,8,1]");
    expect_error(evaluate(run.text), TU_CORRUPT, "expected u8[16,8,8,1]");
    assert_int_not_equal(resume(run.text), TU_OK);
}

static void another_number_of_classes_than_in_the_graphs_fails(void **state) {
    (void)state;
    begin_run("classes", .seed = 1);
    replace_in_config(run.text, "\"above\",\"below\",\"left\"", "\"above\"");
    expect_error(open_predictor(run.text), TU_CORRUPT, "'probability' has type f32[1,3]: expected f32[1,1]");
    assert_int_not_equal(evaluate(run.text), TU_OK);
    assert_int_not_equal(resume(run.text), TU_OK);
}

static void batches_and_steps_that_contradict_the_settings_fail(void **state) {
    (void)state;
    const char *changes[][2] = {
        {"\"batch\":16", "\"batch\":10"},         {"\"batch\":16", "\"batch\":8"},
        {"\"batch\":16", "\"batch\":64"},         {"\"steps_per_epoch\":4", "\"steps_per_epoch\":5"},
        {"\"steps\":4", "\"steps\":5"},           {"\"epochs\":1", "\"epochs\":2"},
        {"\"accumulate\":2", "\"accumulate\":1"}, {"\"accumulate\":2", "\"accumulate\":4"},
        {"\"accumulate\":2", "\"accumulate\":3"}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char name[32];
        snprintf(name, sizeof name, "counts-%zu", i);
        begin_run(name, .accumulate = 2);
        replace_in_config(run.text, changes[i][0], changes[i][1]);
        expect_error(resume(run.text), TU_CORRUPT, "expected");
    }
}

/* ---- Graphs ---- */

static void a_step_graph_of_another_run_fails(void **state) {
    (void)state;
    begin_run("own", .seed = 1);
    struct scratch_path other = in_scratch("other");
    train_small(set, NULL, .out = other.text, .epochs = 1, .label_smoothing = 0.5);
    command("cp '%s/graphs/step.graph' '%s/graphs/step.graph'", other.text, run.text);
    expect_error(resume(run.text), TU_CORRUPT, "graph 'step' has changed since the run was started");
}

static void graphs_with_gradient_accumulation_fail_in_a_run_without(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("whole"), accumulating = in_scratch("accumulating");
    assert_int_equal(tu_train("mlp", NULL, NULL, .set = set, .out = run.text, .devices = "cpu:0",
                              .threads = 1, .batch = SMALL_BATCH / 2, .base = 8, .epochs = 1),
                     TU_OK);
    train_small(set, NULL, .out = accumulating.text, .epochs = 1, .accumulate = 2);
    command("cp '%s/graphs/step-short.graph' '%s/graphs/step-short.graph'", accumulating.text, run.text);
    expect_error(resume(run.text), TU_CORRUPT, "graph 'step-short' has the unexpected input 'share'");
    command("rm '%s/graphs/step-short.graph'", run.text);
    assert_int_not_equal(resume(run.text), TU_OK);
}

/* Saves an evaluation graph with a run's inputs and outputs, which predicts `class` for every image. */
static void save_evaluation(const char *run, int64_t class, tu_dtype loss_type, bool without_top5) {
    tu_graph *graph;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    tu_value images =
        tu_batch_input(graph, "images", TU_F32, TU_SHAPE(SMALL_BATCH, SMALL_SIDE, SMALL_SIDE, 1));
    tu_value labels = tu_batch_input(graph, "labels", TU_I32, TU_SHAPE(SMALL_BATCH));
    tu_value wide = tu_cast(labels, TU_I64);
    tu_value classes = tu_add(tu_sub(wide, wide), tu_fill(graph, TU_I64, TU_SCALAR, (double)class));
    tu_output(tu_cast(tu_sum(images), loss_type), "loss");
    tu_output(tu_sum(wide), "correct");
    if (!without_top5) tu_output(tu_sum(wide), "top5");
    tu_output(classes, "class");
    char path[1024];
    snprintf(path, sizeof path, "%s/graphs/evaluate.graph", run);
    if (tu_graph_status(graph) != TU_OK) print_message("%s\n", tu_message());
    assert_int_equal(tu_graph_save(graph, path), TU_OK);
    tu_graph_free(graph);
}

static void an_evaluation_graph_with_an_invalid_class_fails(void **state) {
    (void)state;
    begin_run("class", .seed = 1);
    save_evaluation(run.text, 2, TU_F32, false);
    assert_int_equal(evaluate(run.text), TU_OK);
    save_evaluation(run.text, 1000000, TU_F32, false);
    expect_error(evaluate(run.text), TU_CORRUPT, "returned class 1000000: expected 0 to 2");
    save_evaluation(run.text, -1, TU_F32, false);
    expect_error(evaluate(run.text), TU_CORRUPT, "returned class -1");
}

static void an_evaluation_graph_with_other_outputs_fails(void **state) {
    (void)state;
    begin_run("results", .seed = 1);
    save_evaluation(run.text, 0, TU_I64, false);
    expect_error(evaluate(run.text), TU_CORRUPT, "graph 'evaluate': 'loss' has type i64[]: expected f32[]");
    save_evaluation(run.text, 0, TU_F32, true);
    expect_error(evaluate(run.text), TU_CORRUPT, "'top5'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(another_image_size_than_in_the_graphs_fails),
        fresh(another_image_type_than_in_the_graphs_fails),
        fresh(another_number_of_classes_than_in_the_graphs_fails),
        fresh(batches_and_steps_that_contradict_the_settings_fail),
        fresh(a_step_graph_of_another_run_fails),
        fresh(graphs_with_gradient_accumulation_fail_in_a_run_without),
        fresh(an_evaluation_graph_with_an_invalid_class_fails),
        fresh(an_evaluation_graph_with_other_outputs_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
