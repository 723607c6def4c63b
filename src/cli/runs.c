/* `tutti runs [FOLDER...]`: lists, filters and compares run folders. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/runs.h>

#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/progress.h"

enum { VALUE_BYTES = 256, LONGEST_FOLDER = 40, LONGEST_VALUE = 24 };

struct runs_values {
    const char *model, *data, *task, *where, *sort, *out;
    int64_t top;
    bool settings, json;
};

static const struct cli_option options[] = {
    CLI_STRING(struct runs_values, model, "model", 0, "NAME", "only runs of this model"),
    CLI_STRING(struct runs_values, data, "data", 'd', "SET", "only runs on this data set"),
    CLI_STRING(struct runs_values, task, "task", 0, "NAME", "only runs with this task"),
    CLI_STRING(struct runs_values, where, "where", 0, "LIST",
               "only runs with these settings, as in 'optimizer=adam,batch=64'"),
    CLI_STRING(struct runs_values, sort, "sort", 0, "KEY",
               "sort by path, metric, loss or seconds (default: path)"),
    CLI_INT(struct runs_values, top, "top", 'n', "N", 1, 100000, "only the first N runs of the sorted list"),
    CLI_FLAG(struct runs_values, settings, "settings", 0, "also print the settings in which the runs differ"),
    CLI_STRING(struct runs_values, out, "out", 'o', "FILE", "SVG file for the curves of all listed runs"),
    CLI_FLAG(struct runs_values, json, "json", 0, CLI_HELP_JSON),
    {0},
};

static const struct runs_values defaults = {.sort = "path"};

struct listed {
    size_t index; /* in the list of the library */
    tu_run_info info;
};

struct list {
    const tu_runs *runs;
    size_t count;
    struct listed *items;
};

/* ---- Filtering ---- */

/* Numbers are equal however they are written: 1e-3 and 0.001. */
static bool same_value(const char *a, const char *b) {
    char *end_a, *end_b;
    if (strcmp(a, b) == 0) return true;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    return end_a != a && end_b != b && !*end_a && !*end_b && x == y;
}

/* True if the run has every NAME=VALUE of the list. Stores false in `*valid` for a name that is no setting. */
static bool has_settings(const tu_runs *runs, size_t index, const char *where, bool *valid) {
    char list[4096], value[VALUE_BYTES], *rest = NULL;
    snprintf(list, sizeof list, "%s", where);
    for (char *entry = strtok_r(list, ",", &rest); entry; entry = strtok_r(NULL, ",", &rest)) {
        char *equals = strchr(entry, '=');
        size_t setting = 0;
        if (equals) *equals = '\0';
        while (setting < tu_runs_settings() && strcmp(tu_runs_setting_name(setting), entry) != 0) setting++;
        *valid = equals && setting < tu_runs_settings();
        if (!*valid) {
            cli_input_error(
                "runs: --where %s: expected NAME=VALUE with a setting of 'tutti train', as in batch=64",
                cli_quote(where).text);
            return false;
        }
        if (tu_runs_setting(runs, index, setting, value, sizeof value) != TU_OK ||
            !same_value(value, equals + 1))
            return false;
    }
    return true;
}

static bool is_wanted(const tu_runs *runs, const struct listed *item, const struct runs_values *v,
                      bool *valid) {
    const tu_run_info *i = &item->info;
    if (v->model && strcmp(v->model, i->model) != 0) return false;
    if (v->data && strcmp(v->data, i->data) != 0) return false;
    if (v->task && strcmp(v->task, i->task) != 0) return false;
    return !v->where || has_settings(runs, item->index, v->where, valid);
}

/* Fills the list. Returns false after an error, which has been printed. */
static bool fill_list(const tu_runs *runs, const struct runs_values *v, struct list *list) {
    bool valid = true;
    *list = (struct list){.runs = runs, .items = calloc(tu_runs_count(runs) + 1, sizeof *list->items)};
    if (!list->items) {
        cli_fail("runs: out of memory");
        return false;
    }
    for (size_t i = 0; valid && i < tu_runs_count(runs); i++) {
        struct listed *item = &list->items[list->count];
        item->index = i;
        item->info = (tu_run_info)TU_SIZED(tu_run_info);
        if (tu_runs_describe(runs, i, &item->info) != TU_OK) continue;
        if (is_wanted(runs, item, v, &valid)) list->count++;
    }
    return valid;
}

/* ---- Sorting ---- */

/* Runs without the number come last. */
static int compare_numbers(double a, double b) {
    if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static double metric_key(const tu_run_info *i) {
    return i->lower_is_better ? i->best_metric : -i->best_metric;
}

static int by_path(const void *a, const void *b) {
    const struct listed *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

static int by_metric(const void *a, const void *b) {
    const struct listed *x = a, *y = b;
    int order = compare_numbers(metric_key(&x->info), metric_key(&y->info));
    return order ? order : by_path(a, b);
}

static int by_loss(const void *a, const void *b) {
    const struct listed *x = a, *y = b;
    int order = compare_numbers(x->info.validation_loss, y->info.validation_loss);
    return order ? order : by_path(a, b);
}

static int by_seconds(const void *a, const void *b) {
    const struct listed *x = a, *y = b;
    int order = compare_numbers(x->info.seconds, y->info.seconds);
    return order ? order : by_path(a, b);
}

static bool sort_list(struct list *list, const char *key) {
    static const struct {
        const char *name;
        int (*compare)(const void *a, const void *b);
    } keys[] = {{"path", by_path}, {"metric", by_metric}, {"loss", by_loss}, {"seconds", by_seconds}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i].name, key) == 0) {
            qsort(list->items, list->count, sizeof *list->items, keys[i].compare);
            return true;
        }
    cli_input_error("runs: --sort %s: expected path, metric, loss or seconds", cli_quote(key).text);
    return false;
}

/* ---- Printing ---- */

static const char *state_name(tu_run_state state) {
    return state == TU_RUN_FINISHED ? "finished" : state == TU_RUN_TRAINING ? "training" : "stopped";
}

/* The end of a long path says more than its beginning. */
static const char *shortened(const char *folder) {
    size_t length = strlen(folder);
    return length > LONGEST_FOLDER ? folder + length - LONGEST_FOLDER : folder;
}

static int folder_width(const struct list *list) {
    int width = 3;
    for (size_t i = 0; i < list->count; i++) {
        int length = (int)strlen(shortened(list->items[i].info.folder));
        if (length > width) width = length;
    }
    return width;
}

static void print_number(double number, int width) {
    if (isfinite(number))
        printf("  %*.5g", width, number);
    else
        printf("  %*s", width, "-");
}

/* Returns the last part of a path: "houses.csv" for "data/houses.csv". */
static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void print_table(const struct list *list) {
    int width = folder_width(list);
    printf("%-*s  %-14s  %-12s  %13s  %8s  %8s  %-10s  %9s  %9s\n", width, "run", "model", "data", "step",
           "state", "val loss", "metric", "best", "test");
    for (size_t i = 0; i < list->count; i++) {
        const tu_run_info *r = &list->items[i].info;
        const char *data = last_part(r->data), *model = last_part(r->model);
        char steps[32];
        if (r->members) {
            printf("%-*s  %-14.14s  %-12.12s  ensemble of %" PRId64 "\n", width, shortened(r->folder), model,
                   data, r->members);
            continue;
        }
        snprintf(steps, sizeof steps, "%" PRId64 "/%" PRId64, r->step, r->steps);
        printf("%-*s  %-14.14s  %-12.12s  %13s  %8s", width, shortened(r->folder), model, data, steps,
               state_name(r->state));
        print_number(r->validation_loss, 8);
        printf("  %-10.10s", r->metric);
        print_number(r->best_metric, 9);
        print_number(r->test_metric, 9);
        putchar('\n');
    }
}

/* True if the listed runs do not all have the same value. */
static bool differs(const struct list *list, size_t setting) {
    char first[VALUE_BYTES], other[VALUE_BYTES];
    if (!list->count ||
        tu_runs_setting(list->runs, list->items[0].index, setting, first, sizeof first) != TU_OK)
        return false;
    for (size_t i = 1; i < list->count; i++)
        if (tu_runs_setting(list->runs, list->items[i].index, setting, other, sizeof other) == TU_OK &&
            strcmp(first, other) != 0)
            return true;
    return false;
}

static void print_settings(const struct list *list) {
    int width = folder_width(list);
    bool any = false;
    for (size_t s = 0; s < tu_runs_settings(); s++) {
        if (!differs(list, s)) continue;
        printf("\n%s\n", tu_runs_setting_name(s));
        any = true;
        for (size_t i = 0; i < list->count; i++) {
            char value[VALUE_BYTES];
            if (tu_runs_setting(list->runs, list->items[i].index, s, value, sizeof value) == TU_OK)
                printf("  %-*s  %.*s\n", width, shortened(list->items[i].info.folder), VALUE_BYTES, value);
        }
    }
    if (!any) printf("\nthe runs do not differ in any setting\n");
}

static void put_run(tu_json *json, const struct list *list, const struct listed *item) {
    const tu_run_info *r = &item->info;
    tu_json_begin_object(json, NULL);
    tu_json_string(json, "run", r->folder);
    tu_json_string(json, "model", r->model);
    tu_json_string(json, "data", r->data);
    tu_json_string(json, "task", r->task);
    if (r->members) {
        tu_json_i64(json, "members", r->members);
    } else {
        tu_json_string(json, "state", state_name(r->state));
        tu_json_i64(json, "step", r->step);
        tu_json_i64(json, "steps", r->steps);
        tu_json_i64(json, "parameters", r->parameters);
        tu_json_f64(json, "seconds", r->seconds);
        tu_json_f64(json, "loss", r->loss);
        tu_json_f64(json, "validation_loss", r->validation_loss);
        tu_json_string(json, "metric", r->metric);
        tu_json_f64(json, "best", r->best_metric);
        tu_json_f64(json, "validation", r->validation_metric);
        tu_json_f64(json, "test", r->test_metric);
    }
    tu_json_begin_object(json, "settings");
    for (size_t s = 0; s < tu_runs_settings(); s++) {
        char value[VALUE_BYTES];
        if (tu_runs_setting(list->runs, item->index, s, value, sizeof value) == TU_OK)
            tu_json_string(json, tu_runs_setting_name(s), value);
    }
    tu_json_end_object(json);
    tu_json_end_object(json);
}

static void print_json(const struct list *list) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_array(&json, NULL);
    for (size_t i = 0; i < list->count; i++) put_run(&json, list, &list->items[i]);
    tu_json_end_array(&json);
    putchar('\n');
}

/* ---- The command ---- */

static tu_status draw(const struct list *list, const char *path) {
    size_t *indices = calloc(list->count + 1, sizeof *indices);
    if (!indices) return tu_fail(TU_NO_MEMORY, "runs: out of memory");
    for (size_t i = 0; i < list->count; i++) indices[i] = list->items[i].index;
    tu_status status = tu_runs_draw(list->runs, indices, list->count, path);
    free(indices);
    return status;
}

static int show(const tu_runs *runs, const struct runs_values *v) {
    struct list list;
    bool valid = fill_list(runs, v, &list) && sort_list(&list, v->sort);
    if (valid && v->top && (size_t)v->top < list.count) list.count = (size_t)v->top;
    tu_status status = valid && v->out ? draw(&list, v->out) : TU_OK;
    if (valid && status == TU_OK) {
        if (v->json)
            print_json(&list);
        else
            print_table(&list);
        if (v->settings && !v->json) print_settings(&list);
        if (v->out && !v->json) printf("\n%-10s  %s\n", "plot", v->out);
    }
    free(list.items);
    return valid ? cli_report(status) : CLI_BAD_INPUT;
}

static int run(const void *given, int operand_count, char **operands) {
    static const char *const here[] = {"runs"};
    tu_runs *runs;
    tu_status status = operand_count
                           ? tu_runs_open((const char *const *)operands, (size_t)operand_count, &runs)
                           : tu_runs_open(here, 1, &runs);
    if (status != TU_OK) return cli_report(status);
    for (size_t i = 0; tu_runs_problem(runs, i); i++)
        fprintf(stderr, "tutti: notice: left out: %s\n", tu_runs_problem(runs, i));
    int outcome = show(runs, given);
    tu_runs_free(runs);
    return outcome;
}

const struct cli_command cli_command_runs = {
    .name = "runs",
    .summary = "lists, filters and compares run folders",
    .usage = "[FOLDER...] [OPTIONS]",
    .description = "Lists the run folders in each FOLDER (default: runs) and up to three levels\n"
                   "below it: model, data set, steps, state, validation loss, and the best and\n"
                   "final value of the task's first metric. Options select and sort runs, print\n"
                   "the settings in which they differ, and draw their curves into one SVG file.",
    .options = options,
    .values_size = sizeof(struct runs_values),
    .defaults = &defaults,
    .max_operands = INT_MAX,
    .run = run,
};
