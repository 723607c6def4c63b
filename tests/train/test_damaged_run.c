/* A run folder whose files do not belong together, because somebody edited or mixed them, is refused in one line by
 * whatever reads it: training, evaluation and prediction never write past what the other file made them expect. */
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

/* A run of four steps, of which one was made. */
#define begin_run(name, ...)                                                                                 \
    struct scratch_path run = in_scratch(name);                                                              \
    stop_at = 1;                                                                                             \
    stop_flag = 0;                                                                                           \
    train_small(set, NULL, .out = run.text, .epochs = 1, .stop = &stop_flag, .watch = stop_there, __VA_ARGS__)

/* ---- config.json ---- */

static void images_of_another_size_than_the_graphs_are_refused(void **state) {
    (void)state;
    begin_run("size", .seed = 1);
    replace_in_config(run.text, "\"height\":8", "\"height\":4096");
    expect_refusal(open_predictor(run.text), TU_CORRUPT, "graph 'predict' has 'images' f32[1,8,8,1]");
    expect_refusal(evaluate(run.text), TU_CORRUPT, "graph 'evaluate' has 'images'");
    assert_int_not_equal(resume(run.text), TU_OK);
}

static void images_of_another_type_than_the_graphs_are_refused(void **state) {
    (void)state;
    begin_run("type", .seed = 1);
    replace_in_config(run.text, "\"dtype\":\"f32\"", "\"dtype\":\"u8\"");
    expect_refusal(open_predictor(run.text), TU_CORRUPT, "expected u8[1,8,8,1]");
    expect_refusal(evaluate(run.text), TU_CORRUPT, "expected u8[16,8,8,1]");
    assert_int_not_equal(resume(run.text), TU_OK);
}

static void other_classes_than_the_graphs_are_refused(void **state) {
    (void)state;
    begin_run("classes", .seed = 1);
    replace_in_config(run.text, "\"above\",\"below\",\"left\"", "\"above\"");
    expect_refusal(open_predictor(run.text), TU_CORRUPT, "'probability' f32[1,3]: expected f32[1,1]");
    assert_int_not_equal(evaluate(run.text), TU_OK);
    assert_int_not_equal(resume(run.text), TU_OK);
}

static void batches_and_steps_that_do_not_follow_from_the_settings_are_refused(void **state) {
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
        expect_refusal(resume(run.text), TU_CORRUPT, "expected");
    }
}

/* ---- Graphs ---- */

static void a_step_that_is_not_the_runs_own_is_refused(void **state) {
    (void)state;
    begin_run("own", .seed = 1);
    struct scratch_path other = in_scratch("other");
    train_small(set, NULL, .out = other.text, .epochs = 1, .label_smoothing = 0.5);
    command("cp '%s/graphs/step.graph' '%s/graphs/step.graph'", other.text, run.text);
    expect_refusal(resume(run.text), TU_CORRUPT, "graph 'step' is not the one the run was begun with");
}

static void graphs_of_a_run_in_pieces_do_not_serve_one_without(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("whole"), pieces = in_scratch("pieces");
    assert_int_equal(tu_train("mlp", NULL, NULL, .set = set, .out = run.text, .devices = "cpu:0",
                              .threads = 1, .batch = SMALL_BATCH / 2, .base = 8, .epochs = 1),
                     TU_OK);
    train_small(set, NULL, .out = pieces.text, .epochs = 1, .accumulate = 2);
    command("cp '%s/graphs/step-short.graph' '%s/graphs/step-short.graph'", pieces.text, run.text);
    expect_refusal(resume(run.text), TU_CORRUPT, "graph 'step-short' has an input 'share': expected none");
    command("rm '%s/graphs/step-short.graph'", run.text);
    assert_int_not_equal(resume(run.text), TU_OK);
}

/* An evaluation that takes what a run's does; `class` is the class it finds in every image. */
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

static void an_evaluation_that_finds_a_class_there_is_none_of_is_refused(void **state) {
    (void)state;
    begin_run("class", .seed = 1);
    save_evaluation(run.text, 2, TU_F32, false);
    assert_int_equal(evaluate(run.text), TU_OK);
    save_evaluation(run.text, 1000000, TU_F32, false);
    expect_refusal(evaluate(run.text), TU_CORRUPT, "gave class 1000000: expected one of its 3");
    save_evaluation(run.text, -1, TU_F32, false);
    expect_refusal(evaluate(run.text), TU_CORRUPT, "gave class -1");
}

static void an_evaluation_with_other_results_is_refused(void **state) {
    (void)state;
    begin_run("results", .seed = 1);
    save_evaluation(run.text, 0, TU_I64, false);
    expect_refusal(evaluate(run.text), TU_CORRUPT, "graph 'evaluate' has 'loss' i64[]: expected f32[]");
    save_evaluation(run.text, 0, TU_F32, true);
    expect_refusal(evaluate(run.text), TU_CORRUPT, "'top5'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(images_of_another_size_than_the_graphs_are_refused),
        fresh(images_of_another_type_than_the_graphs_are_refused),
        fresh(other_classes_than_the_graphs_are_refused),
        fresh(batches_and_steps_that_do_not_follow_from_the_settings_are_refused),
        fresh(a_step_that_is_not_the_runs_own_is_refused),
        fresh(graphs_of_a_run_in_pieces_do_not_serve_one_without),
        fresh(an_evaluation_that_finds_a_class_there_is_none_of_is_refused),
        fresh(an_evaluation_with_other_results_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
