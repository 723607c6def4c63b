/* `tutti eval RUN`: evaluates a trained network on test images. */
#include <inttypes.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/train.h>

#include "cli/choices.h"
#include "cli/command.h"
#include "cli/common_options.h"

enum { MAX_COLUMNS = 20, LONGEST_NAME = 16 }; /* larger confusion matrices are printed only with --json */

struct eval_values {
    const char *data, *checkpoint, *devices, *out, *ignore_label;
    int64_t threads;
    int strategy; /* -1: not given */
    bool offline, json, skip_bad;
};

static const struct eval_values defaults = {.checkpoint = "last", .strategy = -1};

static const struct cli_option options[] = {
    CLI_STRING(struct eval_values, data, "data", 'd', "SET",
               CLI_HELP_DATA " (default: the data set of the run)"),
    CLI_STRING(struct eval_values, checkpoint, "checkpoint", 'c', "NAME", CLI_HELP_CHECKPOINT),
    CLI_STRING(struct eval_values, devices, "devices", 0, "LIST",
               CLI_HELP_DEVICES " (default: those of the run)"),
    CLI_CHOICE(struct eval_values, strategy, "strategy", 0, "NAME", cli_strategies,
               CLI_HELP_STRATEGY " (default: that of the run)"),
    CLI_INT(struct eval_values, threads, "threads", 't', "N", 0, 1024, CLI_HELP_THREADS),
    CLI_STRING(struct eval_values, out, "out", 'o', "FILE",
               "SVG file for the confusion matrix (default: RUN/confusion.svg)"),
    CLI_FLAG(struct eval_values, skip_bad, "skip-bad", 0, CLI_HELP_SKIP_BAD),
    CLI_STRING(struct eval_values, ignore_label, "ignore-label", 0, "N", CLI_HELP_IGNORE_LABEL),
    CLI_FLAG(struct eval_values, offline, "offline", 0, CLI_HELP_OFFLINE),
    CLI_FLAG(struct eval_values, json, "json", 0, CLI_HELP_JSON),
    {0},
};

/* ---- Counts of a class ---- */

struct class_score {
    int64_t images;    /* of this class */
    int64_t predicted; /* images predicted as this class */
    int64_t correct;   /* images of this class predicted as this class */
};

static struct class_score score_of(const tu_evaluation *e, int64_t class) {
    struct class_score s = {.correct = e->confusion[class * e->classes + class]};
    for (int64_t i = 0; i < e->classes; i++) {
        s.images += e->confusion[class * e->classes + i];
        s.predicted += e->confusion[i * e->classes + class];
    }
    return s;
}

static double ratio(int64_t part, int64_t total) {
    return total ? (double)part / (double)total : 0;
}

/* ---- Text ---- */

static int name_width(const tu_evaluation *e) {
    int widest = 5;
    for (int64_t i = 0; i < e->classes; i++) {
        int length = (int)strnlen(e->class_names[i], LONGEST_NAME);
        if (length > widest) widest = length;
    }
    return widest;
}

static void print_classes(const tu_evaluation *e, int width) {
    printf("\n%-*s  %7s  %7s  %9s\n", width, "class", e->samples, "recall", "precision");
    for (int64_t i = 0; i < e->classes; i++) {
        struct class_score s = score_of(e, i);
        printf("%-*.*s  %7" PRId64 "  %6.1f%%  %8.1f%%\n", width, width, e->class_names[i], s.images,
               100 * ratio(s.correct, s.images), 100 * ratio(s.correct, s.predicted));
    }
}

static void print_confusion(const tu_evaluation *e, int width) {
    printf("\nconfusion matrix (rows: true class, columns: predicted class)\n%-*s", width, "");
    for (int64_t i = 0; i < e->classes; i++) printf("  %5.5s", e->class_names[i]);
    putchar('\n');
    for (int64_t i = 0; i < e->classes; i++) {
        printf("%-*.*s", width, width, e->class_names[i]);
        for (int64_t k = 0; k < e->classes; k++) printf("  %5" PRId64, e->confusion[i * e->classes + k]);
        putchar('\n');
    }
}

static void print_members(const tu_evaluation *e) {
    double best = 0, mean = 0;
    printf("\n%-10s  %10s  %8s  %7s  %8s\n", "member", "checkpoint", "accuracy", "top-5", "loss");
    tu_member_score m = TU_SIZED(tu_member_score);
    for (int64_t i = 0; i < e->member_count && tu_evaluation_member(e, i, &m) == TU_OK; i++) {
        printf("%-10" PRId64 "  %10" PRId64 "  %7.2f%%  %6.2f%%  %8.4f\n", i, m.step, 100 * m.accuracy,
               100 * m.top5, m.loss);
        if (m.accuracy > best) best = m.accuracy;
        mean += m.accuracy / (double)e->member_count;
    }
    printf("%-10s  %+.2f points compared with the best member, %+.2f compared with their mean\n", "ensemble",
           100 * (e->accuracy - best), 100 * (e->accuracy - mean));
    printf("%-10s  two members predict different classes for %.2f%% of the images\n", "diversity",
           100 * e->disagreement);
    printf("%-10s  the confidence differs from the accuracy by %.2f points\n", "calibrated",
           100 * e->calibration_error);
}

/* The metrics that are computed from probabilities; runs of earlier versions lack them. */
static void print_probabilistic(const tu_evaluation *e) {
    for (size_t i = 2; i < e->metric_count; i++) {
        bool error = strcmp(e->metrics[i].name, "calibration_error") == 0;
        if (error && e->member_count) continue; /* printed with the members */
        printf("%-10s  %.4f%s\n", error ? "calibrated" : e->metrics[i].name, e->metrics[i].value,
               error ? " (expected calibration error)" : "");
    }
}

static void print_text(const tu_evaluation *e, const char *drawing) {
    printf("%-10s  %s, %" PRId64 " test %s\n", "set", e->set, e->images, e->samples);
    if (e->skipped) printf("%-10s  %" PRId64 " damaged images\n", "left out", e->skipped);
    if (e->ignored) printf("%-10s  %" PRId64 " images with the ignored label\n", "left out", e->ignored);
    if (e->member_count) printf("%-10s  %" PRId64 " members\n", "ensemble", e->member_count);
    printf("%-10s  after step %" PRId64 "\n", "checkpoint", e->step);
    if (!e->classes) {
        for (size_t i = 0; i < e->metric_count; i++)
            printf("%-10s  %.6g\n", e->metrics[i].name, e->metrics[i].value);
        printf("%-10s  %.4f\n", "loss", e->loss);
        return;
    }
    printf("%-10s  %.2f%% (largest class %.2f%%)\n", "accuracy", 100 * e->accuracy, 100 * e->largest_class);
    printf("%-10s  %.2f%%\n", "top-5", 100 * e->top5);
    printf("%-10s  %.4f\n", "loss", e->loss);
    print_probabilistic(e);
    if (e->member_count) print_members(e);
    int width = name_width(e);
    print_classes(e, width);
    if (e->classes <= MAX_COLUMNS) print_confusion(e, width);
    if (drawing) printf("\n%-10s  %s\n", "plot", drawing);
}

/* ---- JSON ---- */

static void put_class(tu_json *json, const tu_evaluation *e, int64_t class) {
    struct class_score s = score_of(e, class);
    tu_json_begin_object(json, NULL);
    tu_json_string(json, "name", e->class_names[class]);
    tu_json_i64(json, "images", s.images);
    tu_json_f64(json, "recall", ratio(s.correct, s.images));
    tu_json_f64(json, "precision", ratio(s.correct, s.predicted));
    tu_json_end_object(json);
}

static void put_confusion(tu_json *json, const tu_evaluation *e) {
    tu_json_begin_array(json, "confusion");
    for (int64_t i = 0; i < e->classes; i++) {
        tu_json_begin_array(json, NULL);
        for (int64_t k = 0; k < e->classes; k++) tu_json_i64(json, NULL, e->confusion[i * e->classes + k]);
        tu_json_end_array(json);
    }
    tu_json_end_array(json);
}

static void put_members(tu_json *json, const tu_evaluation *e) {
    tu_json_begin_array(json, "members");
    tu_member_score m = TU_SIZED(tu_member_score);
    for (int64_t i = 0; i < e->member_count && tu_evaluation_member(e, i, &m) == TU_OK; i++) {
        tu_json_begin_object(json, NULL);
        tu_json_i64(json, "step", m.step);
        tu_json_f64(json, "accuracy", m.accuracy);
        tu_json_f64(json, "top5", m.top5);
        tu_json_f64(json, "loss", m.loss);
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

static void print_json(const char *run, const tu_evaluation *e) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "run", run);
    tu_json_string(&json, "set", e->set);
    tu_json_i64(&json, "step", e->step);
    tu_json_i64(&json, "images", e->images);
    if (e->skipped) tu_json_i64(&json, "skipped", e->skipped);
    if (e->ignored) tu_json_i64(&json, "ignored", e->ignored);
    tu_json_string(&json, "task", e->task);
    for (size_t i = 0; i < e->metric_count; i++) tu_json_f64(&json, e->metrics[i].name, e->metrics[i].value);
    tu_json_f64(&json, "loss", e->loss);
    if (!e->classes) {
        tu_json_end_object(&json);
        putchar('\n');
        return;
    }
    tu_json_f64(&json, "largest_class", e->largest_class);
    if (e->member_count) {
        tu_json_f64(&json, "disagreement", e->disagreement);
        put_members(&json, e);
    }
    tu_json_begin_array(&json, "classes");
    for (int64_t i = 0; i < e->classes; i++) put_class(&json, e, i);
    tu_json_end_array(&json);
    put_confusion(&json, e);
    tu_json_end_object(&json);
    putchar('\n');
}

/* ---- The command ---- */

/* The file with the confusion matrix. */
struct drawing {
    char path[4096];
    bool drawn;
};

/* Draws the confusion matrix. If the default file in the run folder cannot be written, prints only a notice. */
static tu_status draw_confusion(const tu_evaluation *e, const char *run, const char *out,
                                struct drawing *drawing) {
    size_t length = strlen(run);
    while (length > 1 && run[length - 1] == '/') length--;
    if (out)
        snprintf(drawing->path, sizeof drawing->path, "%s", out);
    else
        snprintf(drawing->path, sizeof drawing->path, "%.*s/confusion.svg", (int)length, run);
    tu_status status = out ? tu_evaluation_draw(e, out) : tu_evaluation_draw_in(e, run, "confusion.svg");
    drawing->drawn = status == TU_OK;
    if (status == TU_OK || out) return status;
    fprintf(stderr, "tutti: notice: %s; choose another file with --out\n", tu_message());
    return TU_OK;
}

static int run(const void *given, int operand_count, char **operands) {
    (void)operand_count;
    const struct eval_values *v = given;
    tu_evaluation evaluation = TU_SIZED(tu_evaluation);
    struct drawing drawing = {0};
    tu_status status = tu_evaluate(
        operands[0], &evaluation, .checkpoint = v->checkpoint, .devices = v->devices,
        .threads = (int)v->threads, .data = v->data, .offline = v->offline, .skip_bad = v->skip_bad,
        .ignore_label = v->ignore_label, .strategy = v->strategy >= 0 ? cli_strategies[v->strategy] : NULL);
    if (status != TU_OK) return cli_report(status);
    if (evaluation.classes)
        status = draw_confusion(&evaluation, operands[0], v->out, &drawing);
    else if (v->out)
        status = tu_fail(TU_INVALID, "eval: --out: the task '%s' has no classes, and so no confusion matrix",
                         evaluation.task);
    if (status == TU_OK && v->json)
        print_json(operands[0], &evaluation);
    else if (status == TU_OK)
        print_text(&evaluation, drawing.drawn ? drawing.path : NULL);
    tu_evaluation_free(&evaluation);
    return cli_report(status);
}

const struct cli_command cli_command_eval = {
    .name = "eval",
    .summary = "evaluates a trained network on test images",
    .usage = "RUN [OPTIONS]",
    .description = "Evaluates the network of the run folder RUN on the test images of its data set.\n"
                   "Prints accuracy, top-5 accuracy and loss; the number of images, recall and\n"
                   "precision of each class; and the confusion matrix, which is also drawn to an SVG\n"
                   "file. An ensemble is evaluated with the mean of its members' probabilities; the\n"
                   "results of each member are printed too.",
    .options = options,
    .values_size = sizeof(struct eval_values),
    .defaults = &defaults,
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};
