/* Prints the result of `tutti train`. See train_result.h. */
#include "cli/train_result.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

static void print_row(const char *name, const char *format, ...) TU_PRINTF(2, 3);
static void print_row(const char *name, const char *format, ...) {
    printf("%-10s  ", name);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

/* `pipe_closed`: standard error was a pipe, and its reader closed it. */
static const char *stop_reason(const tu_train_result *r, bool pipe_closed) {
    if (r->stopped_early && !r->has_accuracy) return ", stopped early: the first metric no longer improved";
    if (r->stopped_early) /* runs of older versions without a validation split use the test images */
        return r->validation_images ? ", stopped early: the validation accuracy no longer improved"
                                    : ", stopped early: the test accuracy no longer improved";
    return r->stopped && pipe_closed ? ", stopped: the reader of standard error closed the pipe" : "";
}

/* `largest` is the frequency of the largest class: the accuracy of always predicting that class. */
static void print_score(const char *split, double accuracy, double largest, double top5, double loss,
                        int64_t step) {
    char baseline[48] = "";
    if (largest > 0) snprintf(baseline, sizeof baseline, " (largest class %.2f%%)", 100 * largest);
    print_row(split, "accuracy %.2f%%%s, top-5 %.2f%%, loss %.4f, after step %" PRId64, 100 * accuracy,
              baseline, 100 * top5, loss, step);
}

/* Prints the metrics of other tasks than classification. */
static void print_metrics(const char *split, const tu_train_result *r, const tu_metric *metrics, double loss,
                          int64_t step) {
    printf("%-10s  ", split);
    for (size_t i = 0; i < r->metric_count; i++) printf("%s %.6g, ", metrics[i].name, metrics[i].value);
    printf("loss %.4f, after step %" PRId64 "\n", loss, step);
}

static void print_training(const tu_train_result *r) {
    if (r->has_accuracy)
        print_row("training", "accuracy %.2f%%, loss %.4f", 100 * r->accuracy, r->loss);
    else
        print_row("training", "loss %.4f", r->loss);
}

static void print_best(const tu_train_result *r) {
    const char *split = r->validation_images ? "validation " : "";
    if (r->has_accuracy)
        print_row("best", "%saccuracy %.2f%%, after step %" PRId64, split, 100 * r->best_accuracy,
                  r->best_step);
    else
        print_row("best", "%s%s %.6g, after step %" PRId64, split, r->validation_metrics[0].name,
                  r->best_accuracy, r->best_step);
}

static void print_scores(const tu_train_result *r) {
    if (r->validation_step >= 0 && r->has_accuracy)
        print_score("validation", r->validation_accuracy, r->validation_largest_class, r->validation_top5,
                    r->validation_loss, r->validation_step);
    else if (r->validation_step >= 0)
        print_metrics("validation", r, r->validation_metrics, r->validation_loss, r->validation_step);
    if (r->best_step >= 0 && r->best_step != (r->validation_images ? r->validation_step : r->test_step))
        print_best(r);
    if (r->test_step >= 0 && r->has_accuracy)
        print_score("test", r->test_accuracy, r->test_largest_class, r->test_top5, r->test_loss,
                    r->test_step);
    else if (r->test_step >= 0)
        print_metrics("test", r, r->test_metrics, r->test_loss, r->test_step);
}

static void print_processes(const tu_train_result *r) {
    char awaited[32] = "";
    if (!r->processes) return;
    if (!r->compared_steps) {
        print_row("processes", "%u", r->processes);
        return;
    }
    if (r->worst_wait_rank >= 0) snprintf(awaited, sizeof awaited, ", for rank %" PRId64, r->worst_wait_rank);
    print_row("processes",
              "%u; a step waits %.1f to %.1f ms for others (median of the ranks), at worst %.1f ms%s",
              r->processes, r->min_wait_ms, r->max_wait_ms, r->worst_wait_ms, awaited);
    if (r->slow_rank >= 0)
        print_row("slow", "rank %" PRId64 ": the others wait for it in %" PRId64 " of %" PRId64 " steps",
                  r->slow_rank, r->slow_steps, r->compared_steps);
}

/* What can be predicted depends on the samples: files of images, or rows of a table. */
static void print_predict(const tu_train_result *r) {
    if (strcmp(r->samples, "images") == 0) print_row("predict", "tutti predict %s IMAGE...", r->folder);
    if (strcmp(r->samples, "rows") == 0)
        print_row("predict", "tutti predict %s ROWS.csv --out PREDICTIONS.csv", r->folder);
}

void cli_print_training(const tu_train_result *r, bool pipe_closed) {
    print_row("run", "%s", r->folder);
    if (r->validation_images)
        print_row(r->samples, "%" PRId64 " for training, %" PRId64 " for validation", r->train_images,
                  r->validation_images);
    else
        print_row(r->samples, "%" PRId64 " for training", r->train_images);
    print_row("steps", "%" PRId64 " of %" PRId64 "%s", r->step, r->steps, stop_reason(r, pipe_closed));
    print_training(r);
    print_scores(r);
    print_processes(r);
    print_row("time", "%.1f s, %.0f %s/s", r->seconds, r->images_per_second, r->samples);
    print_row("parameters", "%" PRId64, r->parameters);
    print_row("digest", "%s", r->digest);
    if (r->stopped) {
        print_row("resume", "tutti train %s --resume", r->folder);
        return;
    }
    print_row("plots", "%s/curves.svg, or tensorboard --logdir %s", r->folder, r->folder);
    print_row("evaluate", "tutti eval %s", r->folder);
    print_predict(r);
}

static void put_metrics(tu_json *json, const char *split, const tu_train_result *r,
                        const tu_metric *metrics) {
    for (size_t i = 0; i < r->metric_count; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s_%s", split, metrics[i].name);
        tu_json_f64(json, key, metrics[i].value);
    }
}

void cli_print_training_json(const tu_train_result *r) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "run", r->folder);
    tu_json_i64(&json, "step", r->step);
    tu_json_i64(&json, "steps", r->steps);
    tu_json_bool(&json, "stopped", r->stopped);
    tu_json_bool(&json, "stopped_early", r->stopped_early);
    tu_json_string(&json, "task", r->task);
    tu_json_f64(&json, "loss", r->loss);
    if (r->has_accuracy) tu_json_f64(&json, "accuracy", r->accuracy);
    if (r->test_step >= 0) {
        tu_json_i64(&json, "test_step", r->test_step);
        tu_json_f64(&json, "test_loss", r->test_loss);
        put_metrics(&json, "test", r, r->test_metrics);
        if (r->test_largest_class > 0) tu_json_f64(&json, "test_largest_class", r->test_largest_class);
    }
    if (r->validation_step >= 0) {
        tu_json_i64(&json, "validation_step", r->validation_step);
        tu_json_f64(&json, "validation_loss", r->validation_loss);
        put_metrics(&json, "validation", r, r->validation_metrics);
        if (r->has_accuracy) tu_json_f64(&json, "validation_largest_class", r->validation_largest_class);
    }
    if (r->best_step >= 0) {
        char key[48];
        snprintf(key, sizeof key, "best_%s", r->validation_metrics[0].name);
        tu_json_i64(&json, "best_step", r->best_step);
        tu_json_f64(&json, key, r->best_accuracy);
    }
    tu_json_i64(&json, "train_images", r->train_images);
    tu_json_i64(&json, "validation_images", r->validation_images);
    if (r->processes) {
        tu_json_i64(&json, "processes", r->processes);
        tu_json_f64(&json, "min_wait_ms", r->min_wait_ms);
        tu_json_f64(&json, "max_wait_ms", r->max_wait_ms);
        tu_json_f64(&json, "worst_wait_ms", r->worst_wait_ms);
        tu_json_i64(&json, "worst_wait_rank", r->worst_wait_rank);
        if (r->slow_rank >= 0) {
            tu_json_i64(&json, "slow_rank", r->slow_rank);
            tu_json_i64(&json, "slow_steps", r->slow_steps);
            tu_json_i64(&json, "compared_steps", r->compared_steps);
        }
    }
    tu_json_f64(&json, "seconds", r->seconds);
    tu_json_f64(&json, "images_per_second", r->images_per_second);
    tu_json_i64(&json, "parameters", r->parameters);
    tu_json_string(&json, "digest", r->digest);
    tu_json_end_object(&json);
    putchar('\n');
}
