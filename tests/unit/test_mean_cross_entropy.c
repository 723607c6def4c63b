/* tu_mean_cross_entropy: rows with the ignored label do not count, and a label out of range gives NaN. */
#include "unit/evaluate.h"

#include <string.h>

enum { ROWS = 4, CLASSES = 3 };

static const double logits_list[ROWS * CLASSES] = {1, 0, -1, 0.5, 2, 0, -1, 0, 3, 0, 0, 0};

static double loss_of(int row, int label) {
    double sum = 0;
    for (int i = 0; i < CLASSES; i++) sum += exp(logits_list[row * CLASSES + i]);
    return log(sum) - logits_list[row * CLASSES + label];
}

static tu_value logits_in(tu_graph *graph) {
    return constant_of(graph, TU_F64, TU_SHAPE(ROWS, CLASSES), logits_list);
}

static double run_scalar(tu_value value) {
    double *list = computed(value), first = list[0];
    free(list);
    return first;
}

static void without_ignore_all_rows_count(void **state) {
    (void)state;
    tu_graph *graph = new_graph();
    tu_value labels = constant_of(graph, TU_I32, TU_SHAPE(ROWS), (const double[]){0, 1, 2, 1});
    double expected = (loss_of(0, 0) + loss_of(1, 1) + loss_of(2, 2) + loss_of(3, 1)) / 4;
    assert_float_equal(run_scalar(tu_mean_cross_entropy(logits_in(graph), labels)), expected, 1e-12);
}

static void ignored_rows_do_not_count_in_the_mean(void **state) {
    (void)state;
    const double outside[] = {0, -1, 2, -1}, inside[] = {0, 1, 2, 1};
    double expected = (loss_of(0, 0) + loss_of(2, 2)) / 2;
    tu_graph *graph = new_graph();
    tu_value labels = constant_of(graph, TU_I64, TU_SHAPE(ROWS), outside);
    assert_float_equal(
        run_scalar(tu_mean_cross_entropy(logits_in(graph), labels, .ignore = true, .ignore_label = -1)),
        expected, 1e-12);
    graph = new_graph(); /* the ignored label may also be a valid class */
    labels = constant_of(graph, TU_I32, TU_SHAPE(ROWS), inside);
    assert_float_equal(
        run_scalar(tu_mean_cross_entropy(logits_in(graph), labels, .ignore = true, .ignore_label = 1)),
        expected, 1e-12);
    graph = new_graph();
    labels = constant_of(graph, TU_I32, TU_SHAPE(ROWS), (const double[]){7, 7, 7, 7});
    assert_true(
        run_scalar(tu_mean_cross_entropy(logits_in(graph), labels, .ignore = true, .ignore_label = 7)) == 0);
}

static void labels_out_of_range_that_are_not_ignored_give_nan(void **state) {
    (void)state;
    const double labels_list[] = {0, -1, 3, 1};
    tu_graph *graph = new_graph();
    tu_value labels = constant_of(graph, TU_I32, TU_SHAPE(ROWS), labels_list);
    assert_true(isnan(run_scalar(tu_mean_cross_entropy(logits_in(graph), labels))));
    graph = new_graph();
    labels = constant_of(graph, TU_I32, TU_SHAPE(ROWS), labels_list);
    assert_true(isnan(
        run_scalar(tu_mean_cross_entropy(logits_in(graph), labels, .ignore = true, .ignore_label = -1))));
}

static void gradients_of_ignored_rows_are_zero_and_the_mean_counts_only_other_rows(void **state) {
    (void)state;
    tu_graph *graph = new_graph();
    tu_value logits = logits_in(graph), gradient;
    tu_value labels = constant_of(graph, TU_I32, TU_SHAPE(ROWS), (const double[]){0, -1, 2, -1});
    tu_value loss = tu_mean_cross_entropy(logits, labels, .ignore = true, .ignore_label = -1);
    assert_int_equal(tu_gradients(loss, 1, &logits, &gradient), TU_OK);
    double *got = computed(gradient);
    for (int i = 0; i < ROWS * CLASSES; i++) {
        int row = i / CLASSES, class = i % CLASSES;
        double target = row == 0 ? class == 0 : class == 2, expected = 0;
        if (row % 2 == 0) expected = (exp(-loss_of(row, class)) - target) / 2;
        assert_float_equal(got[i], expected, 1e-12);
    }
    free(got);
}

/* The sum of 70,000 losses of log 3 is 76,900; the largest f16 is 65,504. */
static void the_mean_of_many_f16_losses_does_not_overflow(void **state) {
    (void)state;
    enum { MANY = 70000 };
    tu_program *program;
    tu_state *none;
    double *labels = calloc(MANY, sizeof *labels);
    uint16_t *logits = calloc(MANY, CLASSES * sizeof *logits), result;
    assert_true(labels && logits);
    labels[7] = -1;
    tu_graph *graph = new_graph();
    tu_value x = tu_input(graph, "logits", TU_F16, TU_SHAPE(MANY, CLASSES));
    tu_value mean = tu_mean_cross_entropy(x, constant_of(graph, TU_I32, TU_SHAPE(MANY), labels),
                                          .ignore = true, .ignore_label = -1);
    assert_int_equal(tu_value_dtype(mean), TU_F16);
    assert_int_equal(tu_compile(graph, &program, .devices = "ref", .fetch = &mean, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(graph, &none), TU_OK);
    assert_int_equal(tu_run(program, none, 1, &(tu_feed){x, logits}, (void *[]){&result}), TU_OK);
    assert_true(fabs(tu__load(TU_F16, &result, 0) - log(3)) < 1e-3); /* assert_float_equal accepts infinity */
    tu_program_free(program);
    tu_state_free(none);
    free(labels);
    free(logits);
}

static void ignore_label_without_ignore_is_rejected(void **state) {
    (void)state;
    tu_graph *graph = new_graph();
    tu_value labels = constant_of(graph, TU_I32, TU_SHAPE(ROWS), (const double[]){0, 1, 2, 1});
    assert_false(tu_ok(tu_mean_cross_entropy(logits_in(graph), labels, .ignore_label = 3)));
    assert_non_null(
        strstr(tu_message(), ".ignore_label is 3, but .ignore is not set: expected .ignore = true"));
}

static void probabilities_as_labels_are_rejected(void **state) {
    (void)state;
    tu_graph *graph = new_graph();
    tu_value logits = logits_in(graph);
    assert_false(tu_ok(tu_mean_cross_entropy(logits, logits)));
    assert_non_null(strstr(tu_message(), "expected class indices, i32 or i64"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_ignore_all_rows_count),
        cmocka_unit_test(ignored_rows_do_not_count_in_the_mean),
        cmocka_unit_test(labels_out_of_range_that_are_not_ignored_give_nan),
        cmocka_unit_test(gradients_of_ignored_rows_are_zero_and_the_mean_counts_only_other_rows),
        cmocka_unit_test(the_mean_of_many_f16_losses_does_not_overflow),
        cmocka_unit_test(ignore_label_without_ignore_is_rejected),
        cmocka_unit_test(probabilities_as_labels_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, free_last_graph);
}
