/* Training runs of other tasks than pictures: metrics against their definition, resuming, a task of the program, hooks, class
 * weights, predictions of rows, exported models, and lists of runs. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <tutti/runs.h>

#include <tutti/model.h>
#include <tutti/ops.h>

#include "train/fresh_run.h"

enum { ROWS = 400 };

/* ---- Tables ---- */

/* Writes FOLDER/NAME: two numbers, a category, missing cells, a number and a class to predict. */
static void write_table(const char *name, int rows) {
    char path[512];
    unsigned seed = 7;
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "a,b,colour,y,kind\n");
    for (int i = 0; i < rows; i++) {
        double a = rand_r(&seed) % 1000 / 100.0, b = rand_r(&seed) % 1000 / 10.0 - 50;
        int colour = rand_r(&seed) % 3;
        double y = 3 * a - b / 5 + 10 * colour;
        char cell[32] = "";
        if (i % 11) snprintf(cell, sizeof cell, "%.2f", a);
        fprintf(file, "%s,%.1f,%s,%.3f,%s\n", cell, b,
                colour == 0   ? "red"
                : colour == 1 ? "green"
                              : "blue",
                y, y > 25 ? "high" : "low");
    }
    assert_int_equal(fclose(file), 0);
}

static char table[512], run_folder[512];

static int begin(void **state) {
    scratch_begin(state);
    setenv("TUTTI_DATA", scratch, 1);
    write_table("rows.csv", ROWS);
    snprintf(table, sizeof table, "%s/rows.csv", scratch);
    snprintf(run_folder, sizeof run_folder, "%s/run", scratch);
    return 0;
}

#define on_table(test) cmocka_unit_test_setup_teardown(test, begin, scratch_end)

#define train_table(result, ...)                                                                             \
    tu_train("mlp", table, result, .base = 16, .batch = 32, .devices = "cpu", .threads = 1,                  \
             .out = run_folder, __VA_ARGS__)

static void check(tu_status status) {
    if (status != TU_OK) print_message("%s\n", tu_message());
    assert_int_equal(status, TU_OK);
}

/* Reads the predictions of the column `name`. */
static int read_predictions(const char *path, const char *name, double *numbers) {
    char line[1024];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(strncmp(line, name, strlen(name)), 0);
    int count = 0;
    while (fgets(line, sizeof line, file)) numbers[count++] = atof(line);
    fclose(file);
    return count;
}

/* RMSE, MAE and R2 of the test rows are those of the predictions that tutti predict writes. */
static void metrics_of_regression_are_those_of_the_predictions(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    char out[600];
    static double predicted[ROWS];
    check(train_table(&result, .target = "y", .drop = "kind", .steps = 200));
    assert_string_equal(result.task, "regression");
    assert_int_equal(result.metric_count, 3);
    assert_string_equal(result.test_metrics[0].name, "rmse");
    assert_true(result.test_metrics[2].value > 0.9);
    snprintf(out, sizeof out, "%s/predictions.csv", scratch);
    tu_table_prediction prediction = TU_SIZED(tu_table_prediction);
    check(tu_predict_table(run_folder, table, out, &prediction));
    assert_int_equal(prediction.rows, ROWS);
    assert_int_equal(read_predictions(out, "y", predicted), ROWS);

    tu_dataset *opened;
    check(tu_dataset_open(table, &opened, .target = "y", .drop = "kind"));
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    check(tu_dataset_describe(opened, &info));
    static double wanted[ROWS], b[ROWS]; /* several rows may have the same target */
    static const char *const format = "awk -F, 'NR>1{print $4, $2}' '%s' > '%s/wanted.txt'";
    command(format, table, scratch);
    char path[600];
    snprintf(path, sizeof path, "%s/wanted.txt", scratch);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(fscanf(file, "%lf %lf", &wanted[i], &b[i]), 2); // NOLINT(cert-err34-c)
    fclose(file);
    double squares = 0, absolute = 0, sum = 0, sum_squares = 0, n = (double)info.count[TU_TEST];
    for (int64_t i = 0; i < info.count[TU_TEST]; i++) {
        float numbers[2], y;
        int32_t category;
        check(tu_dataset_read_columns(opened, TU_TEST, i, (void *[]){numbers, &category, &y}));
        int row = 0;
        while (row < ROWS &&
               (fabs(wanted[row] - (double)y) > 1e-4 || fabs(b[row] - (double)numbers[1]) > 1e-4))
            row++;
        assert_true(row < ROWS);
        double error = predicted[row] - wanted[row];
        squares += error * error;
        absolute += fabs(error);
        sum += wanted[row];
        sum_squares += wanted[row] * wanted[row];
    }
    tu_dataset_free(opened);
    assert_true(fabs(result.test_metrics[0].value - sqrt(squares / n)) < 1e-3 * sqrt(squares / n));
    assert_true(fabs(result.test_metrics[1].value - absolute / n) < 1e-3 * absolute / n);
    assert_true(fabs(result.test_metrics[2].value - (1 - squares / (sum_squares - sum * sum / n))) < 1e-4);

    tu_evaluation evaluation = TU_SIZED(tu_evaluation);
    check(tu_evaluate(run_folder, &evaluation));
    assert_int_equal(evaluation.classes, 0);
    for (size_t i = 0; i < 3; i++) assert_true(evaluation.metrics[i].value == result.test_metrics[i].value);
    tu_evaluation_free(&evaluation);
}

/* Squares of 1e-30 and of 1e30 do not fit into f32; metrics do not depend on the unit of the target. */
static void metrics_are_right_for_targets_of_any_unit(void **state) {
    (void)state;
    double errors[2];
    for (int i = 0; i < 2; i++) {
        command("awk -F, 'NR==1{print \"a,b,y\"} NR>1{print $1\",\"$2\",\"$4\"e%s\"}' '%s' > '%s/u.csv'",
                i ? "30" : "-30", table, scratch);
        char units[600];
        snprintf(units, sizeof units, "%s/u.csv", scratch);
        tu_train_result result = TU_SIZED(tu_train_result);
        check(tu_train("mlp", units, &result, .target = "y", .base = 16, .batch = 32, .devices = "cpu",
                       .threads = 1, .steps = 200, .out = run_folder));
        errors[i] = result.test_metrics[0].value * (i ? 1e-30 : 1e30);
        assert_true(errors[i] > 1 && errors[i] < 30);
        assert_true(result.test_metrics[1].value < result.test_metrics[0].value);
        assert_true(result.test_metrics[2].value > 0.3 && result.test_metrics[2].value < 1);
        command("rm -r '%s'", run_folder);
    }
    assert_true(fabs(errors[0] - errors[1]) < 0.05 * errors[0]);
}

/* R2 compares with the spread of the targets, which a single row does not have. */
static void r2_of_a_single_row_is_zero(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    write_table("rows.csv", 12);
    check(train_table(&result, .target = "y", .drop = "kind", .steps = 20, .validation = -1));
    assert_string_equal(result.test_metrics[2].name, "r2");
    assert_true(result.test_metrics[2].value == 0);
}

static void a_resumed_run_has_the_same_bits(void **state) {
    (void)state;
    tu_train_result whole = TU_SIZED(tu_train_result), part = TU_SIZED(tu_train_result);
    check(train_table(&whole, .target = "y", .steps = 40, .checkpoint_every = 7, .keep = 100));
    command("rm '%s'/checkpoints/step-4*.safetensors '%s'/checkpoints/step-35.safetensors", run_folder,
            run_folder);
    check(tu_train(run_folder, NULL, &part, .resume = true));
    assert_string_equal(whole.digest, part.digest);
    for (size_t i = 0; i < whole.metric_count; i++) {
        assert_true(whole.test_metrics[i].value == part.test_metrics[i].value);
        assert_true(whole.validation_metrics[i].value == part.validation_metrics[i].value);
    }
    assert_int_equal(whole.best_step, part.best_step);
    tu_train_result again = TU_SIZED(tu_train_result); /* a finished run has the metrics of its checkpoint */
    check(tu_train(run_folder, NULL, &again, .resume = true));
    assert_true(again.test_metrics[0].value == whole.test_metrics[0].value);
    write_table("rows.csv", ROWS + 1);
    expect_error(tu_train(run_folder, NULL, NULL, .resume = true), TU_INVALID,
                 "has changed since the run was started");
}

static void rows_are_classified(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    check(train_table(&result, .target = "kind", .drop = "y", .steps = 300));
    assert_string_equal(result.task, "classification");
    assert_true(result.test_accuracy > 0.85);
    tu_evaluation evaluation = TU_SIZED(tu_evaluation);
    check(tu_evaluate(run_folder, &evaluation));
    assert_int_equal(evaluation.metric_count, 5);
    assert_string_equal(evaluation.metrics[2].name, "f1");
    /* F1 from the confusion matrix */
    const int64_t *c = evaluation.confusion;
    double first = 2.0 * (double)c[0] / (double)(2 * c[0] + c[1] + c[2]),
           second = 2.0 * (double)c[3] / (double)(2 * c[3] + c[1] + c[2]);
    assert_true(fabs(evaluation.metrics[2].value - (first + second) / 2) < 1e-12);
    assert_true(evaluation.metrics[3].value > 0.9 && evaluation.metrics[3].value <= 1);
    tu_evaluation_free(&evaluation);
}

static void a_model_file_predicts_the_same_rows(void **state) {
    (void)state;
    char model[600], a[600], b[600];
    snprintf(model, sizeof model, "%s/rows.model", scratch);
    snprintf(a, sizeof a, "%s/a.csv", scratch);
    snprintf(b, sizeof b, "%s/b.csv", scratch);
    check(train_table(NULL, .target = "kind", .drop = "y", .steps = 30));
    check(tu_export(run_folder, model, NULL));
    check(tu_predict_table(run_folder, table, a, NULL));
    check(tu_predict_table(model, table, b, NULL));
    command("cmp '%s' '%s'", a, b);
    tu_verify_result verified = TU_SIZED(tu_verify_result);
    check(tu_model_verify(model, &verified, .devices = "ref,cpu"));
    assert_int_equal(verified.failed, 0);
}

/* Unknown categories are missing ones, and are reported; a missing column or a bad number is an error. */
static void rows_to_predict_are_checked(void **state) {
    (void)state;
    char out[600], rows[600];
    snprintf(out, sizeof out, "%s/out.csv", scratch);
    snprintf(rows, sizeof rows, "%s/new.csv", scratch);
    check(train_table(NULL, .target = "y", .drop = "kind", .steps = 5));
    command("printf 'colour,extra,b,a\\nred,1,2,3\\npurple,1,2,3\\nteal,1,,3\\n' > '%s'", rows);
    tu_table_prediction prediction = TU_SIZED(tu_table_prediction);
    check(tu_predict_table(run_folder, rows, out, &prediction));
    assert_int_equal(prediction.rows, 3);
    assert_int_equal(prediction.unseen, 2);
    assert_non_null(
        strstr(prediction.first_unseen, "line 3, column 'colour': training never saw the category 'purple'"));
    command("printf 'colour,b\\nred,2\\n' > '%s'", rows);
    expect_error(tu_predict_table(run_folder, rows, out, NULL), TU_INVALID, "has no column 'a'");
    command("printf 'colour,b,a\\nred,2,1\\nred,x,1\\n' > '%s'", rows);
    expect_error(tu_predict_table(run_folder, rows, out, NULL), TU_INVALID,
                 "line 3, column 'b': 'x' is not a number");
    command("test $(wc -l < '%s') = 4", out); /* the earlier predictions are not lost */
}

/* ---- Several labels ---- */

static void labels_are_learned_together(void **state) {
    (void)state;
    command(
        "awk -F, 'NR==1{print \"a,b,p,q\"} NR>1{print $1\",\"$2\",\"($2>0)\",\"($2+$1*3>10)}' '%s' > '%s/l.csv'",
        table, scratch);
    snprintf(table, sizeof table, "%s/l.csv", scratch);
    tu_train_result result = TU_SIZED(tu_train_result);
    check(train_table(&result, .target = "p,q", .task = "labels", .steps = 300));
    assert_string_equal(result.test_metrics[0].name, "f1");
    assert_true(result.test_metrics[0].value > 0.85);
    assert_true(result.test_metrics[1].value <= result.test_metrics[2].value); /* exact matches are rarer */
    expect_error(tu_train("mlp", table, NULL, .target = "b", .task = "labels"), TU_INVALID,
                 "expected 0 and 1");
}

/* ---- A task of the program ---- */

static tu_value third_power(const tu_task_batch *b, tu_value output) {
    tu_value error = tu_abs(tu_sub(tu_squeeze_axis(output, 1), tu_task_standardize(b, tu_task_target(b))));
    return tu_mul(error, tu_square(error));
}

static void sum_rows(const tu_task_batch *b, tu_value output) {
    (void)output;
    tu_task_sum(
        b, "ones",
        tu_add(tu_mul(tu_task_target(b), tu_number(tu_task_target(b), 0)), tu_number(tu_task_target(b), 1)));
    tu_task_sum(b, "targets", tu_task_target(b));
}

static void report_sums(const tu_task_totals *t) {
    tu_task_metric(t, "mean_target", tu_div(tu_task_total(t, "targets"), tu_task_samples(t)),
                   TU_LOWER_IS_BETTER);
    tu_task_metric(t, "ones", tu_task_total(t, "ones"), TU_HIGHER_IS_BETTER);
}

static const tu_task cubes = {.abi = TU_ABI,
                              .struct_size = sizeof(tu_task),
                              .name = "cubes",
                              .summary = "a number",
                              .loss = third_power,
                              .measure = sum_rows,
                              .report = report_sums};

/* The samples that fill the last batch count in no sum: 40 test rows in batches of 32. */
static void sums_of_a_task_count_each_sample_once(void **state) {
    (void)state;
    enum { TEST_ROWS = ROWS / 10, VALIDATION_ROWS = TEST_ROWS * 9 / 10 };
    tu_train_result result = TU_SIZED(tu_train_result);
    check(tu_task_add(&cubes));
    check(train_table(&result, .target = "y", .drop = "kind", .task = "cubes", .steps = 20));
    assert_string_equal(result.task, "cubes");
    assert_string_equal(result.test_metrics[1].name, "ones");
    assert_true(result.test_metrics[1].value == TEST_ROWS);
    assert_true(result.validation_metrics[1].value == VALIDATION_ROWS);
    assert_true(fabs(result.test_metrics[0].value - 25) < 10);
}

static tu_value wrong_shape(const tu_task_batch *b, tu_value output) {
    (void)b;
    return tu_mean(output);
}

static void tasks_that_are_wrong_are_refused(void **state) {
    (void)state;
    tu_task task = cubes;
    task.name = "wrong";
    task.loss = wrong_shape;
    check(tu_task_add(&task));
    expect_error(train_table(NULL, .target = "y", .task = "wrong"), TU_INVALID,
                 "task 'wrong': .loss returns");
    task.name = "regression";
    expect_error(tu_task_add(&task), TU_INVALID, "a built-in task has this name");
    task.name = "other";
    task.abi = 1;
    expect_error(tu_task_add(&task), TU_UNSUPPORTED, "another Tutti version");
    expect_error(train_table(NULL, .target = "y", .task = "regresion"), TU_NOT_FOUND,
                 "did you mean 'regression'?");
    expect_error(train_table(NULL, .steps = 1), TU_INVALID, "name the column to predict with --target");
    expect_error(train_table(NULL, .target = "kind", .task = "regression"), TU_INVALID,
                 "the target has no numbers");
    expect_error(train_table(NULL, .target = "y", .flip = 1), TU_INVALID, "--flip needs pictures");
    expect_error(train_table(NULL, .target = "y", .class_weights = "balanced"), TU_INVALID,
                 "--class-weights needs classification");
}

/* ---- Hooks ---- */

struct counts {
    int steps, evaluations, checkpoints, fail_at;
};

static tu_status on_step(void *context, const tu_train_report *report) {
    struct counts *c = context;
    assert_int_equal(report->step, ++c->steps);
    return c->steps == c->fail_at ? tu_fail(TU_INVALID, "enough") : TU_OK;
}

static tu_status on_evaluation(void *context, const tu_train_report *report, const tu_state *variables) {
    struct counts *c = context;
    assert_true(report->metric_count > 0 && tu_state_variable_count(variables) > 0);
    c->evaluations++;
    return TU_OK;
}

static tu_status on_checkpoint(void *context, int64_t step, const char *path) {
    struct counts *c = context;
    assert_true(step > 0 && access(path, R_OK) == 0);
    c->checkpoints++;
    return TU_OK;
}

static tu_value half(void *context, tu_graph *graph, double rate, int64_t steps) {
    (void)context;
    assert_int_equal(steps, 12);
    return tu_scale(tu_cast(tu_step(graph), TU_F32), rate / 2);
}

static void keep_rate(void *context, const tu_train_report *report) {
    if (report->event == TU_TRAIN_STEPPED)
        ((struct counts *)context)->fail_at = (int)lround(report->rate * 1000);
}

static void hooks_are_called_and_may_end_a_run(void **state) {
    (void)state;
    struct counts counts = {0};
    tu_train_hooks hooks = {.struct_size = sizeof hooks,
                            .context = &counts,
                            .on_step = on_step,
                            .on_evaluation = on_evaluation,
                            .on_checkpoint = on_checkpoint};
    check(train_table(NULL, .target = "y", .steps = 12, .evaluate_every = 4, .checkpoint_every = 6,
                      .hooks = &hooks));
    assert_int_equal(counts.steps, 12);
    assert_int_equal(counts.evaluations, 4); /* three of the validation split, one of the test split */
    assert_int_equal(counts.checkpoints, 2);
    counts = (struct counts){.fail_at = 5};
    snprintf(run_folder, sizeof run_folder, "%s/second", scratch);
    expect_error(train_table(NULL, .target = "y", .steps = 12, .hooks = &hooks), TU_INVALID,
                 "enough; the state before the error is saved as checkpoint 5");
    counts = (struct counts){0};
    hooks = (tu_train_hooks){.struct_size = sizeof hooks, .schedule = half};
    snprintf(run_folder, sizeof run_folder, "%s/third", scratch);
    check(train_table(NULL, .target = "y", .steps = 12, .rate = 0.002, .hooks = &hooks,
                      .on_report = keep_rate, .context = &counts));
    assert_int_equal(counts.fail_at, 11); /* rate / 2 times step 11, in thousandths */
}

/* ---- Weights of classes ---- */

/* A weight of 0 for one class: the network never predicts it. */
static void classes_with_weight_zero_are_not_learned(void **state) {
    (void)state;
    tu_evaluation evaluation = TU_SIZED(tu_evaluation);
    check(train_table(NULL, .target = "kind", .drop = "y", .steps = 200, .class_weights = "high=0"));
    check(tu_evaluate(run_folder, &evaluation));
    assert_int_equal(evaluation.confusion[0] + evaluation.confusion[2], 0); /* predicted as high */
    tu_evaluation_free(&evaluation);
    snprintf(run_folder, sizeof run_folder, "%s/second", scratch);
    check(train_table(NULL, .target = "kind", .drop = "y", .steps = 20, .class_weights = "balanced",
                      .balanced = 1));
    snprintf(run_folder, sizeof run_folder, "%s/third", scratch);
    expect_error(train_table(NULL, .target = "kind", .class_weights = "middle=2"), TU_INVALID,
                 "--class-weights 'middle=2'");
}

/* ---- Lists of runs ---- */

static void *release_later(void *lock) {
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    close(*(int *)lock);
    return NULL;
}

/* Listing runs takes a shared lock for a moment, with which training must not collide. */
static void a_run_starts_while_runs_are_listed(void **state) {
    (void)state;
    char path[600];
    pthread_t thread;
    check(train_table(NULL, .target = "y", .steps = 4, .checkpoint_every = 2));
    snprintf(path, sizeof path, "%s/lock", run_folder);
    int lock = open(path, O_RDONLY);
    assert_true(lock >= 0);
    assert_int_equal(flock(lock, LOCK_SH), 0);
    assert_int_equal(pthread_create(&thread, NULL, release_later, &lock), 0);
    tu_status status = tu_train(run_folder, NULL, NULL, .resume = true);
    pthread_join(thread, NULL);
    check(status);
}

static void runs_are_listed_with_their_metrics(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    char curves[600];
    snprintf(run_folder, sizeof run_folder, "%s/runs/deep/a", scratch);
    check(train_table(&result, .target = "y", .steps = 20, .rate = 0.01));
    snprintf(run_folder, sizeof run_folder, "%s/runs/b", scratch);
    check(train_table(NULL, .target = "kind", .steps = 10));
    command("mkdir '%s/runs/c' && echo '{' > '%s/runs/c/config.json'", scratch, scratch);
    tu_runs *runs;
    snprintf(curves, sizeof curves, "%s/runs", scratch);
    check(tu_runs_open((const char *[]){curves}, 1, &runs));
    assert_int_equal(tu_runs_count(runs), 2);
    assert_non_null(strstr(tu_runs_problem(runs, 0), "config.json"));
    assert_null(tu_runs_problem(runs, 1));
    tu_run_info info = TU_SIZED(tu_run_info);
    check(tu_runs_describe(runs, 0, &info));
    assert_string_equal(info.task, "classification");
    check(tu_runs_describe(runs, 1, &info));
    assert_string_equal(info.metric, "rmse");
    assert_true(info.state == TU_RUN_FINISHED && info.step == 20 && info.lower_is_better);
    assert_true(info.test_metric == result.test_metrics[0].value);
    assert_true(info.best_metric == result.best_accuracy);
    char value[64];
    size_t rate = 0;
    while (strcmp(tu_runs_setting_name(rate), "rate") != 0) rate++;
    check(tu_runs_setting(runs, 1, rate, value, sizeof value));
    assert_string_equal(value, "0.01");
    snprintf(curves, sizeof curves, "%s/curves.svg", scratch);
    check(tu_runs_draw(runs, NULL, 0, curves));
    command("grep -q '</svg>' '%s'", curves);
    tu_runs_free(runs);
    expect_error(tu_runs_open((const char *[]){"/nonexistent"}, 1, &runs), TU_NOT_FOUND, "is not a folder");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        on_table(metrics_of_regression_are_those_of_the_predictions),
        on_table(metrics_are_right_for_targets_of_any_unit),
        on_table(r2_of_a_single_row_is_zero),
        on_table(a_resumed_run_has_the_same_bits),
        on_table(rows_are_classified),
        on_table(a_model_file_predicts_the_same_rows),
        on_table(rows_to_predict_are_checked),
        on_table(labels_are_learned_together),
        on_table(sums_of_a_task_count_each_sample_once),
        on_table(tasks_that_are_wrong_are_refused),
        on_table(hooks_are_called_and_may_end_a_run),
        on_table(classes_with_weight_zero_are_not_learned),
        on_table(a_run_starts_while_runs_are_listed),
        on_table(runs_are_listed_with_their_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
