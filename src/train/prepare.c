/* Preparing a run: new, or the continuation of one. See trainer.h.
 *
 * A new run is first made whole in memory (settings, set, graphs, programs, state), then on disk: a mistake of the
 * user's leaves no folder behind. config.json is written last, so a folder that has one is complete. A resumed run takes
 * the lock first and then decides nothing: settings, graphs and state come from its folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <tutti/model.h>

#include "base/alloc.h"
#include "base/save.h"
#include "graph/graph.h"
#include "train/initialize.h"
#include "train/step_graphs.h"
#include "train/trainer.h"

enum {
    MAX_VALIDATION = 5000, /* images, unless a part was asked for: an accuracy is then known to about 1% */
    LEAST_STEPS = 300,     /* of a run whose length nobody gave … */
    EVALUATIONS = 20,      /* … and how often it is then evaluated and saved, about */
};

void tu__trainer_tell(tu__trainer *t, tu_train_event event, const char *message) {
    t->report.event = event;
    t->report.message = message;
    t->report.folder = t->folder.path;
    if (t->options.watch) t->options.watch(t->options.context, &t->report);
    t->report.message = NULL;
}

/* A refusal is one line: what would be said before it is only said when there is none. */
void tu__trainer_notice(void *trainer, const char *message) {
    tu__trainer *t = trainer;
    if (t->begun)
        tu__trainer_tell(t, TU_TRAIN_NOTICE, message);
    else
        tu__text_append(&t->notices, message, strlen(message) + 1);
}

static void tell_notices(tu__trainer *t) {
    t->begun = true;
    for (size_t at = 0; at < t->notices.length; at += strlen(t->notices.data + at) + 1)
        tu__trainer_tell(t, TU_TRAIN_NOTICE, t->notices.data + at);
}

/* ---- The set ---- */

static void tell_loading(void *context, const char *what, int64_t done, int64_t total) {
    tu__trainer *t = context;
    if (!t->options.watch) return;
    tu_train_report report = {.event = TU_TRAIN_LOADING, .message = what, .step = done, .steps = total};
    t->options.watch(t->options.context, &report);
}

/* A set of the caller's own was opened by other options. */
static tu_status check_own_set(const tu__settings *s) {
    if (!s->skip_bad && !*s->ignore_label) return TU_OK;
    return tu_fail(TU_INVALID, "%s with a set of the program's own: expected one that 'data' names",
                   s->skip_bad ? "--skip-bad" : "--ignore-label");
}

static void tell_about_set(tu__trainer *t) {
    tu_dataset_info info;
    char message[160];
    if (t->ensemble) return; /* told once for all members */
    tu_dataset_describe(t->set, &info);
    if (info.skipped) {
        snprintf(message, sizeof message, "pictures that cannot be read and are left out (--skip-bad): %lld",
                 (long long)info.skipped);
        tu__trainer_notice(t, message);
    }
    if (info.ignored) {
        snprintf(message, sizeof message, "images of label %.20s, which are left out (--ignore-label): %lld",
                 t->config.settings.ignore_label, (long long)info.ignored);
        tu__trainer_notice(t, message);
    }
    if (info.notice) tu__trainer_notice(t, info.notice);
}

/* `height`, `width`: of the images of a folder; sets with a size of their own keep it. `validation`: whether the set's own
 * validation part is wanted. */
static tu_status open_set(tu__trainer *t, const char *data, int64_t height, int64_t width, bool validation) {
    const tu__settings *s = &t->config.settings;
    bool ignores;
    int64_t label;
    TU_TRY(tu__read_ignore_label(s->ignore_label, &ignores, &label));
    t->set = t->options.set;
    if (t->set) return check_own_set(s);
    if (!data || !*data)
        return tu_fail(TU_INVALID,
                       "no data to train on: expected --data with cifar10, mnist, generated, a folder of "
                       "images or a pair of .npy files");
    TU_TRY(tu_dataset_open(data, &t->opened, .height = height, .width = width, .offline = t->options.offline,
                           .progress = tell_loading, .context = t, .validation = validation,
                           .skip_bad = s->skip_bad, .ignore_label = ignores ? &label : NULL));
    t->set = t->opened;
    tell_about_set(t);
    return TU_OK;
}

/* ---- A new run: what it is ---- */

static tu_status copy_string(tu__trainer *t, const char *given, const char **copy) {
    *copy = tu__arena_string(&t->arena, given ? given : "");
    return *copy ? TU_OK : TU_NO_MEMORY;
}

/* The network that `model` names, or that the file of that name defines. */
static tu_status find_network(tu__run_config *config, const char *model, tu_model_options *own) {
    config->network = model;
    if (tu_model_is_file(model)) TU_TRY(tu_model_load(model, &config->network));
    return tu_model_own(config->network, own);
}

/* Whether somebody said what the validation part is; else it is the set's own, where it has one. A member has that of its
 * ensemble. */
static bool validation_given(const tu__trainer *t) {
    if (t->ensemble) return t->ensemble->set.validation == 0;
    const tu_train_options *recipe = tu__recipe_find(t->config.settings.recipe, t->config.network);
    return t->options.validation != 0 || (recipe && recipe->validation != 0);
}

/* What is chosen by the validation part needs one. */
static tu_status check_validation(const tu__trainer *t) {
    const tu__settings *s = &t->config.settings;
    if (t->config.looks_at_test || tu__validation_images(&t->config) > 0) return TU_OK;
    if (s->early_stop <= 0 && (t->options.evaluate_every <= 0 || t->ensemble)) return TU_OK;
    return tu_fail(TU_INVALID,
                   "%s without a validation part: it would have to look at the test images; add --validation "
                   "0.1, or leave it out",
                   s->early_stop > 0 ? "--early-stop" : "--evaluate-every");
}

/* A part that nobody asked for is the set's own, or no larger than it needs to be. */
static tu_status settle_validation(tu__trainer *t) {
    tu__run_config *config = &t->config;
    bool given = validation_given(t);
    if (!given && config->set.validation)
        config->settings.validation = (double)config->set.validation;
    else if (!given && tu__validation_images(config) > MAX_VALIDATION)
        config->settings.validation = MAX_VALIDATION;
    if (given) config->set.validation = 0; /* of a set of the caller's own: a part was asked for instead */
    return check_validation(t);
}

static int64_t round_up(int64_t number, int64_t unit) {
    return (number - 1) / unit * unit + unit;
}

/* The epochs of a recipe are meant for thousands of images: of forty they would be a handful of steps. Evaluations and
 * checkpoints stay as few as those of a run of some epochs. */
static tu_status settle_length(tu__trainer *t) {
    tu__run_config *config = &t->config;
    tu__settings *s = &config->settings;
    if (t->options.epochs || t->options.steps || config->steps >= LEAST_STEPS) return TU_OK;
    int64_t before = s->epochs, epoch = config->steps_per_epoch;
    s->epochs = round_up(LEAST_STEPS, epoch) / epoch;
    int64_t every = round_up(s->epochs * epoch / EVALUATIONS, epoch);
    if (!s->evaluate_every) s->evaluate_every = every;
    if (!s->checkpoint_every) s->checkpoint_every = every;
    char message[200];
    snprintf(message, sizeof message,
             "the set is small, %lld images to train on: %lld epochs instead of %lld, for at least %d steps; "
             "--epochs gives another number",
             (long long)tu__training_images(config), (long long)s->epochs, (long long)before, LEAST_STEPS);
    tu__trainer_notice(t, message);
    return tu__run_config_count(config);
}

static tu_status decide(tu__trainer *t, const char *model, const char *data) {
    tu__run_config *config = &t->config;
    tu_model_options own;
    TU_TRY(find_network(config, model, &own));
    TU_TRY(tu__settings_decide(config->network, &t->options, &t->arena, &config->settings));
    int64_t size = config->settings.image_size;
    TU_TRY(open_set(t, data, size ? size : own.height, size ? size : own.width, !validation_given(t)));
    tu_dataset_describe(t->set, &config->set);
    TU_TRY(copy_string(t, model, &config->model));
    TU_TRY(copy_string(t, t->options.set ? "" : data, &config->data));
    TU_TRY(copy_string(t, t->options.init, &config->init));
    TU_TRY(settle_validation(t));
    TU_TRY(tu__run_config_count(config));
    return settle_length(t);
}

/* ---- Both kinds: programs ---- */

/* What "all cores" came to is part of the configuration: the same bits need the same width. */
static void settle_threads(tu__trainer *t) {
    tu_device_report device;
    if (t->config.settings.threads == 0 && tu_program_device(t->stepper.full.program, 0, &device) == TU_OK)
        t->config.settings.threads = device.threads;
}

/* The parts of one device say the same, and are heard once. */
static void tell_device(tu__trainer *t) {
    tu_device_report device;
    char said[320] = "";
    for (size_t i = 0; tu_program_device(t->stepper.full.program, i, &device) == TU_OK; i++) {
        if (!device.notice || strcmp(device.notice, said) == 0) continue;
        snprintf(said, sizeof said, "%s", device.notice);
        tu__trainer_notice(t, device.notice);
    }
    tu_placement_totals placed;
    if (tu_program_placed(t->stepper.full.program, &placed) == TU_OK && placed.notice)
        tu__trainer_notice(t, placed.notice);
}

static tu_status make_programs(tu__trainer *t) {
    TU_TRY(tu__stepper_open(&t->graphs, &t->config, &t->stepper));
    settle_threads(t);
    tell_device(t);
    TU_TRY(tu__burst_open(&t->stepper, t->set, t->config.settings.batch, &t->burst));
    if (!t->burst.stepper) TU_TRY(tu__stepper_pick_from(&t->stepper, t->set));
    if (t->config.set.count[TU_TEST] > 0 || tu__validation_images(&t->config) > 0)
        TU_TRY(tu__evaluator_open(t->graphs.evaluate, &t->config, false, &t->evaluator));
    return tu__stepper_state(&t->stepper, (uint64_t)t->config.settings.seed, &t->state);
}

static tu_status initialize(tu__trainer *t) {
    if (!*t->config.init) return TU_OK;
    tu__text story = {0};
    tu_status status = tu__initialize_from(t->config.init, t->state, &story);
    if (status == TU_OK) tu__trainer_notice(t, tu__text_string(&story));
    tu__text_free(&story);
    return status;
}

static tu_status describe_graph(tu__trainer *t) {
    char digest[TU_DIGEST_TEXT];
    tu_graph_totals totals;
    TU_TRY(tu_graph_digest(t->graphs.step, digest));
    TU_TRY(tu_graph_total(t->graphs.predict, &totals));
    t->config.parameters = totals.parameters;
    return copy_string(t, digest, &t->config.graph_digest);
}

/* ---- A new run: on disk ---- */

static tu_status save_kernels(const tu__trainer *t) {
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory) return tu_fail(TU_NO_MEMORY, "out of memory for the list of kernels");
    tu_status status = tu_program_print(t->stepper.full.program, memory);
    if (fclose(memory) != 0 && status == TU_OK)
        status = tu_fail(TU_NO_MEMORY, "out of memory for the list of kernels");
    if (status == TU_OK) status = tu_file_save(tu__path_in(t->folder.path, "kernels.txt").text, text, size);
    free(text);
    return status;
}

/* Weights that were drawn can be drawn again; those from elsewhere may be gone or others when the run goes on. What a
 * process that was killed right here left in the folder is not this run's. */
static tu_status save_initial_weights(const tu__trainer *t) {
    if (!*t->config.init) return tu__checkpoint_remove(t->folder.path, 0);
    tu__snapshot snapshot = {0};
    tu_status status = tu__snapshot_take(t->state, &snapshot);
    if (status == TU_OK)
        status = tu__checkpoint_save(t->folder.path, false, &t->config, &snapshot, &t->progress);
    tu__snapshot_free(&snapshot);
    return status;
}

static tu_status write_folder(tu__trainer *t) {
    TU_TRY(tu__run_folder_create(t->options.out, t->config.model, t->config.set.name, &t->folder));
    TU_TRY(tu__run_folder_furnish(&t->folder));
    TU_TRY(tu__run_graphs_save(t->folder.path, &t->graphs));
    TU_TRY(save_kernels(t));
    TU_TRY(save_initial_weights(t));
    TU_TRY(tu__run_config_save(&t->folder, &t->config));
    TU_TRY(tu__metrics_open(t->folder.path, -1, tu__trainer_notice, t, &t->metrics));
    tu__metrics_graph(t->metrics, t->graphs.step);
    tu__metrics_images(t->metrics, t->set);
    return TU_OK;
}

static tu_status begin_new(tu__trainer *t, const char *model, const char *data) {
    if (t->options.out && tu__run_folder_holds_run(t->options.out))
        return tu_fail(TU_INVALID,
                       "'%s' holds a run already: go on with it by --resume, or give another --out",
                       t->options.out);
    TU_TRY(decide(t, model, data));
    TU_TRY(tu__run_graphs_build(&t->config, &t->graphs));
    TU_TRY(describe_graph(t));
    if (t->plan_only) return tu__stepper_plan(&t->graphs, &t->config, &t->stepper);
    TU_TRY(make_programs(t));
    TU_TRY(initialize(t));
    tu_status status = write_folder(t);
    if (status != TU_OK) tu__run_folder_discard(&t->folder);
    return status;
}

/* ---- A run that goes on ---- */

static tu_status check_same_set(const tu__trainer *t) {
    const tu_dataset_info *begun = &t->config.set;
    tu_dataset_info now;
    tu_dataset_describe(t->set, &now);
    bool same_images = begun->height == now.height && begun->width == now.width &&
                       begun->channels == now.channels && begun->dtype == now.dtype;
    if (same_images && strcmp(begun->digest, now.digest) == 0 && begun->classes == now.classes &&
        begun->count[TU_TRAIN] == now.count[TU_TRAIN] && begun->count[TU_TEST] == now.count[TU_TEST] &&
        (begun->validation == 0 || begun->validation == now.validation))
        return TU_OK;
    return tu_fail(
        TU_INVALID,
        "the set '%s' is not the one the run was begun with: its digest is %.12s (%lld images), was %.12s (%lld)",
        now.name, now.digest, (long long)now.count[TU_TRAIN], begun->digest,
        (long long)begun->count[TU_TRAIN]);
}

static tu_status check_same_words(const tu__trainer *t, const char *folder, const char *model,
                                  const char *data) {
    if (model && strcmp(model, t->config.model) != 0)
        return tu_fail(TU_INVALID, "model '%s' with --resume: the run in '%s' trains '%s'", model, folder,
                       t->config.model);
    if (data && strcmp(data, t->config.data) != 0)
        return tu_fail(TU_INVALID, "--data '%s' with --resume: the run in '%s' was begun on '%s'", data,
                       folder, t->config.data);
    if (t->options.init && strcmp(t->options.init, t->config.init) != 0)
        return tu_fail(TU_INVALID, "--init '%s' with --resume: the run in '%s' has its weights",
                       t->options.init, folder);
    return TU_OK;
}

/* The number of threads was that of the devices before: others have their own. */
static tu_status take_settings(tu__trainer *t) {
    tu__settings *s = &t->config.settings;
    int64_t images = tu__training_images(&t->config);
    if (t->options.batch > images) t->options.batch = images; /* as when the run began */
    const char *before = s->devices;
    TU_TRY(tu__settings_resume(s, &t->options, &t->arena));
    if (!t->options.threads && strcmp(before, s->devices) != 0) s->threads = 0;
    return TU_OK;
}

static tu_status load_state(tu__trainer *t) {
    bool found;
    TU_TRY(tu__checkpoint_load_newest(t->folder.path, &t->config, t->state, &t->progress, &found,
                                      tu__trainer_notice, t));
    if (found || !*t->config.init) return TU_OK;
    return tu_fail(TU_CORRUPT,
                   "run '%s' has no checkpoint any more, not even that of the weights it began with: begin "
                   "another run with --init '%s'",
                   t->folder.path, t->config.init);
}

/* What a resume may change (where the run computes, what it keeps) is what the next one begins with. */
static tu_status record_change(const tu__trainer *t, const tu__settings *before) {
    if (tu__settings_equal(&t->config.settings, before)) return TU_OK;
    TU_TRY(save_kernels(t));
    return tu__run_config_save(&t->folder, &t->config);
}

static tu_status refuse_ensemble(const tu__trainer *t, const char *folder) {
    if (t->config.members == 0) return TU_OK;
    return tu_fail(TU_INVALID, "'%s' is an ensemble of %lld members: tu_train_ensemble goes on with it",
                   folder, (long long)t->config.members);
}

/* `model` and `data` may be NULL: as the run has them. */
static tu_status begin_again(tu__trainer *t, const char *folder, const char *model, const char *data) {
    TU_TRY(tu__run_folder_open(folder, &t->folder));
    TU_TRY(tu__run_config_load(t->folder.path, &t->arena, &t->config));
    const tu__settings before = t->config.settings;
    TU_TRY(refuse_ensemble(t, folder));
    TU_TRY(check_same_words(t, folder, model, data));
    TU_TRY(take_settings(t));
    TU_TRY(
        open_set(t, t->config.data, t->config.set.height, t->config.set.width, t->config.set.validation > 0));
    TU_TRY(check_same_set(t));
    TU_TRY(tu__run_graphs_load(t->folder.path, &t->config, &t->graphs));
    if (t->plan_only) return tu__stepper_plan(&t->graphs, &t->config, &t->stepper);
    TU_TRY(make_programs(t));
    TU_TRY(load_state(t));
    TU_TRY(record_change(t, &before));
    return tu__metrics_open(t->folder.path, t->progress.step, tu__trainer_notice, t, &t->metrics);
}

/* ---- Which of the two ---- */

static bool is_network(const char *model) {
    tu_model_options own;
    return tu_model_own(model, &own) == TU_OK;
}

static bool same_folder(const char *a, const char *b) {
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* --resume with --out: the run there goes on, or begins. A network's name stays one where a folder is called the same. */
static tu_status resume_out(tu__trainer *t, const char *model, const char *data) {
    const char *out = t->options.out;
    bool run_given = tu__run_folder_holds_run(model);
    if (run_given && same_folder(model, out)) return begin_again(t, out, NULL, data);
    if (run_given && !is_network(model))
        return tu_fail(
            TU_INVALID,
            "--resume with two folders: '%s' holds a run, and --out is '%s'; leave --out out to go on "
            "with the run",
            model, out);
    if (tu__run_folder_holds_run(out)) return begin_again(t, out, model, data);
    tu__trainer_notice(t, "there is no run to go on with: one is begun");
    return begin_new(t, model, data);
}

static tu_status begin(tu__trainer *t, const char *model, const char *data) {
    if (!model || !*model)
        return tu_fail(TU_INVALID, "no model to train: expected a name, a C file or a run folder");
    bool run_given = tu__run_folder_holds_run(model);
    if (!t->options.resume && run_given && !is_network(model))
        return tu_fail(TU_INVALID,
                       "'%s' is a run folder: go on with it by --resume, or begin from it by --init", model);
    if (!t->options.resume) return begin_new(t, model, data);
    if (t->options.out) return resume_out(t, model, data);
    if (run_given) return begin_again(t, model, NULL, data);
    return tu_fail(TU_NOT_FOUND,
                   "--resume: '%s' is no run folder: expected one that has a config.json, or --out", model);
}

static void clear(tu__trainer *t, const tu_train_options *options, const tu__run_config *ensemble) {
    *t = (tu__trainer){.arena = {.purpose = "a run's configuration"}, .progress = tu__progress_begin()};
    t->ensemble = ensemble;
    t->config.looks_at_test = ensemble && ensemble->looks_at_test;
    tu__copy_options(&t->options, sizeof t->options, options);
}

tu_status tu__trainer_begin(tu__trainer *t, const char *model, const char *data,
                            const tu_train_options *options, const tu__run_config *ensemble) {
    clear(t, options, ensemble);
    TU_TRY(begin(t, model, data));
    tell_notices(t);
    return TU_OK;
}

tu_status tu__trainer_plan(tu__trainer *t, const char *model, const char *data,
                           const tu_train_options *options, const tu__run_config *ensemble) {
    clear(t, options, ensemble);
    t->plan_only = true;
    return begin(t, model, data);
}

void tu__trainer_end(tu__trainer *t) {
    tu__metrics_close(t->metrics);
    tu__burst_close(&t->burst);
    tu__stepper_close(&t->stepper);
    tu__evaluator_close(&t->evaluator);
    tu__snapshot_free(&t->snapshot);
    tu_state_free(t->state);
    tu__run_graphs_free(&t->graphs);
    tu_dataset_free(t->opened);
    tu__run_folder_close(&t->folder);
    tu__text_free(&t->notices);
    tu__arena_free(&t->arena);
}
