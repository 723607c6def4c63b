/* Prints studies and the results of searches. See tune_report.h. */
#include "cli/tune_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

#include "cli/progress.h"

static void print_row(const char *name, const char *format, ...) TU_PRINTF(2, 3);
static void print_row(const char *name, const char *format, ...) {
    printf("%-10s  ", name);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

/* A cost as people read it. */
struct score {
    char text[48];
};
static struct score format_score(bool shows_accuracy, double cost) {
    struct score s = {"-"};
    if (!isnan(cost) && shows_accuracy) snprintf(s.text, sizeof s.text, "%.2f%%", 100 * (1 - cost));
    if (!isnan(cost) && !shows_accuracy) snprintf(s.text, sizeof s.text, "%.4f", cost);
    return s;
}

/* ---- Results of a search ---- */

void cli_print_tune(const tu_tune_result *r, const char *study) {
    bool shows_accuracy = strcmp(r->objective, "accuracy") == 0;
    print_row("study", "%s", r->study);
    print_row("trials", "%" PRId64 ": %" PRId64 " finished, %" PRId64 " pruned, %" PRId64 " failed",
              r->trials, r->finished, r->pruned, r->failed);
    if (r->best >= 0) {
        print_row("best", "trial %" PRId64 ", validation %s %s", r->best,
                  shows_accuracy ? "accuracy" : "loss", format_score(shows_accuracy, r->best_cost).text);
        print_row("run", "%s", r->best_run);
    }
    if (r->test_accuracy >= 0)
        print_row("test", "accuracy %.2f%%, loss %.4f", 100 * r->test_accuracy, r->test_loss);
    else if (r->test_loss >= 0)
        print_row("test", "loss %.4f", r->test_loss);
    print_row("time", "%s", format_duration(r->seconds).text);
    if (r->stopped) print_row("continue", "tutti tune --worker --study %s", study);
    print_row("page", "%s/page.html", r->folder);
    print_row("show", "tutti tune --status --study %s", study);
}

void cli_print_tune_json(const tu_tune_result *r) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "study", r->study);
    tu_json_string(&json, "name", r->name);
    tu_json_string(&json, "folder", r->folder);
    tu_json_i64(&json, "trials", r->trials);
    tu_json_i64(&json, "finished", r->finished);
    tu_json_i64(&json, "pruned", r->pruned);
    tu_json_i64(&json, "failed", r->failed);
    tu_json_bool(&json, "stopped", r->stopped);
    if (r->best >= 0) {
        tu_json_i64(&json, "best", r->best);
        tu_json_f64(&json, "best_cost", r->best_cost);
        tu_json_string(&json, "best_run", r->best_run);
    }
    if (r->test_accuracy >= 0) tu_json_f64(&json, "test_accuracy", r->test_accuracy);
    if (r->test_loss >= 0) tu_json_f64(&json, "test_loss", r->test_loss);
    tu_json_f64(&json, "seconds", r->seconds);
    tu_json_end_object(&json);
    putchar('\n');
}

/* ---- A study ---- */

/* Prints text from a study, in which anything may be: control characters could change the terminal. */
static void print_safe(const char *text) {
    for (; *text; text++) putchar((unsigned char)*text < ' ' || *text == 0x7F ? '?' : *text);
}

static void print_values(const tu_study *study, size_t index, size_t parameters) {
    const char *name, *value, *separator = "";
    for (size_t k = 0; k < parameters; k++) {
        if (tu_study_get_value(study, index, k, &name, &value) != TU_OK || !value) continue;
        printf("%s%s=", separator, name);
        print_safe(value);
        separator = " ";
    }
}

tu_status cli_print_study(const tu_study *study) {
    tu_study_info info = TU_SIZED(tu_study_info);
    TU_TRY(tu_study_describe(study, &info));
    bool shows_accuracy = strcmp(info.objective, "accuracy") == 0;
    printf("%-10s  ", "study");
    print_safe(info.name);
    printf("\n%-10s  ", "model");
    print_safe(info.model);
    printf(" on ");
    print_safe(info.data);
    printf("\n%-10s  sampler %s, pruner %s, objective %s, seed %" PRId64 "\n", "search", info.sampler,
           info.pruner, info.objective, info.seed);
    print_row("trials",
              "%" PRId64 ": %" PRId64 " finished, %" PRId64 " pruned, %" PRId64 " failed, %" PRId64
              " running, %" PRId64 " waiting",
              info.trials, info.finished, info.pruned, info.failed, info.running, info.waiting);
    print_row("steps", "%" PRId64, info.steps);
    if (info.best >= 0)
        print_row("best", "trial %" PRId64 ", validation %s %s", info.best, info.objective,
                  format_score(shows_accuracy, info.best_cost).text);
    printf("\n%5s  %-8s  %10s  %15s  %s\n", "trial", "state", info.objective, "step", "values");
    for (size_t i = 0; i < (size_t)info.trials; i++) {
        tu_study_trial t = TU_SIZED(tu_study_trial);
        char steps[48];
        TU_TRY(tu_study_get_trial(study, i, &t));
        snprintf(steps, sizeof steps, "%" PRId64 "/%" PRId64, t.step, t.steps);
        printf("%5" PRId64 "  %-8s  %10s  %15s  ", t.number, tu_trial_state_name(t.state),
               format_score(shows_accuracy, t.cost).text, steps);
        print_values(study, i, info.parameters);
        if (*t.message) printf("  (");
        print_safe(t.message);
        puts(*t.message ? ")" : "");
    }
    return TU_OK;
}

/* Finds the best trial, whose index may differ from its number in a database that somebody has edited. */
static tu_status find_best(const tu_study *study, int64_t number, size_t *index, tu_study_trial *t) {
    for (*index = 0;; ++*index) {
        TU_TRY(tu_study_get_trial(study, *index, t));
        if (t->number == number) return TU_OK;
    }
}

static void print_test(const tu_study_info *info) {
    if (info->tested != info->best || isnan(info->test_loss)) return;
    if (isnan(info->test_accuracy))
        print_row("test", "loss %.4f", info->test_loss);
    else
        print_row("test", "accuracy %.2f%%, loss %.4f", 100 * info->test_accuracy, info->test_loss);
}

static void print_best_json(const tu_study *study, const tu_study_info *info, size_t index,
                            const tu_study_trial *t) {
    const char *name, *value;
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_i64(&json, "trial", t->number);
    tu_json_f64(&json, "cost", t->cost);
    tu_json_string(&json, "run", t->run);
    tu_json_begin_object(&json, "values");
    for (size_t k = 0; k < info->parameters; k++)
        if (tu_study_get_value(study, index, k, &name, &value) == TU_OK && value)
            tu_json_string(&json, name, value);
    tu_json_end_object(&json);
    if (info->tested == info->best && !isnan(info->test_accuracy))
        tu_json_f64(&json, "test_accuracy", info->test_accuracy);
    if (info->tested == info->best && !isnan(info->test_loss))
        tu_json_f64(&json, "test_loss", info->test_loss);
    tu_json_end_object(&json);
    putchar('\n');
}

tu_status cli_print_best(const tu_study *study, bool json) {
    tu_study_info info = TU_SIZED(tu_study_info);
    tu_study_trial t = TU_SIZED(tu_study_trial);
    TU_TRY(tu_study_describe(study, &info));
    if (isnan(info.best_cost))
        return tu_fail(TU_NOT_FOUND, "study '%s' has no finished trial yet", info.name);
    size_t index;
    TU_TRY(find_best(study, info.best, &index, &t));
    if (json) {
        print_best_json(study, &info, index, &t);
        return TU_OK;
    }
    print_row("best", "trial %" PRId64 ", validation %s %s", t.number, info.objective,
              format_score(strcmp(info.objective, "accuracy") == 0, t.cost).text);
    printf("%-10s  ", "values");
    print_values(study, index, info.parameters);
    printf("\n%-10s  ", "run");
    print_safe(t.run);
    putchar('\n');
    print_test(&info);
    return TU_OK;
}
