/* tu_train_ensemble: trains several networks independently, in one folder.
 *
 * An ensemble folder contains a configuration and the run folders of its members. config.json is written before the
 * first member starts and contains everything needed to start a member. After an interruption a resume therefore
 * starts the missing members and continues the others. The file has the contents of a run's config.json plus the
 * number of members. Member i adds i to the seed and uses one device of the list.
 *
 * The device depends only on i, not on which device is idle first: on devices of different kinds the members' bits
 * would otherwise depend on timing. */
#include "train/ensemble.h"
#include "train/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tutti/network.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/open_file.h"
#include "base/sized.h"
#include "compile/placement.h"
#include "graph/graph.h"
#include "train/stack_size.h"
#include "train/trainer.h"

tu__path tu__member_folder(const char *ensemble, int64_t number) {
    return tu__path_in(ensemble, "members/%lld", (long long)number);
}

int64_t tu_ensemble_members(const char *folder) {
    tu__arena arena = {.purpose = "an ensemble's configuration"};
    tu__run_config config = {0};
    bool valid = tu__run_folder_has_run(folder) && tu__run_config_load(folder, &arena, &config) == TU_OK;
    tu__arena_free(&arena);
    return valid ? config.members : 0;
}

/* ---- Validation ---- */

static tu_status check_member_count(int64_t members, bool resume) {
    if (members >= (resume ? 0 : 1) && members <= TU_MAX_ENSEMBLE) return TU_OK;
    return tu_fail(TU_INVALID, "--ensemble %lld: expected 1 to %d members", (long long)members,
                   TU_MAX_ENSEMBLE);
}

static tu_status check_options(const tu_train_options *o) {
    if (o->trace)
        return tu_fail(TU_INVALID, "--trace cannot be combined with --ensemble: trace a run of one network");
    if (o->strategy || o->central || o->invariant > 0)
        return tu_fail(TU_INVALID, "%s cannot be combined with --ensemble: each member trains on one device",
                       o->strategy  ? "--strategy"
                       : o->central ? "--central"
                                    : "--invariant");
    return TU_OK;
}

/* What a stack cannot do is found before anything is measured or written. */
static tu_status check_stack(const tu__settings *s) {
    if (tu__stack_setting_number(s->stack) == 1) return TU_OK;
    if (s->snapshots)
        return tu_fail(TU_INVALID,
                       "--snapshots cannot be combined with --stack: each member needs the one before it");
    if (s->accumulate > 1)
        return tu_fail(TU_INVALID,
                       "--accumulate cannot be combined with --stack: a stack computes a batch at once");
    return TU_OK;
}

/* Fails if the seed of the last member, seed + members - 1, overflows. */
static tu_status check_seeds(const tu__ensemble *e) {
    int64_t seed = e->config.settings.seed, last;
    if (!__builtin_add_overflow(seed, e->config.members - 1, &last)) return TU_OK;
    return tu_fail(TU_INVALID,
                   "--seed %lld is too large for %lld members: the seed of the last member overflows",
                   (long long)seed, (long long)e->config.members);
}

/* ---- New ensemble ---- */

static tu_status copy_string(tu__ensemble *e, const char *text, const char **copy) {
    *copy = tu__arena_string(&e->arena, text ? text : "");
    return *copy ? TU_OK : TU_NO_MEMORY;
}

/* Copies the configuration of a planned member. Its strings belong to the plan, so they are copied too. */
static tu_status copy_config(tu__ensemble *e, const tu__run_config *planned) {
    tu__run_config *c = &e->config;
    if (!tu__is_classification(planned))
        return tu_fail(TU_UNSUPPORTED, "--ensemble averages probabilities of classes: the task '%s' has none",
                       planned->task);
    const char **texts[] = {&c->model,        &c->data,           &c->init,          &c->graph_digest,
                            &c->dataset.name, &c->dataset.origin, &c->dataset.digest};
    int64_t members = c->members;
    *c = *planned;
    c->members = members;
    c->network = NULL; /* belongs to the plan and is only needed to build graphs */
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) TU_TRY(copy_string(e, *texts[i], texts[i]));
    TU_TRY(copy_string(e, planned->task, &c->task));
    TU_TRY(tu__columns_copy(&planned->columns, &e->arena, &c->columns));
    c->class_weights = NULL; /* every member computes them */
    const char **names = tu__arena_alloc(&e->arena, ((size_t)c->dataset.classes + 1) * sizeof *names);
    if (!names) return TU_NO_MEMORY;
    for (int64_t i = 0; i < c->dataset.classes; i++)
        TU_TRY(copy_string(e, c->dataset.class_names[i], &names[i]));
    c->dataset.class_names = names;
    tu_train_options all = {.struct_size = sizeof all};
    tu__settings_as_options(&planned->settings, &all);
    return tu__settings_resolve("", &all, &e->arena, &c->settings);
}

/* Plans the first member, so that errors which any member would hit are found before anything is written. `resumed`:
 * the configuration of a resumed ensemble, or NULL. */
static tu_status plan_member(const tu__ensemble *e, const char *model, const char *data,
                             const tu_train_options *given, const tu__run_config *resumed,
                             tu__trainer *planned) {
    tu_train_options o = *given;
    o.out = NULL;
    o.resume = false;
    o.devices = e->devices[0].text;
    return tu__trainer_plan(planned, model, data, &o, resumed);
}

/* Compiles the programs, which fails if they do not fit into the device's memory. A plan does not check that. */
static tu_status compile_member(tu__trainer *planned) {
    tu__stepper_close(&planned->stepper);
    return tu__stepper_open(&planned->graphs, &planned->config, &planned->stepper);
}

/* Returns the largest number of members of a device. */
static int64_t members_of_a_device(const tu__ensemble *e) {
    int64_t devices = (int64_t)e->device_count;
    return (e->config.members + devices - 1) / devices;
}

/* Replaces the setting "auto" by the number of members that is fastest. The number is stored, so that a resumed ensemble
 * computes the same bits. */
static tu_status choose_stack(tu__ensemble *e, tu__trainer *planned) {
    const char **setting = &planned->config.settings.stack;
    tu_stack_time times[TU__MAX_STACK_TIMES];
    size_t count;
    char number[24];
    if (tu__stack_setting_number(*setting)) return TU_OK;
    TU_TRY(tu__stack_measure(planned, members_of_a_device(e), times, &count));
    snprintf(number, sizeof number, "%" PRId64, tu__stack_fastest(count, times));
    *setting = tu__arena_string(&planned->arena, number);
    if (!*setting) return TU_NO_MEMORY;
    tu__text_printf(&e->notices, "--stack auto: %s member%s at once on each device", number,
                    strcmp(number, "1") == 0 ? "" : "s");
    for (size_t i = 0; i < count; i++)
        tu__text_printf(&e->notices, "%s%" PRId64 ": %.3g ms",
                        i ? ", " : " (a step per member: ", times[i].members,
                        1e3 * times[i].seconds / (double)times[i].members);
    tu__text_append(&e->notices, ")", 2); /* with the zero byte that ends a notice */
    return e->notices.failed ? TU_NO_MEMORY : TU_OK;
}

static tu_status resolve_config(tu__ensemble *e, const char *model, const char *data) {
    tu__trainer planned;
    tu_status status = plan_member(e, model, data, &e->options, NULL, &planned);
    if (status == TU_OK) status = check_stack(&planned.config.settings);
    if (status == TU_OK) status = compile_member(&planned);
    if (status == TU_OK) status = choose_stack(e, &planned);
    if (status == TU_OK) status = copy_config(e, &planned.config);
    tu__text_append(&e->notices, planned.notices.data, planned.notices.length);
    tu__trainer_end(&planned);
    TU_TRY(status);
    return copy_string(e, e->options.devices ? e->options.devices : "all", &e->config.settings.devices);
}

static tu_status start_new(tu__ensemble *e, const char *model, const char *data) {
    if (e->options.out && tu__run_folder_has_run(e->options.out))
        return tu_fail(TU_INVALID,
                       "'%s' already contains a run: continue it with --resume, or choose another --out",
                       e->options.out);
    TU_TRY(tu__device_specs(e->options.devices, &e->device_count, e->devices));
    if (e->options.snapshots > 0 && !e->options.schedule) e->options.schedule = "cosine";
    TU_TRY(resolve_config(e, model, data));
    TU_TRY(check_seeds(e));
    TU_TRY(tu__run_folder_create(e->options.out, e->config.model, e->config.dataset.name, &e->folder));
    e->created = true;
    return tu__run_config_save(&e->folder, &e->config);
}

/* ---- Resumed ensemble ---- */

static tu_status check_same(const tu__ensemble *e, const char *folder, const char *model, const char *data,
                            int64_t members) {
    if (e->config.members == 0)
        return tu_fail(TU_INVALID,
                       "--ensemble with --resume: '%s' contains a run of one network; remove --ensemble",
                       folder);
    if (members && members != e->config.members)
        return tu_fail(TU_INVALID,
                       "--resume cannot change --ensemble to %lld: the ensemble in '%s' has %lld members",
                       (long long)members, folder, (long long)e->config.members);
    if (model && strcmp(model, e->config.model) != 0)
        return tu_fail(TU_INVALID,
                       "--resume cannot change the model to '%s': the ensemble in '%s' trains '%s'", model,
                       folder, e->config.model);
    if (data && strcmp(data, e->config.data) != 0)
        return tu_fail(TU_INVALID,
                       "--resume cannot change --data to '%s': the ensemble in '%s' was started on '%s'",
                       data, folder, e->config.data);
    return TU_OK;
}

static int64_t count_missing(const tu__ensemble *e) {
    int64_t missing = 0;
    for (int64_t i = 0; i < e->config.members; i++)
        missing += !tu__run_folder_has_run(tu__member_folder(e->folder.path, i).text);
    return missing;
}

/* A run folder is data and may come from anybody: code that its config.json names is compiled and run only if the
 * user names it too. Started members do not need the code, because their graphs are in their folders. */
static tu_status check_code_named(const tu__ensemble *e, const char *model, int64_t missing) {
    if (model || !tu_network_is_file(e->config.model)) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "'%s': %lld of %lld members are not started yet and need the code named in config.json, '%.300s', which is not run automatically: if you trust it, run 'tutti train %.300s --resume --out %s'",
        e->folder.path, (long long)missing, (long long)e->config.members, e->config.model, e->config.model,
        e->folder.path);
}

/* Checks that the missing members would train the same network on the same images as the others. `model`: as the user
 * gave it, or NULL. */
static tu_status check_missing(const tu__ensemble *e, const char *model) {
    int64_t missing = count_missing(e);
    if (missing == 0) return TU_OK;
    TU_TRY(check_code_named(e, model, missing));
    tu__trainer planned;
    tu_train_options o = e->options;
    tu__settings_as_options(&e->config.settings, &o);
    tu_status status =
        plan_member(e, e->config.model, *e->config.data ? e->config.data : NULL, &o, &e->config, &planned);
    if (status == TU_OK && strcmp(planned.config.graph_digest, e->config.graph_digest) != 0)
        status =
            tu_fail(TU_INVALID, "model '%s' has changed since the ensemble was started", e->config.model);
    if (status == TU_OK && strcmp(planned.config.dataset.digest, e->config.dataset.digest) != 0)
        status = tu_fail(
            TU_INVALID,
            "data set '%s' has changed since the ensemble was started: its digest is %.12s, expected %.12s",
            planned.config.dataset.name, planned.config.dataset.digest, e->config.dataset.digest);
    tu__trainer_end(&planned);
    return status;
}

static tu_status resume(tu__ensemble *e, const char *folder, const char *model, const char *data,
                        int64_t members) {
    TU_TRY(tu__run_folder_open(folder, &e->folder));
    TU_TRY(tu__run_config_load(folder, &e->arena, &e->config));
    e->config.user_named_lock = e->options.lock && *e->options.lock;
    TU_TRY(check_same(e, folder, model, data, members));
    const tu__settings before = e->config.settings;
    TU_TRY(tu__settings_resume(&e->config.settings, &e->options, &e->arena));
    TU_TRY(tu__device_specs(e->config.settings.devices, &e->device_count, e->devices));
    TU_TRY(check_missing(e, model));
    if (tu__settings_equal(&e->config.settings, &before)) return TU_OK;
    return tu__run_config_save(&e->folder, &e->config);
}

/* ---- Start or resume ---- */

static tu_status start_or_resume(tu__ensemble *e, const char *model, const char *data, int64_t members) {
    TU_TRY(check_member_count(members, e->options.resume));
    TU_TRY(check_options(&e->options));
    e->config.members = members;
    if (!model || !*model)
        return tu_fail(TU_INVALID, "no model given: expected a name, a C file or a run folder");
    if (!e->options.resume) return start_new(e, model, data);
    if (e->options.out && tu__run_folder_has_run(e->options.out))
        return resume(e, e->options.out, model, data, members);
    if (e->options.out && members) return start_new(e, model, data);
    return resume(e, model, NULL, data, members);
}

static tu_status allocate_members(tu__ensemble *e) {
    size_t count = (size_t)e->config.members;
    e->members = tu__alloc_array(count, sizeof *e->members, "the members of an ensemble");
    e->results = tu__alloc_array(count, sizeof *e->results, "the results of an ensemble");
    if (!e->members || !e->results) return TU_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        e->members[i] = (tu__ensemble_member){.ensemble = e, .number = (int64_t)i};
        e->members[i].latest.steps = e->config.steps;
        e->results[i] = (tu_train_result){
            .steps = e->config.steps, .test_step = -1, .validation_step = -1, .best_step = -1};
        tu__path path = tu__member_folder(e->folder.path, (int64_t)i);
        memcpy(e->results[i].folder, path.text, strlen(path.text) + 1);
    }
    return TU_OK;
}

/* ---- Training ---- */

static void fill_result(tu__ensemble *e, tu_ensemble_result *result) {
    tu_ensemble_result full = {
        .member_count = e->config.members, .seconds = tu__now() - e->start_time, .internal = e->results};
    memcpy(full.folder, e->folder.path, strlen(e->folder.path) + 1);
    for (int64_t i = 0; i < full.member_count; i++)
        full.stopped = full.stopped || e->results[i].stopped || !*e->results[i].digest;
    TU__COPY_SIZED(result, full);
    e->results = NULL;
}

/* Removes the new folder if no member could start: the user made a mistake, and nothing is worth keeping. */
static void discard_if_empty(tu__ensemble *e) {
    bool started = !e->created;
    for (int64_t i = 0; e->members && i < e->config.members; i++) started = started || e->members[i].started;
    if (started) return;
    tu__remove_file(e->folder.path, "config.json");
    tu__remove_folder(e->folder.path, "members");
    tu__run_folder_discard(&e->folder);
}

/* Reports the notices that concern all members; each ends with a zero byte. */
static void report_notices(const tu__ensemble *e) {
    tu_train_report report = {.struct_size = sizeof report, .event = TU_TRAIN_NOTICE};
    for (size_t at = 0; at < e->notices.length; at += strlen(report.message) + 1) {
        report.message = e->notices.data + at;
        if (e->options.on_report) e->options.on_report(e->options.context, &report);
    }
}

static void free_ensemble(tu__ensemble *e) {
    tu__run_folder_close(&e->folder);
    pthread_mutex_destroy(&e->start_lock);
    pthread_mutex_destroy(&e->report_lock);
    tu__free(e->members);
    tu__free(e->results);
    tu__text_free(&e->notices);
    tu__arena_free(&e->arena);
    tu__free(e);
}

/* Reports why "all" devices did not include a GPU. Members get their device by name and cannot detect this. */
static void report_unused_gpu(const tu__ensemble *e) {
    const char *why =
        tu__device_list_has_all(e->config.settings.devices) && strncmp(e->devices[0].text, "cpu", 3) == 0
            ? tu__unused_gpu_reason()
            : NULL;
    tu_train_report report = {.struct_size = sizeof report, .event = TU_TRAIN_NOTICE, .message = why};
    if (why && e->options.on_report) e->options.on_report(e->options.context, &report);
}

static tu_status train(tu__ensemble *e, const char *model, const char *data, int64_t members,
                       tu_ensemble_result *result) {
    TU_TRY(start_or_resume(e, model, data, members));
    report_unused_gpu(e);
    report_notices(e);
    e->start_time = tu__now();
    tu_status status = allocate_members(e);
    if (status == TU_OK) status = tu__ensemble_run(e);
    if (status != TU_OK) discard_if_empty(e);
    if (status == TU_OK && result) fill_result(e, result);
    return status;
}

tu_status tu_train_ensemble_with(const char *model, const char *data, int64_t members,
                                 tu_ensemble_result *result, const tu_train_options *options) {
    if (result) TU_TRY(TU__CHECK_SIZED(tu_ensemble_result, result));
    if (result) tu__clear_sized(result);
    tu__ensemble *e = tu__alloc(sizeof *e, "an ensemble");
    if (!e) return TU_NO_MEMORY;
    *e = (tu__ensemble){.arena = {.purpose = "an ensemble's configuration"}};
    tu__copy_options(&e->options, sizeof e->options, options);
    pthread_mutex_init(&e->start_lock, NULL);
    pthread_mutex_init(&e->report_lock, NULL);
    tu_status status = train(e, model, data, members, result);
    free_ensemble(e);
    return status;
}

void tu_ensemble_result_free(tu_ensemble_result *result) {
    tu__free(result->internal);
    tu__clear_sized(result);
}

tu_status tu_ensemble_result_member(const tu_ensemble_result *result, int64_t index,
                                    tu_train_result *member) {
    const tu_train_result *results = result->internal;
    TU_TRY(TU__CHECK_SIZED(tu_train_result, member));
    if (index < 0 || index >= result->member_count)
        return tu_fail(TU_NOT_FOUND,
                       "member index %" PRId64 " is out of range: the ensemble has %" PRId64
                       " members, counted from 0",
                       index, result->member_count);
    TU__COPY_SIZED(member, results[index]);
    return TU_OK;
}
