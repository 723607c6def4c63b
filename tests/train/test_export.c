/* tu_export: the model file answers like the run, its golden samples come from the test split, and nothing is written if the
 * export fails. */
#include "train/fresh_run.h"

#include <tutti/model.h>

#include "base/alloc.h"
#include "graph/graph.h"
#include "infer/model_file.h"

enum { PIXELS = SMALL_SIDE * SMALL_SIDE, GOLDEN = 8 };

static void export_small(const char *run, const char *path) {
    tu_status status = tu_export(run, path, NULL, .set = set);
    if (status != TU_OK) print_message("%s\n", tu_message());
    assert_int_equal(status, TU_OK);
}

/* ---- What the file contains ---- */

static void a_model_file_answers_like_its_run(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run"), path = in_scratch("a.model");
    train_small(set, NULL, .out = run.text, .epochs = 2);
    tu_export_result result = TU_SIZED(tu_export_result);
    assert_int_equal(tu_export(run.text, path.text, &result, .set = set), TU_OK);
    assert_int_equal(result.step, 2 * SMALL_STEPS);
    assert_int_equal(result.golden, GOLDEN);
    assert_int_equal(result.parameters, PIXELS * 8 + 8 + 8 * 8 + 8 + 8 * SMALL_CLASSES + SMALL_CLASSES);

    tu_predictor *predictor, *from_file;
    tu_model *model;
    assert_int_equal(tu_predictor_new(run.text, &predictor), TU_OK);
    assert_int_equal(tu_predictor_new(path.text, &from_file, .devices = "cpu:0"), TU_OK);
    assert_int_equal(tu_model_load(path.text, &model, .devices = "cpu:0"), TU_OK);
    float images[SMALL_TEST][PIXELS], expected[SMALL_TEST][SMALL_CLASSES], got[SMALL_TEST][SMALL_CLASSES];
    int32_t label;
    for (int i = 0; i < SMALL_TEST; i++)
        assert_int_equal(small_dataset_read(NULL, TU_TEST, i, images[i], &label), TU_OK);
    assert_int_equal(tu_predict_images(predictor, TU_F32, images, SMALL_TEST, expected[0]), TU_OK);
    assert_int_equal(tu_model_run(model, SMALL_TEST, images, got), TU_OK);
    for (int i = 0; i < SMALL_TEST; i++)
        for (int k = 0; k < SMALL_CLASSES; k++) assert_true(fabsf(got[i][k] - expected[i][k]) < 1e-5F);
    float predicted[SMALL_TEST][SMALL_CLASSES];
    assert_int_equal(tu_predict_images(from_file, TU_F32, images, SMALL_TEST, predicted[0]), TU_OK);
    assert_memory_equal(predicted, got, sizeof got);

    const char *const *names;
    assert_int_equal(tu_predictor_classes(from_file, &names), SMALL_CLASSES);
    assert_string_equal(names[2], "left");
    assert_true(tu_shape_equal(tu_predictor_input(from_file).shape, TU_SHAPE(SMALL_SIDE, SMALL_SIDE, 1)));
    tu_predictor_free(predictor);
    tu_predictor_free(from_file);
    tu_model_free(model);
}

static void golden_samples_are_spread_over_the_test_split(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run"), path = in_scratch("a.model");
    train_small(set, NULL, .out = run.text, .epochs = 1);
    export_small(run.text, path.text);
    tu__model_file file;
    assert_int_equal(tu__model_file_open(path.text, &file), TU_OK);
    assert_int_equal(file.golden_count, GOLDEN);
    assert_string_equal(file.golden_inputs[0].name, "images");
    for (int i = 0; i < GOLDEN; i++) {
        float image[PIXELS];
        int32_t label;
        assert_int_equal(small_dataset_read(NULL, TU_TEST, i * SMALL_TEST / GOLDEN, image, &label), TU_OK);
        assert_memory_equal((const float *)file.golden_inputs[0].data + (size_t)i * PIXELS, image,
                            sizeof image);
    }
    assert_int_equal(file.output_count, 2);
    assert_string_equal(file.golden_outputs[0].name, "probability");
    assert_string_equal(file.golden_outputs[1].name, "logits");
    static const char *const precisions[] = {"f32", "tf32", "bf16", "f16"};
    for (int i = 0; i < 4; i++) {
        const tu__model_bound *probability = tu__model_file_bound(&file, "probability", precisions[i]),
                              *logits = tu__model_file_bound(&file, "logits", precisions[i]);
        assert_non_null(probability);
        assert_non_null(logits);
        assert_true(!probability->relative && logits->relative);
    }
    assert_true(tu__model_file_bound(&file, "logits", "f32")->limit < 1e-3);
    tu__model_file_close(&file);
}

static void texts_describe_the_run(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run"), path = in_scratch("a.model");
    train_small(set, NULL, .out = run.text, .epochs = 1);
    assert_int_equal(tu_export(run.text, path.text, NULL, .set = set, .name = "shapes", .licence = "free"),
                     TU_OK);
    tu__model_file file;
    assert_int_equal(tu__model_file_open(path.text, &file), TU_OK);
    assert_string_equal(tu__model_file_text(&file, "name"), "shapes");
    assert_string_equal(tu__model_file_text(&file, "licence"), "free");
    assert_string_equal(tu__model_file_text(&file, "dataset"), "small");
    assert_non_null(strstr(tu__model_file_text(&file, "metrics"), "\"step\":4"));
    assert_non_null(strstr(tu__model_file_text(&file, "preprocessing"), "Input: f32 images [n,8,8,1]"));
    assert_string_equal(file.labels[0], "above");
    tu__model_file_close(&file);
}

static void an_ensemble_is_one_model(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("ensemble"), path = in_scratch("a.model");
    assert_int_equal(
        tu_train_ensemble("mlp", NULL, 2, NULL, .set = set, SMALL_RUN, .out = run.text, .epochs = 1), TU_OK);
    tu_export_result result = TU_SIZED(tu_export_result);
    assert_int_equal(tu_export(run.text, path.text, &result, .set = set), TU_OK);
    assert_int_equal(result.members, 2);
    tu__model_file file;
    assert_int_equal(tu__model_file_open(path.text, &file), TU_OK);
    assert_int_equal(file.output_count, 1);
    assert_int_equal(file.variable_count, 12);
    assert_non_null(tu__model_file_variable(&file, "member1/hidden1/weights"));
    tu__model_file_close(&file);
    tu_predictor *predictor, *from_file;
    assert_int_equal(tu_predictor_new(run.text, &predictor), TU_OK);
    assert_int_equal(tu_predictor_new(path.text, &from_file, .devices = "cpu:0"), TU_OK);
    float image[PIXELS], expected[SMALL_CLASSES], got[SMALL_CLASSES];
    int32_t label;
    assert_int_equal(small_dataset_read(NULL, TU_TEST, 3, image, &label), TU_OK);
    assert_int_equal(tu_predict_images(predictor, TU_F32, image, 1, expected), TU_OK);
    assert_int_equal(tu_predict_images(from_file, TU_F32, image, 1, got), TU_OK);
    for (int k = 0; k < SMALL_CLASSES; k++) assert_true(fabsf(got[k] - expected[k]) < 1e-5F);
    tu_predictor_free(predictor);
    tu_predictor_free(from_file);
}

/* ---- Verifying ---- */

typedef struct outcomes {
    int passed, failed, skipped;
    bool equal_bits;
} outcomes;

static void count_outcomes(void *context, const tu_verify_check *check) {
    outcomes *o = context;
    o->passed += check->outcome == TU_VERIFY_PASSED;
    o->failed += check->outcome == TU_VERIFY_FAILED;
    o->skipped += check->outcome == TU_VERIFY_SKIPPED;
    o->equal_bits = o->equal_bits || (check->limit == 0 && check->outcome == TU_VERIFY_PASSED);
    if (check->outcome == TU_VERIFY_FAILED) assert_non_null(check->reason);
}

static void an_exported_model_is_verified(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run"), path = in_scratch("a.model");
    train_small(set, NULL, .out = run.text, .epochs = 1);
    export_small(run.text, path.text);
    outcomes o = {0};
    tu_verify_result result = TU_SIZED(tu_verify_result);
    assert_int_equal(tu_model_verify(path.text, &result, .devices = "cpu:0,ref", .on_check = count_outcomes,
                                     .context = &o),
                     TU_OK);
    assert_int_equal(result.failed, 0);
    assert_int_equal(result.passed, o.passed);
    assert_int_equal(result.skipped, o.skipped);
    assert_true(o.passed >= 4 && o.equal_bits);
    assert_int_equal(result.samples, GOLDEN);
    assert_int_equal(result.tensors, 6 + 1 + 2 + 1);
    expect_error(tu_model_verify(path.text, NULL, .devices = "cpu:0,"), TU_INVALID, "devices is 'cpu:0,'");
}

/* A file that is intact but states other outputs. */
static void a_model_with_other_weights_fails(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run"), path = in_scratch("a.model"), other = in_scratch("b.model");
    train_small(set, NULL, .out = run.text, .epochs = 1);
    export_small(run.text, path.text);
    tu__model_file file;
    assert_int_equal(tu__model_file_open(path.text, &file), TU_OK);
    tu__named_tensor variables[6];
    float bias[SMALL_CLASSES];
    assert_int_equal(file.variable_count, 6);
    memcpy(variables, file.variables, sizeof variables);
    for (int i = 0; i < 6; i++) {
        if (strcmp(variables[i].name, "logits/bias") != 0) continue;
        memcpy(bias, variables[i].data, sizeof bias);
        bias[0] += 0.25F;
        variables[i].data = bias;
    }
    file.variables = variables;
    assert_int_equal(tu__model_file_save(other.text, &file), TU_OK);
    tu__model_file_close(&file);
    outcomes o = {0};
    tu_verify_result result = TU_SIZED(tu_verify_result);
    assert_int_equal(tu_model_verify(other.text, &result, .devices = "ref,cpu:0", .on_check = count_outcomes,
                                     .context = &o),
                     TU_OK);
    assert_true(result.failed >= 4); /* both outputs, on ref and on the CPU in f32 */
    assert_int_equal(result.failed, o.failed);
}

/* ---- Failures ---- */

static void a_failed_export_writes_nothing(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run"), path = in_scratch("a.model"), none = in_scratch("none");
    train_small(set, NULL, .out = run.text, .epochs = 1);
    expect_error(tu_export(none.text, path.text, NULL, .set = set), TU_NOT_FOUND, "is not a run folder");
    expect_error(tu_export(run.text, path.text, NULL), TU_INVALID, "name a data set with --data");
    expect_error(tu_export(run.text, path.text, NULL, .data = "generated"), TU_INVALID, "has images u8");
    expect_error(tu_export(run.text, path.text, NULL, .set = set, .checkpoint = "17"), TU_NOT_FOUND,
                 "checkpoint '17'");
    small_dataset_unreadable[TU_TEST] = 0;
    expect_error(tu_export(run.text, path.text, NULL, .set = set), TU_IO, "image 0 cannot be read");
    small_dataset_unreadable[TU_TEST] = -1;
    assert_false(exists(scratch, "a.model"));
    tu_export_result unset = {0};
    expect_error(tu_export(run.text, path.text, &unset, .set = set), TU_INVALID, "tu_export_result");
    expect_error(tu_export(run.text, "/no/such/folder/a.model", NULL, .set = set), TU_IO,
                 "/no/such/folder/a.model");
}

static void save_predict_graph(const char *run, void (*edit)(tu_graph *graph)) {
    char path[1024];
    tu_graph *graph;
    snprintf(path, sizeof path, "%s/graphs/predict.graph", run);
    assert_int_equal(tu_graph_load(path, &graph), TU_OK);
    edit(graph);
    assert_int_equal(tu_graph_save(graph, path), TU_OK);
    tu_graph_free(graph);
}

static void add_input(tu_graph *graph) {
    tu_batch_input(graph, "more", TU_F32, TU_SHAPE(1, 2));
}

static void add_outputs(tu_graph *graph) {
    tu_value probability = tu_find_output(graph, "probability");
    tu_output(probability, "second");
    tu_output(probability, "third");
}

static void edited_graphs_are_refused(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run"), path = in_scratch("a.model");
    train_small(set, NULL, .out = run.text, .epochs = 1);
    save_predict_graph(run.text, add_outputs);
    expect_error(tu_export(run.text, path.text, NULL, .set = set), TU_CORRUPT, "expected 'probability'");
    struct scratch_path other = in_scratch("other");
    train_small(set, NULL, .out = other.text, .epochs = 1);
    save_predict_graph(other.text, add_input);
    expect_error(tu_export(other.text, path.text, NULL, .set = set), TU_CORRUPT,
                 "the unexpected input 'more'");
    assert_false(exists(scratch, "a.model"));
}

/* An export makes thousands of allocations. Without TUTTI_EVERY_CALL some of them fail. */
static void failed_allocations_are_reported(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run"), path = in_scratch("a.model");
    train_small(set, NULL, .out = run.text, .epochs = 1);
    export_small(run.text, path.text);
    assert_int_equal(unlink(path.text), 0);
    int64_t live = tu__alloc_live();
    uint64_t step = getenv("TUTTI_EVERY_CALL") ? 1 : 37, n = 1, tried = 0;
    for (tu_status status = TU_NO_MEMORY; status != TU_OK; n += step) {
        tu__alloc_fail_at(n);
        status = tu_export(run.text, path.text, NULL, .set = set);
        tu__alloc_fail_at(0);
        if (status != TU_OK) assert_int_equal(status, TU_NO_MEMORY);
        assert_int_equal(tu__alloc_live(), live);
        tried++;
    }
    assert_true(tried > 10);
}

/* Every bit with TUTTI_EVERY_CALL. test_model_file flips every bit of a smaller file. */
static void flipped_bits_are_noticed(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run"), path = in_scratch("a.model");
    train_small(set, NULL, .out = run.text, .epochs = 1);
    export_small(run.text, path.text);
    FILE *file = fopen(path.text, "rb");
    assert_non_null(file);
    enum { MOST = 1 << 18 };
    unsigned char *bytes = malloc(MOST);
    assert_non_null(bytes);
    size_t size = fread(bytes, 1, MOST, file), step = getenv("TUTTI_EVERY_CALL") ? 1 : 61;
    fclose(file);
    assert_true(size > 1000 && size < MOST);
    for (size_t bit = 0; bit < 8 * size; bit += step) {
        tu__model_file parsed;
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        tu_status status = tu__model_file_parse("a.model", bytes, size, &parsed);
        tu__model_file_close(&parsed);
        if (status == TU_OK)
            fail_msg("the file is accepted if bit %zu of byte %zu is flipped", bit % 8, bit / 8);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(a_model_file_answers_like_its_run),
        fresh(golden_samples_are_spread_over_the_test_split),
        fresh(texts_describe_the_run),
        fresh(an_ensemble_is_one_model),
        fresh(an_exported_model_is_verified),
        fresh(a_model_with_other_weights_fails),
        fresh(a_failed_export_writes_nothing),
        fresh(edited_graphs_are_refused),
        fresh(failed_allocations_are_reported),
        fresh(flipped_bits_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
