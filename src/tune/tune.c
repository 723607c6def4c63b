/* tu_tune: prepares a search, runs it, and evaluates the best trial on the test split. See search.h. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/choice.h"
#include "base/clock.h"
#include "base/disk.h"
#include "base/file_name.h"
#include "base/open_file.h"
#include "base/sha256.h"
#include "base/sized.h"
#include "graph/graph.h"
#include "train/settings.h"
#include "train/stack_size.h"
#include "train/training_set.h"
#include "tune/search.h"
#include "tune/study_place.h"
#include "tune/trial_options.h"

enum { DEFAULT_TRIALS = 20, DEFAULT_ATTEMPTS = 3 };

static tu_status copy(tu__search *s, const char *text, const char **target) {
    *target = tu__arena_string(&s->arena, text ? text : "");
    return *target ? TU_OK : TU_NO_MEMORY;
}

/* ---- Options ---- */

static tu_status check_options(const tu_tune_options *o) {
    const tu_train_options *t = o->train;
    if (t && (t->strategy || t->central || t->invariant > 0 || t->group))
        return tu_fail(TU_INVALID, "%s cannot be combined with a search: each trial trains on one device",
                       t->strategy  ? "--strategy"
                       : t->central ? "--central"
                       : t->group   ? "a process group"
                                    : "--invariant");
    if (t && (t->resume || t->out || t->trace || t->snapshots > 0))
        return tu_fail(TU_INVALID, "%s has no meaning for the trials of a search",
                       t->resume  ? "--resume"
                       : t->out   ? "--out of a run"
                       : t->trace ? "--trace"
                                  : "--snapshots");
    if (o->trials < 0 || o->total_steps < 0 || o->seconds < 0 || o->attempts < 0 ||
        o->heartbeat_timeout < 0 || o->database_timeout < 0)
        return tu_fail(TU_INVALID, "a budget or timeout of a search is negative: expected 0 or more");
    if (t && t->validation < 0)
        return tu_fail(TU_INVALID, "--validation 0: a search compares trials by the validation split");
    return TU_OK;
}

static tu_status read_space(const tu_tune_options *o, tu__space *space) {
    for (size_t i = 0; i < o->space_count; i++) TU_TRY(tu__space_add(space, o->space[i]));
    if (o->space_file) TU_TRY(tu__space_add_file(space, o->space_file));
    return TU_OK;
}

/* ---- Model and data ---- */

/* The digest of a network's file; built-in networks have their name. */
static tu_status model_digest(const char *model, char hex[TU__SHA256_HEX]) {
    enum { MAX_SOURCE = 1 << 26 };
    unsigned char digest[TU__SHA256_BYTES];
    tu__sha256 hash;
    tu__sha256_init(&hash);
    tu__text source = {0};
    bool is_file = tu_network_is_file(model) && tu__read_file(NULL, model, MAX_SOURCE, &source) == TU_OK;
    tu__sha256_update(&hash, is_file ? source.data : model, is_file ? source.length : strlen(model));
    tu__text_free(&source);
    tu__sha256_final(&hash, digest);
    tu__sha256_hex(digest, hex);
    return TU_OK;
}

static tu_status load_network(tu__search *s, const char *model) {
    TU_TRY(copy(s, model, &s->model));
    s->shared.network = s->model;
    if (tu_network_is_file(model)) TU_TRY(tu_network_load(model, &s->shared.network));
    tu_network_options defaults = TU_SIZED(tu_network_options);
    return tu_network_defaults(s->shared.network, &defaults);
}

static void report_loading(void *context, const char *what, int64_t done, int64_t total) {
    tu__search *s = context;
    tu_tune_report report = {
        .event = TU_TUNE_LOADING, .message = what, .trial = -1, .step = done, .steps = total};
    tu__search_report(s, &report);
}

static bool varies(const tu__space *space, const char *name) {
    for (size_t i = 0; i < space->count; i++)
        if (strcmp(space->parameters[i].name, name) == 0) return true;
    return false;
}

/* Opens the data set that all trials share. Folders of images are read in the size of the network's input, and texts in windows
 * of its context; if the space varies these, each trial opens the set itself. */
static tu_status open_data(tu__search *s, const tu__space *space, tu_dataset_info *info) {
    TU_TRY(tu__training_set_open(s->shared.network, s->data, &s->train, report_loading, s, &s->dataset));
    bool own = varies(space, "image-size") || varies(space, "context");
    s->shared.dataset = own ? NULL : s->dataset;
    return tu_dataset_describe(s->dataset, info);
}

/* ---- A new study, or one that exists ---- */

static tu_status make_plan(tu__search *s, tu__space *space, const char *digest, const char *data_digest,
                           tu__study_plan *plan) {
    const tu_tune_options *o = &s->options;
    tu__text lines = {0}, settings = {0};
    tu__space_print(space, &lines);
    tu__fixed_settings_write(&s->train, &settings);
    *plan = (tu__study_plan){.sampler = o->sampler ? o->sampler : "tpe",
                             .pruner = o->pruner ? o->pruner : "asha",
                             .objective = o->objective ? o->objective : "",
                             .model = s->model,
                             .data = s->data,
                             .folder = "",
                             .seed = s->train.seed > 0   ? s->train.seed
                                     : s->train.seed < 0 ? 0
                                                         : 1,
                             .trials = o->trials,
                             .steps = o->total_steps,
                             .attempts = o->attempts};
    tu_status status = copy(s, tu__text_string(&lines), &plan->space);
    if (status == TU_OK) status = copy(s, tu__text_string(&settings), &plan->settings);
    if (status == TU_OK) status = copy(s, digest, &plan->model_digest);
    if (status == TU_OK) status = copy(s, data_digest, &plan->data_digest);
    tu__text_free(&lines);
    tu__text_free(&settings);
    return status;
}

static tu_status check_plan(const tu__space *space, tu__study_plan *plan) {
    static const char *const objectives[] = {"accuracy", "loss", NULL};
    const tu__sampler *sampler;
    const tu__pruner *pruner;
    size_t objective;
    if (*plan->objective) TU_TRY(tu__choice_find("--objective", plan->objective, objectives, &objective));
    TU_TRY(tu__sampler_find(plan->sampler, &sampler));
    TU_TRY(tu__pruner_find(plan->pruner, &pruner));
    if (sampler == &tu__sample_grid) TU_TRY(tu__grid_check(space));
    return TU_OK;
}

/* Tasks other than classification have no accuracy: their trials are compared by the loss. */
static tu_status choose_objective(const tu__search *s, tu__study_plan *plan) {
    bool has_accuracy;
    TU_TRY(tu__training_set_has_accuracy(s->shared.network, s->dataset, &s->train, &has_accuracy));
    if (strcmp(plan->objective, "accuracy") == 0 && !has_accuracy)
        return tu_fail(TU_INVALID,
                       "--objective accuracy: the task of the trials has no accuracy: expected loss");
    if (!*plan->objective) plan->objective = has_accuracy ? "accuracy" : "loss";
    return TU_OK;
}

/* A new study has a budget of trials, unless the grid or another budget ends it. */
static void choose_defaults(const tu__search *s, tu__study_plan *plan) {
    bool ends = plan->trials || plan->steps || s->options.seconds > 0 || strcmp(plan->sampler, "grid") == 0;
    plan->default_trials = ends ? 0 : DEFAULT_TRIALS;
    plan->default_attempts = DEFAULT_ATTEMPTS;
}

static tu_status create_study(tu__search *s, const char *model, tu__space *space) {
    tu__study_plan plan;
    char digest[TU__SHA256_HEX];
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    tu__study_place place;
    if (!model || !*model) return tu_fail(TU_INVALID, "no model given: expected a name or a C file");
    TU_TRY(load_network(s, model));
    TU_TRY(read_space(&s->options, space));
    TU_TRY(tu__trial_options_check(space, s->shared.network, &s->train));
    TU_TRY(model_digest(model, digest));
    TU_TRY(make_plan(s, space, digest, "", &plan));
    TU_TRY(check_plan(space, &plan));
    TU_TRY(open_data(s, space, &info));
    TU_TRY(copy(s, info.digest, &plan.data_digest));
    TU_TRY(choose_objective(s, &plan));
    choose_defaults(s, &plan);
    TU_TRY(tu__study_place_new(s->options.study, s->options.name, s->options.out, model, info.name, &place));
    TU_TRY(copy(s, place.address, &s->address));
    TU_TRY(copy(s, place.folder, &s->folder));
    TU_TRY(copy(s, place.name, &plan.name));
    plan.folder = s->folder;
    TU_TRY(tu__study_connect(s->address, true, &s->study));
    return tu__study_create(&s->study, &plan);
}

/* A study may come from anybody: code that it names is compiled and run only if the user names it too. */
static tu_status check_model(const tu__search *s, const char *model) {
    const char *stored = s->study.plan.model;
    if (model && strcmp(model, stored) != 0)
        return tu_fail(TU_INVALID, "study '%s' searches settings of the model '%.200s', not '%.200s'",
                       s->study.plan.name, stored, model);
    if (model || !tu_network_is_file(stored)) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "study '%s' needs the code of '%.300s', which is not run automatically: if you trust it, name it: "
        "'tutti tune %.300s --worker --study %s'",
        s->study.plan.name, stored, stored, s->study.sql.shown);
}

static tu_status change_budgets(tu__search *s) {
    tu__study_plan plan = s->study.plan;
    plan.trials = s->options.trials;
    plan.steps = s->options.total_steps;
    plan.attempts = s->options.attempts;
    if (!plan.trials && !plan.steps && !plan.attempts) return TU_OK;
    return tu__study_create(&s->study, &plan);
}

/* What a worker may not choose, because it must be the same for all trials, or is the study's. */
static tu_status check_worker(const tu__search *s, const char *data) {
    const tu_tune_options *o = &s->options;
    const tu__study_plan *plan = &s->study.plan;
    const char *given = o->space_count || o->space_file ? "the space"
                        : o->sampler                    ? "--sampler"
                        : o->pruner                     ? "--pruner"
                        : o->objective                  ? "--objective"
                                                        : tu__fixed_setting_given(&s->train);
    if (data && strcmp(data, plan->data) != 0)
        return tu_fail(TU_INVALID, "study '%s' searches settings for the data set '%.200s', not '%.200s'",
                       plan->name, plan->data, data);
    if (!given) return TU_OK;
    return tu_fail(TU_INVALID,
                   "%s cannot be given to a worker: it trains with the space and the settings of study '%s'",
                   given, plan->name);
}

static tu_status join_study(tu__search *s, const char *model, const char *data) {
    char digest[TU__SHA256_HEX];
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    tu__study_place place;
    const tu__study_plan *plan = &s->study.plan;
    TU_TRY(tu__study_place_find(s->options.study, s->options.out, &place));
    TU_TRY(copy(s, place.address, &s->address));
    TU_TRY(tu__study_connect(s->address, false, &s->study));
    TU_TRY(tu__study_load(&s->study, s->options.name));
    TU_TRY(check_model(s, model));
    TU_TRY(check_worker(s, data));
    TU_TRY(copy(s, *place.folder ? place.folder : plan->folder, &s->folder));
    TU_TRY(tu__fixed_settings_read(plan->settings, &s->arena, &s->train));
    s->data = plan->data;
    TU_TRY(load_network(s, plan->model));
    TU_TRY(model_digest(plan->model, digest));
    if (strcmp(digest, plan->model_digest) != 0)
        return tu_fail(TU_INVALID,
                       "the model '%.200s' has changed since the study '%s' began: its digest is %.12s, "
                       "expected %.12s",
                       plan->model, plan->name, digest, plan->model_digest);
    TU_TRY(open_data(s, &s->study.space, &info));
    if (strcmp(info.digest, plan->data_digest) != 0)
        return tu_fail(TU_INVALID,
                       "the data set '%.200s' has changed since the study '%s' began: its digest is %.12s, "
                       "expected %.12s",
                       info.name, plan->name, info.digest, plan->data_digest);
    return change_budgets(s);
}

static tu_status open_study(tu__search *s, const char *model, const char *data) {
    tu__space space = {0};
    s->data = data;
    tu_status status = s->options.worker ? join_study(s, model, data) : create_study(s, model, &space);
    tu__space_free(&space);
    return status;
}

/* ---- Workers ---- */

enum { MAX_WORKERS = 1024 };

static tu_status allocate_workers(tu__search *s) {
    s->per_device = tu__stack_setting_number(s->train.stack ? s->train.stack : "");
    if (s->per_device < 1)
        return tu_fail(TU_INVALID, "--stack %s: a search needs a number of trials for each device",
                       s->train.stack);
    s->worker_count = s->device_count * (size_t)s->per_device;
    if (s->per_device > MAX_WORKERS || s->worker_count > MAX_WORKERS)
        return tu_fail(TU_INVALID, "--stack %s on %zu devices: expected at most %d trials at a time",
                       s->train.stack, s->device_count, MAX_WORKERS);
    s->workers = tu__alloc_array(s->worker_count, sizeof *s->workers, "the workers of a search");
    s->beating_claims = tu__arena_alloc(&s->arena, s->worker_count * sizeof *s->beating_claims);
    s->beating = tu__arena_alloc(&s->arena, s->worker_count * sizeof *s->beating);
    return s->workers && s->beating_claims && s->beating ? TU_OK : TU_NO_MEMORY;
}

static tu_status make_workers(tu__search *s) {
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    for (size_t i = 0; s->per_device > 1 && i < s->device_count; i++)
        TU_TRY(tu__train_stack_new(s->per_device, s->per_device, &s->stacks[i]));
    for (size_t i = 0; i < s->worker_count; i++) {
        tu__search_worker *w = &s->workers[i];
        size_t device = i % s->device_count;
        *w = (tu__search_worker){.search = s,
                                 .number = (int64_t)i,
                                 .device = s->devices[device].text,
                                 .stack = s->stacks[device],
                                 .awaited = s->stacks[device] != NULL};
        snprintf(w->name, sizeof w->name, "%.60s %ld %.60s", host, (long)getpid(), w->device);
    }
    return TU_OK;
}

static void notice_wait(void *context, const char *message) {
    tu__search *s = context;
    char text[1200];
    snprintf(text, sizeof text, "%s; trying again for %.0f s", message, s->study.sql.patience);
    tu_tune_report report = {.event = TU_TUNE_NOTICE, .message = text, .trial = -1};
    pthread_mutex_lock(&s->lock);
    tu__search_report(s, &report);
    pthread_mutex_unlock(&s->lock);
}

/* ---- The result ---- */

/* Evaluates the best trial on the test split, unless that was done before. */
static tu_status test_best(tu__search *s, const tu__trials *trials, const tu__trial *best) {
    bool mine;
    tu_evaluation e = TU_SIZED(tu_evaluation);
    if (trials->tested == best->number && !isnan(trials->test_loss)) return TU_OK;
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(tu_dataset_describe(s->dataset, &info));
    if (info.count[TU_TEST] == 0) return TU_OK;
    tu__path run = tu__path_in(s->folder, "%s", best->run);
    if (!tu__run_folder_has_run(run.text)) {
        char text[4600];
        snprintf(
            text, sizeof text,
            "the best trial is not evaluated on the test split, because its run folder '%s' is not on this "
            "host: start a worker where it is",
            run.text);
        tu_tune_report report = {.event = TU_TUNE_NOTICE, .message = text, .trial = -1};
        tu__search_report(s, &report);
        return TU_OK;
    }
    TU_TRY(tu__study_take_test(&s->study, best->number, &mine));
    if (!mine && trials->tested != best->number) return TU_OK; /* another worker does */
    tu_status status =
        tu_evaluate(run.text, &e, .checkpoint = "best", .devices = s->devices[0].text,
                    .threads = (int)(s->train.threads > 0 ? s->train.threads : 0), .set = s->shared.dataset);
    bool has_accuracy = status == TU_OK && strcmp(e.task, "classification") == 0;
    if (status == TU_OK)
        status = tu__study_set_test(&s->study, best->number, has_accuracy ? e.accuracy : (double)NAN, e.loss);
    tu_evaluation_free(&e);
    return status;
}

static void fill_counts(const tu__trials *trials, tu_tune_result *full) {
    full->trials = (int64_t)trials->count;
    for (size_t i = 0; i < trials->count; i++) {
        full->finished += trials->trials[i].state == TU__TRIAL_FINISHED;
        full->pruned += trials->trials[i].state == TU__TRIAL_PRUNED;
        full->failed += trials->trials[i].state == TU__TRIAL_FAILED;
    }
}

static tu_status fill_result(tu__search *s, tu_tune_result *result) {
    tu__trials trials;
    tu_tune_result full = {.best = -1, .best_cost = (double)NAN, .test_accuracy = -1, .test_loss = -1};
    TU_TRY(tu__study_read(&s->study, false, &trials));
    const tu__trial *best = tu__best_trial(&trials);
    tu_status status = TU_OK;
    if (best && s->budget_used) {
        status = test_best(s, &trials, best);
        tu__trials_free(&trials);
        if (status == TU_OK) status = tu__study_read(&s->study, false, &trials);
        if (status != TU_OK) return status;
        best = tu__best_trial(&trials);
    }
    fill_counts(&trials, &full);
    snprintf(full.folder, sizeof full.folder, "%s", s->folder);
    snprintf(full.study, sizeof full.study, "%s",
             tu__sql_is_server(s->address) ? s->study.sql.shown : s->address);
    snprintf(full.objective, sizeof full.objective, "%s", s->study.plan.objective);
    snprintf(full.name, sizeof full.name, "%s", s->study.plan.name);
    full.stopped = !s->budget_used;
    if (best) {
        full.best = best->number;
        full.best_cost = best->cost;
        snprintf(full.best_run, sizeof full.best_run, "%s", tu__path_in(s->folder, "%s", best->run).text);
        if (trials.tested == best->number && !isnan(trials.test_loss)) full.test_loss = trials.test_loss;
        if (trials.tested == best->number && !isnan(trials.test_accuracy))
            full.test_accuracy = trials.test_accuracy;
    }
    full.seconds = tu__now() - s->start_time;
    tu__trials_free(&trials);
    if (result) TU__COPY_SIZED(result, full);
    return TU_OK;
}

/* ---- The search ---- */

static tu_status run(tu__search *s, const char *model, const char *data, tu_tune_result *result) {
    TU_TRY(check_options(&s->options));
    TU_TRY(tu__stack_setting_check(s->train.stack ? s->train.stack : ""));
    TU_TRY(tu__device_specs(s->train.devices, &s->device_count, s->devices));
    TU_TRY(allocate_workers(s));
    TU_TRY(open_study(s, model, data));
    TU_TRY(make_workers(s));
    s->study.timeout = s->options.heartbeat_timeout > 0 ? s->options.heartbeat_timeout : 60;
    s->study.sql.patience = s->options.database_timeout > 0 ? s->options.database_timeout : 300;
    s->study.sql.stop = s->options.stop;
    s->study.sql.on_wait = notice_wait;
    s->study.sql.context = s;
    s->start_time = tu__now();
    tu_tune_report begun = {.event = TU_TUNE_BEGUN, .trial = -1};
    tu__search_report(s, &begun);
    tu_status status = tu__search_run(s);
    if (status != TU_OK)
        return tu_fail(
            status,
            "%s; the study keeps what has ended: after fixing this, go on with 'tutti tune --worker "
            "--study %s'",
            tu_message(), s->study.sql.shown);
    return fill_result(s, result);
}

tu_status tu_tune_with(const char *model, const char *data, tu_tune_result *result,
                       const tu_tune_options *options) {
    if (result) TU_TRY(TU__CHECK_SIZED(tu_tune_result, result));
    if (result) tu__clear_sized(result);
    tu__search *s = tu__alloc(sizeof *s, "a search");
    if (!s) return TU_NO_MEMORY;
    s->arena.purpose = "a search";
    tu__copy_options(&s->options, sizeof s->options, options);
    tu__copy_options(&s->train, sizeof s->train, s->options.train);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->study.lock, NULL);
    tu_status status = run(s, model, data, result);
    char message[1400];
    snprintf(message, sizeof message, "%s", tu_message());
    tu__study_close(&s->study);
    for (size_t i = 0; i < s->device_count; i++) tu__train_stack_free(s->stacks[i]);
    tu_dataset_free(s->dataset);
    tu__free(s->workers);
    pthread_mutex_destroy(&s->lock);
    tu__arena_free(&s->arena);
    tu__free(s);
    return status == TU_OK ? TU_OK : tu_fail(status, "%s", message);
}
