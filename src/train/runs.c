/* tu_runs: finds and describes run folders. See include/tutti/runs.h.
 *
 * A run is described by its config.json and its metrics.jsonl, which are small; checkpoints are not opened. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/command.h>
#include <tutti/runs.h>

#include "base/alloc.h"
#include "base/open_file.h"
#include "base/sized.h"
#include "base/text.h"
#include "io/chart.h"
#include "train/metrics_log.h"
#include "train/run_folder.h"

enum { MAX_DEPTH = 3, MAX_RUNS = 100000, MAX_CURVES = 40 };

typedef struct run {
    const char *folder;
    tu__run_config config;
    tu__metrics_log log;
    tu__log_summary last;
    tu_run_state state;
} run;

struct tu_runs {
    tu__arena arena;
    size_t count, capacity, problem_count, problem_capacity;
    run **runs;
    const char **problems;
};

/* ---- One run ---- */

static bool is_locked(const char *folder) {
    int fd;
    if (tu__open_file(folder, "lock", &fd, NULL) != TU_OK) return false;
    bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}

static tu_status read_run(tu_runs *runs, const char *folder, run *r) {
    r->folder = tu__arena_string(&runs->arena, folder);
    if (!r->folder) return TU_NO_MEMORY;
    TU_TRY(tu__run_config_load(r->folder, &runs->arena, &r->config));
    if (r->config.members) return TU_OK;
    TU_TRY(tu__metrics_log_read(r->folder, &r->config, &r->log, &r->last));
    bool finished = r->last.step >= r->config.steps || r->log.test.count > 0;
    r->state = is_locked(r->folder) ? TU_RUN_TRAINING : finished ? TU_RUN_FINISHED : TU_RUN_STOPPED;
    return TU_OK;
}

static bool grow(void *array, size_t *capacity, size_t count, size_t size) {
    void **address = array;
    if (count < *capacity) return true;
    size_t larger = *capacity ? 2 * *capacity : 16;
    void *grown = tu__realloc(*address, larger * size, "a list of runs");
    if (!grown) return false;
    *address = grown;
    *capacity = larger;
    return true;
}

static tu_status add_problem(tu_runs *runs) {
    if (!grow(&runs->problems, &runs->problem_capacity, runs->problem_count, sizeof *runs->problems))
        return TU_NO_MEMORY;
    const char *message = tu__arena_string(&runs->arena, tu_message());
    if (!message) return TU_NO_MEMORY;
    runs->problems[runs->problem_count++] = message;
    return TU_OK;
}

static tu_status add_run(tu_runs *runs, const char *folder) {
    if (runs->count == MAX_RUNS) return tu_fail(TU_UNSUPPORTED, "more than %d runs", MAX_RUNS);
    if (!grow(&runs->runs, &runs->capacity, runs->count, sizeof *runs->runs)) return TU_NO_MEMORY;
    run *r = tu__alloc(sizeof *r, "a run");
    if (!r) return TU_NO_MEMORY;
    tu_status status = read_run(runs, folder, r);
    if (status == TU_OK) {
        runs->runs[runs->count++] = r;
        return TU_OK;
    }
    tu__metrics_log_close(&r->log);
    tu__free(r);
    return status == TU_NO_MEMORY ? status : add_problem(runs);
}

/* ---- Folders ---- */

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the subfolders, sorted. The caller frees `*names`, whose strings are in the arena. */
static tu_status list_folders(const char *path, tu__arena *arena, const char ***names, size_t *count) {
    size_t capacity = 0;
    *names = NULL;
    *count = 0;
    DIR *folder = tu__list_folder(path, "");
    if (!folder) return tu_fail(TU_IO, "cannot read the folder '%.300s': %s", path, strerror(errno));
    tu_status status = TU_OK;
    for (struct dirent *entry; status == TU_OK && (entry = readdir(folder));) {
        struct stat info;
        if (entry->d_name[0] == '.') continue;
        if (fstatat(dirfd(folder), entry->d_name, &info, 0) != 0 || !S_ISDIR(info.st_mode)) continue;
        if (!grow(names, &capacity, *count, sizeof **names)) status = TU_NO_MEMORY;
        if (status == TU_OK && !((*names)[*count] = tu__arena_string(arena, entry->d_name)))
            status = TU_NO_MEMORY;
        if (status == TU_OK) ++*count;
    }
    closedir(folder);
    if (*count) qsort(*names, *count, sizeof **names, compare_names);
    return status;
}

static tu_status find_runs(tu_runs *runs, const char *path, int depth) {
    if (strlen(path) > TU__MAX_FOLDER_LENGTH) return TU_OK; /* no run can be there */
    if (tu__run_folder_has_run(path)) return add_run(runs, path);
    if (depth == 0) return TU_OK;
    const char **names;
    size_t count;
    tu_status status = list_folders(path, &runs->arena, &names, &count);
    if (status == TU_IO) { /* a folder of somebody else below the one that was asked for */
        tu__free(names);
        return add_problem(runs);
    }
    for (size_t i = 0; status == TU_OK && i < count; i++) {
        tu__text below = {0};
        size_t length = strlen(path);
        tu__text_printf(&below, "%s%s%s", path, length && path[length - 1] == '/' ? "" : "/", names[i]);
        status = below.failed ? TU_NO_MEMORY : find_runs(runs, tu__text_string(&below), depth - 1);
        tu__text_free(&below);
    }
    tu__free(names);
    return status;
}

tu_status tu_runs_open(const char *const *paths, size_t count, tu_runs **result) {
    *result = NULL;
    tu_runs *runs = tu__alloc(sizeof *runs, "a list of runs");
    if (!runs) return TU_NO_MEMORY;
    runs->arena.purpose = "a list of runs";
    tu_status status = TU_OK;
    for (size_t i = 0; status == TU_OK && i < count; i++) {
        struct stat info;
        if (stat(paths[i], &info) != 0 || !S_ISDIR(info.st_mode))
            status =
                tu_fail(TU_NOT_FOUND, "'%.300s' is not a folder: expected a run folder, or a folder of runs",
                        paths[i]);
        else
            status = find_runs(runs, paths[i], MAX_DEPTH);
    }
    if (status != TU_OK) {
        tu_runs_free(runs);
        return status;
    }
    *result = runs;
    return TU_OK;
}

void tu_runs_free(tu_runs *runs) {
    if (!runs) return;
    for (size_t i = 0; i < runs->count; i++) {
        if (!runs->runs[i]->config.members) tu__metrics_log_close(&runs->runs[i]->log);
        tu__free(runs->runs[i]);
    }
    tu__free(runs->runs);
    tu__free(runs->problems);
    tu__arena_free(&runs->arena);
    tu__free(runs);
}

/* ---- Describing ---- */

size_t tu_runs_count(const tu_runs *runs) {
    return runs->count;
}

const char *tu_runs_problem(const tu_runs *runs, size_t index) {
    return index < runs->problem_count ? runs->problems[index] : NULL;
}

static tu_status check_index(const tu_runs *runs, size_t index) {
    if (index < runs->count) return TU_OK;
    return tu_fail(TU_NOT_FOUND, "run index %zu: expected less than %zu", index, runs->count);
}

static double last_of(const tu__series *series, const double *values) {
    return series->count ? values[series->count - 1] : (double)NAN;
}

/* The best value of the validation part, or of the test split of an older run, which selected on it. */
static double best_of(const run *r) {
    const tu__series *s = r->log.validation.count ? &r->log.validation : &r->log.test;
    double best = (double)NAN;
    for (size_t i = 0; i < s->count; i++) {
        double value = s->accuracy[i];
        bool better = r->config.metrics[0].lower_is_better ? value < best : value > best;
        if (isnan(best) || better) best = value;
    }
    return best;
}

tu_status tu_runs_describe(const tu_runs *runs, size_t index, tu_run_info *info) {
    TU_TRY(TU__CHECK_SIZED(tu_run_info, info));
    TU_TRY(check_index(runs, index));
    const run *r = runs->runs[index];
    const tu__run_config *c = &r->config;
    tu_run_info full = {.folder = r->folder,
                        .model = c->model,
                        .data = *c->data ? c->data : c->dataset.name,
                        .task = c->task,
                        .state = r->state,
                        .step = r->last.step,
                        .steps = c->steps,
                        .parameters = c->parameters,
                        .members = c->members,
                        .seconds = r->last.seconds,
                        .metric = c->metrics[0].name,
                        .lower_is_better = c->metrics[0].lower_is_better,
                        .loss = last_of(&r->log.train, r->log.train.loss),
                        .validation_loss = last_of(&r->log.validation, r->log.validation.loss),
                        .best_metric = best_of(r),
                        .validation_metric = last_of(&r->log.validation, r->log.validation.accuracy),
                        .test_metric = last_of(&r->log.test, r->log.test.accuracy)};
    TU__COPY_SIZED(info, full);
    return TU_OK;
}

size_t tu_runs_settings(void) {
    return tu__settings_count();
}

const char *tu_runs_setting_name(size_t setting) {
    return setting < tu__settings_count() ? tu__setting_option(setting) + 2 : NULL; /* without the dashes */
}

tu_status tu_runs_setting(const tu_runs *runs, size_t index, size_t setting, char *text, size_t bytes) {
    TU_TRY(check_index(runs, index));
    if (setting >= tu__settings_count())
        return tu_fail(TU_NOT_FOUND, "setting index %zu: expected less than %zu", setting,
                       tu__settings_count());
    tu__setting_text(&runs->runs[index]->config.settings, setting, text, bytes);
    return TU_OK;
}

/* ---- Drawing ---- */

static const char *label_of(const run *r) {
    const char *slash = strrchr(r->folder, '/');
    return slash && slash[1] ? slash + 1 : r->folder;
}

/* Adds the curves of a run to both panels. */
static void add_curves(const run *r, tu__curve *losses, size_t *loss_count, tu__curve *metrics,
                       size_t *metric_count) {
    const tu__series *s = r->log.validation.count ? &r->log.validation : &r->log.train;
    bool has_metric = false;
    if (r->config.members || !s->count) return;
    losses[*loss_count] = (tu__curve){
        .label = label_of(r), .count = s->count, .x = s->epoch, .y = s->loss, .dots = s->count < 50};
    for (size_t i = 0; i < s->count; i++) has_metric = has_metric || isfinite(s->accuracy[i]);
    if (has_metric) {
        metrics[*metric_count] = losses[*loss_count];
        metrics[(*metric_count)++].y = s->accuracy;
    }
    ++*loss_count;
}

tu_status tu_runs_draw(const tu_runs *runs, const size_t *indices, size_t count, const char *path) {
    tu__curve losses[MAX_CURVES], metrics[MAX_CURVES];
    size_t loss_count = 0, metric_count = 0;
    const char *metric = NULL;
    if (!indices && (count == 0 || count > runs->count)) count = runs->count;
    if (count > MAX_CURVES)
        return tu_fail(TU_INVALID, "curves of %zu runs: expected at most %d; choose some of them", count,
                       MAX_CURVES);
    for (size_t i = 0; i < count; i++) {
        size_t index = indices ? indices[i] : i;
        TU_TRY(check_index(runs, index));
        const run *r = runs->runs[index];
        add_curves(r, losses, &loss_count, metrics, &metric_count);
        bool same = !metric || strcmp(metric, r->config.metrics[0].name) == 0;
        metric = same ? r->config.metrics[0].name : "first metric";
    }
    if (!loss_count) return tu_fail(TU_INVALID, "none of the runs has a curve yet");
    const tu__panel panels[] = {
        {.title = "loss", .x_label = "epoch", .y_label = "loss", .curve_count = loss_count, .curves = losses},
        {.title = metric,
         .x_label = "epoch",
         .y_label = metric,
         .curve_count = metric_count,
         .curves = metrics}};
    tu__text svg = {0};
    tu_status status = tu__chart_svg(&svg, "runs", metric_count ? 2 : 1, panels);
    if (status == TU_OK) status = tu_file_save(path, tu__text_string(&svg), svg.length);
    tu__text_free(&svg);
    return status;
}
