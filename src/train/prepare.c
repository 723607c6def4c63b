/* Prepares a new run, or resumes an existing one. See trainer.h.
 *
 * A new run is first built in memory (settings, data set, graphs, programs, state), then written to disk, so that a
 * user error leaves no folder behind. config.json is written last: a folder that contains it is complete. A resumed
 * run takes the lock first and loads settings, graphs and state from its folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <tutti/network.h>

#include "base/alloc.h"
#include "base/save.h"
#include "base/utf8.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "train/initialize.h"
#include "train/ranks.h"
#include "train/step_graphs.h"
#include "train/table_settings.h"
#include "train/trainer.h"

enum {
    MAX_VALIDATION =
        5000, /* default maximum of images in the validation split: the standard error of the accuracy is then below 1% */
    MIN_STEPS = 300, /* minimum number of steps if neither --epochs nor --steps is given */
    TARGET_EVALUATIONS =
        20, /* approximate number of evaluations and checkpoints if the number of epochs is chosen here */
    /* Of a table, by the recipe "quick": 100 epochs, but no more than 4,000 steps need. More overfit, and take minutes if the
     * network is wide. Batches are smaller if 100 epochs are then at most 4,000 steps. */
    TABLE_EPOCHS = 100,
    TABLE_STEPS = 4000,
    TABLE_BATCH = 64,
};

void tu__trainer_report(tu__trainer *t, tu_train_event event, const char *message) {
    t->report.struct_size = sizeof t->report;
    t->report.event = event;
    t->report.message = message;
    t->report.folder = t->folder.path;
    /* On several processes, rank 0 reports; the others only that they have begun, from when on signals are caught. */
    if (t->options.on_report && (tu__is_writer(t) || event == TU_TRAIN_BEGUN))
        t->options.on_report(t->options.context, &t->report);
    t->report.message = NULL;
}

/* Reports a notice. While the run is being prepared, notices are queued, so that a failed call reports only its
 * error. */
void tu__trainer_notice(void *trainer, const char *message) {
    tu__trainer *t = trainer;
    if (t->started)
        tu__trainer_report(t, TU_TRAIN_NOTICE, message);
    else
        tu__text_append(&t->notices, message, strlen(message) + 1);
}

static void report_notices(tu__trainer *t) {
    t->started = true;
    for (size_t at = 0; at < t->notices.length; at += strlen(t->notices.data + at) + 1)
        tu__trainer_report(t, TU_TRAIN_NOTICE, t->notices.data + at);
}

/* ---- Data set ---- */

static void report_loading(void *context, const char *what, int64_t done, int64_t total) {
    tu__trainer *t = context;
    if (!t->options.on_report || !tu__is_writer(t)) return;
    tu_train_report report = {.struct_size = sizeof report,
                              .event = TU_TRAIN_LOADING,
                              .message = what,
                              .step = done,
                              .steps = total};
    t->options.on_report(t->options.context, &report);
}

/* Fails if options were given that only apply to a data set opened by tu_train. */
static tu_status check_caller_dataset(const tu__settings *s) {
    const struct {
        const char *option;
        bool given;
    } options[] = {{"--skip-bad", s->skip_bad},      {"--ignore-label", *s->ignore_label},
                   {"--target", *s->target},         {"--drop", *s->drop},
                   {"--categories", *s->categories}, {"--context", s->window > 0},
                   {"--header", *s->header}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given)
            return tu_fail(
                TU_INVALID,
                "%s has no effect on an open data set (.set): pass the option to tu_dataset_open, or pass the data set's name to tu_train",
                options[i].option);
    return TU_OK;
}

static void report_dataset_notices(tu__trainer *t) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    char message[160];
    if (t->ensemble) return; /* reported once for all members */
    if (tu_dataset_describe(t->dataset, &info) != TU_OK) return;
    if (info.skipped) {
        snprintf(message, sizeof message, "unreadable images skipped (--skip-bad): %lld",
                 (long long)info.skipped);
        tu__trainer_notice(t, message);
    }
    if (info.ignored) {
        snprintf(message, sizeof message, "images with label %.20s skipped (--ignore-label): %lld",
                 t->config.settings.ignore_label, (long long)info.ignored);
        tu__trainer_notice(t, message);
    }
    if (info.notice) tu__trainer_notice(t, info.notice);
}

/* Opens the data set. `height`, `width`: target size of the images of a folder; other data sets keep their size.
 * `window`: tokens of a sample of a text. `validation`: also load the data set's own validation split. */
static tu_status open_dataset(tu__trainer *t, const char *data, int64_t height, int64_t width, int64_t window,
                              bool validation) {
    const tu__settings *s = &t->config.settings;
    bool ignores;
    int64_t label;
    TU_TRY(tu__read_ignore_label(s->ignore_label, &ignores, &label));
    t->dataset = t->shared ? t->shared->dataset : NULL;
    if (t->dataset) return TU_OK;
    t->dataset = t->options.set;
    if (t->dataset) return check_caller_dataset(s);
    if (!data || !*data)
        return tu_fail(
            TU_INVALID,
            "no training data: expected --data with cifar10, mnist, generated, a folder of images, a CSV file or a pair of .npy files");
    TU_TRY(tu_dataset_open(data, &t->opened, .height = height, .width = width, .offline = t->options.offline,
                           .progress = report_loading, .context = t, .validation = validation,
                           .skip_bad = s->skip_bad, .ignore_label = ignores ? &label : NULL,
                           .target = s->target, .categories = tu__categories_of(s), .drop = s->drop,
                           .header = s->header, .window = window));
    t->dataset = t->opened;
    report_dataset_notices(t);
    return TU_OK;
}

/* ---- New run: configuration ---- */

static tu_status copy_string(tu__trainer *t, const char *given, const char **copy) {
    *copy = tu__arena_string(&t->arena, given ? given : "");
    return *copy ? TU_OK : TU_NO_MEMORY;
}

/* Finds the network that `model` names, or that the C file `model` defines. */
static tu_status find_network(tu__trainer *t, const char *model, tu_network_options *defaults) {
    tu__run_config *config = &t->config;
    config->network = t->shared ? t->shared->network : model;
    if (tu_network_is_file(config->network)) TU_TRY(tu_network_load(model, &config->network));
    return tu_network_defaults(config->network, defaults);
}

/* True if the user or the recipe chose a validation split. Otherwise the data set's own is used, if any. A member
 * uses that of its ensemble. */
static bool is_validation_given(const tu__trainer *t) {
    if (t->ensemble) return t->ensemble->dataset.validation == 0;
    const tu_train_options *recipe = tu__recipe_find(t->config.settings.recipe, t->config.network);
    return t->options.validation != 0 || (recipe && recipe->validation != 0);
}

/* Early stopping and periodic evaluation need a validation split. */
static tu_status check_validation(const tu__trainer *t) {
    const tu__settings *s = &t->config.settings;
    if (t->config.selects_on_test || tu__validation_images(&t->config) > 0) return TU_OK;
    if (s->early_stop <= 0 && (t->options.evaluate_every <= 0 || t->ensemble)) return TU_OK;
    const char *option = s->early_stop > 0 ? "--early-stop" : "--evaluate-every";
    return tu_fail(TU_INVALID, "%s needs a validation split: add --validation 0.1, or remove %s", option,
                   option);
}

/* ---- New run: lengths ---- */

/* Chooses the validation split. Default: the data set's own, else a fraction of the training images, at most
 * MAX_VALIDATION. */
static tu_status choose_validation_split(tu__trainer *t) {
    tu__run_config *config = &t->config;
    bool given = is_validation_given(t);
    if (!given && config->dataset.validation)
        config->settings.validation = (double)config->dataset.validation;
    else if (!given && tu__validation_images(config) > MAX_VALIDATION)
        config->settings.validation = MAX_VALIDATION;
    if (given && t->dataset->windows.length) {
        if (config->settings.validation > 0)
            return tu_fail(
                TU_INVALID,
                "--validation %.10g: a token file has its own validation part, and windows chosen at random "
                "would overlap: expected 0 or nothing",
                config->settings.validation);
    }
    if (given) config->dataset.validation = 0; /* the requested split replaces the data set's own */
    return check_validation(t);
}

static int64_t round_up(int64_t number, int64_t unit) {
    return (number - 1) / unit * unit + unit;
}

/* Sets the number of epochs. Also limits the number of evaluations and checkpoints. */
static tu_status set_epochs(tu__run_config *config, int64_t epochs) {
    tu__settings *s = &config->settings;
    int64_t epoch = config->steps_per_epoch, every = round_up(epochs * epoch / TARGET_EVALUATIONS, epoch);
    s->epochs = epochs;
    if (!s->evaluate_every) s->evaluate_every = every;
    if (!s->checkpoint_every) s->checkpoint_every = every;
    return tu__run_config_compute_steps(config);
}

/* True if the recipe is "quick", which is meant for images, and the data set a table. */
static bool is_quick_table(const tu__run_config *config) {
    return strcmp(tu__samples_name(config), "rows") == 0 && strcmp(config->settings.recipe, "quick") == 0;
}

/* Chooses smaller batches for tables of few rows: noisier steps overfit less than more epochs of larger batches. */
static void choose_batch(tu__trainer *t) {
    tu__run_config *config = &t->config;
    bool few = (tu__training_images(config) - 1) / TABLE_BATCH < TABLE_STEPS / TABLE_EPOCHS;
    if (!t->options.batch && few && is_quick_table(config)) config->settings.batch = TABLE_BATCH;
}

/* Returns the number of epochs for a table: the recipe's are meant for images, and are a few steps for most tables. A large table
 * gets fewer, at least those of the recipe (docs/tables.md). */
static int64_t epochs_of_table(const tu__run_config *config) {
    int64_t epochs = (TABLE_STEPS - 1) / config->steps_per_epoch + 1;
    if (epochs > TABLE_EPOCHS) epochs = TABLE_EPOCHS;
    return epochs > config->settings.epochs ? epochs : config->settings.epochs;
}

static void note_small(tu__trainer *t, int64_t before, int64_t epochs) {
    char message[200];
    snprintf(
        message, sizeof message,
        "the data set is small (%lld training %s): training %lld epochs instead of %lld, for at least %d steps; set --epochs to change this",
        (long long)tu__training_images(&t->config), tu__samples_name(&t->config), (long long)epochs,
        (long long)before, MIN_STEPS);
    tu__trainer_notice(t, message);
}

/* Raises the number of epochs for tables, and for small data sets: the epochs of a recipe assume thousands of images and would
 * be a few steps for forty. */
static tu_status choose_length(tu__trainer *t) {
    tu__run_config *config = &t->config;
    const tu__settings *s = &config->settings;
    int64_t epochs = s->epochs, epoch = config->steps_per_epoch;
    if (t->options.epochs || t->options.steps) return TU_OK;
    if (is_quick_table(config)) epochs = epochs_of_table(config);
    if (epochs < (MIN_STEPS - 1) / epoch + 1) {
        int64_t before = epochs;
        epochs = (MIN_STEPS - 1) / epoch + 1;
        note_small(t, before, epochs);
    }
    return epochs == s->epochs ? TU_OK : set_epochs(config, epochs);
}

/* Makes the learning rate grow, which no setting can. */
static void grow_rate(tu__trainer *t) {
    tu__settings *s = &t->config.settings;
    s->schedule = "exponential";
    s->warmup = 0;
    s->rate_every = 1 / (double)t->config.steps_per_epoch; /* a step */
    s->rate_factor = t->shared->rate_growth;
}

/* The names of a run are stored in JSON and in checkpoints, which are UTF-8. Other names could not be saved, or not be found
 * again by --resume. */
static tu_status check_utf8(const char *what, const char *name) {
    if (!name || tu__is_utf8(name, strlen(name))) return TU_OK;
    return tu_fail(TU_INVALID, "%s '%.200s' is not UTF-8: rename it, because a run could not store its name",
                   what, name);
}

static tu_status check_names(const tu__trainer *t, const char *model, const char *data) {
    TU_TRY(check_utf8("the model", model));
    TU_TRY(check_utf8("the data set", t->options.set ? NULL : data));
    TU_TRY(check_utf8("the file of --lock", t->options.lock));
    return check_utf8("the file of --init", t->options.init);
}

static tu_status check_node_names(const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++) TU_TRY(check_utf8("the node", graph->nodes[i]->name));
    return TU_OK;
}

static tu_status resolve_config(tu__trainer *t, const char *model, const char *data) {
    TU_TRY(check_names(t, model, data));
    tu__run_config *config = &t->config;
    tu_network_options defaults = TU_SIZED(tu_network_options);
    TU_TRY(find_network(t, model, &defaults));
    TU_TRY(tu__settings_resolve(config->network, &t->options, &t->arena, &config->settings));
    int64_t size = config->settings.image_size;
    int64_t context = config->settings.window;
    TU_TRY(open_dataset(t, data, size ? size : defaults.height, size ? size : defaults.width,
                        context ? context : defaults.context, !is_validation_given(t)));
    config->dataset = TU_SIZED(tu_dataset_info);
    TU_TRY(tu_dataset_describe(t->dataset, &config->dataset));
    config->columns = t->dataset->columns;
    TU_TRY(tu__choose_task(t));
    TU_TRY(copy_string(t, model, &config->model));
    TU_TRY(copy_string(t, t->options.set ? "" : data, &config->data));
    TU_TRY(copy_string(t, t->options.init, &config->init));
    TU_TRY(choose_validation_split(t));
    choose_batch(t);
    TU_TRY(tu__run_config_compute_steps(config));
    if (t->shared && t->shared->rate_growth > 0) grow_rate(t);
    return choose_length(t);
}

/* ---- Programs ---- */

/* Stores the number of threads that "all cores" resolved to: bit-identical results need the same number. Processes that
 * cannot divide the cores evenly have different numbers, of which none is stored. */
static tu_status record_threads(tu__trainer *t) {
    tu__run_config *config = &t->config;
    tu_device_report device = TU_SIZED(tu_device_report);
    config->processes = tu__ranks_count(t);
    if (config->settings.threads) return TU_OK;
    config->automatic_threads = true;
    TU_TRY(tu_program_device(t->stepper.full.program, 0, &device));
    int64_t threads = device.threads;
    TU_TRY(tu__ranks_compare_threads(t, &threads));
    config->settings.threads = threads;
    return TU_OK;
}

/* Reports notices of the devices. Logical devices of one device have the same notice, which is reported once. */
static void report_device_notices(tu__trainer *t) {
    tu_device_report device = TU_SIZED(tu_device_report);
    char last[320] = "";
    for (size_t i = 0; i < tu_program_device_count(t->stepper.full.program) &&
                       tu_program_device(t->stepper.full.program, i, &device) == TU_OK;
         i++) {
        if (!device.notice || strcmp(device.notice, last) == 0) continue;
        snprintf(last, sizeof last, "%s", device.notice);
        tu__trainer_notice(t, device.notice);
    }
    tu_placement_totals placed = TU_SIZED(tu_placement_totals);
    if (tu_program_placement_totals(t->stepper.full.program, &placed) == TU_OK && placed.notice)
        tu__trainer_notice(t, placed.notice);
}

static tu_status compile_programs(tu__trainer *t) {
    TU_TRY(tu__stepper_open(&t->graphs, &t->config, &t->stepper));
    TU_TRY(record_threads(t));
    report_device_notices(t);
    TU_TRY(tu__multi_step_loop_open(&t->stepper, t->dataset, t->config.settings.batch, t->config.group,
                                    &t->multi_step));
    if (!t->multi_step.stepper) TU_TRY(tu__stepper_gather_from(&t->stepper, &t->config, t->dataset));
    if (t->config.dataset.count[TU_TEST] > 0 || tu__validation_images(&t->config) > 0)
        TU_TRY(tu__evaluator_open(t->graphs.evaluate, t->graphs.metrics, &t->config, false, &t->evaluator));
    return tu__stepper_state(&t->stepper, &t->config, &t->state);
}

static tu_status load_initial_weights(tu__trainer *t) {
    tu__text summary = {0};
    tu_status status = tu__initialize_from(t->config.init, t->state, &summary);
    if (status == TU_OK) tu__trainer_notice(t, tu__text_string(&summary));
    tu__text_free(&summary);
    return status;
}

static tu_status describe_graph(tu__trainer *t) {
    char digest[TU_DIGEST_TEXT];
    tu_graph_totals totals = TU_SIZED(tu_graph_totals);
    TU_TRY(tu_graph_digest(t->graphs.step, digest));
    TU_TRY(tu_graph_total(t->graphs.predict, &totals));
    t->config.parameters = totals.parameters;
    return copy_string(t, digest, &t->config.graph_digest);
}

/* ---- New run: folder ---- */

static tu_status save_kernels(const tu__trainer *t) {
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory) return tu_fail(TU_NO_MEMORY, "out of memory for the list of kernels");
    tu_status status = tu_program_print(t->stepper.full.program, memory);
    if (fclose(memory) != 0 && status == TU_OK)
        status = tu_fail(TU_NO_MEMORY, "out of memory for the list of kernels");
    if (status == TU_OK) status = tu__file_save_in(t->folder.path, "kernels.txt", text, size);
    free(text);
    return status;
}

/* Saves weights loaded with --init as checkpoint 0, because their file may be gone or changed when the run is
 * resumed. Weights from an initialiser are recomputed. Removes a checkpoint 0 that a killed process left in the
 * folder. */
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
    TU_TRY(tu__run_folder_create(t->options.out, t->config.model, t->config.dataset.name, &t->folder));
    TU_TRY(tu__run_folder_create_subfolders(&t->folder));
    TU_TRY(tu__run_graphs_save(t->folder.path, &t->graphs));
    TU_TRY(save_kernels(t));
    TU_TRY(save_initial_weights(t));
    TU_TRY(tu__run_config_save(&t->folder, &t->config));
    TU_TRY(tu__metrics_open(t->folder.path, &t->config, -1, tu__trainer_notice, t, &t->metrics));
    tu__metrics_graph(t->metrics, t->graphs.step);
    tu__metrics_images(t->metrics, t->dataset);
    return TU_OK;
}

/* Functions of the caller are not stored: a resumed run has those of its caller. */
static void config_hooks(tu__trainer *t) {
    t->hooks = (tu_train_hooks){0};
    tu__copy_options(&t->hooks, sizeof t->hooks, t->options.hooks);
    t->config.hooks = t->options.hooks ? &t->hooks : NULL;
}

/* A member has all settings of its ensemble as options, also those that only the ensemble's config.json has. */
static void set_lock_owner(tu__trainer *t) {
    t->config.user_named_lock =
        t->options.lock && *t->options.lock && (!t->ensemble || t->ensemble->user_named_lock);
}

static tu_status start_new(tu__trainer *t, const char *model, const char *data) {
    if (t->options.out && tu__run_folder_has_run(t->options.out))
        return tu_fail(TU_INVALID,
                       "'%s' already contains a run: continue it with --resume, or choose another --out",
                       t->options.out);
    TU_TRY(resolve_config(t, model, data));
    set_lock_owner(t);
    TU_TRY(tu__ranks_set_devices(t));
    TU_TRY(tu__ranks_check(t, false));
    config_hooks(t);
    TU_TRY(tu__run_graphs_build(&t->config, &t->graphs));
    TU_TRY(check_node_names(t->graphs.step));
    TU_TRY(describe_graph(t));
    if (t->plan_only) return tu__stepper_plan(&t->graphs, &t->config, &t->stepper);
    TU_TRY(compile_programs(t));
    if (*t->config.init) {
        TU_TRY(tu__ranks_agree(t, tu__is_writer(t) ? load_initial_weights(t) : TU_OK));
        TU_TRY(tu__ranks_copy_state(t));
    }
    TU_TRY(tu__ranks_report(t));
    if (!tu__is_writer(t)) return TU_OK;
    tu_status status = write_folder(t);
    if (status != TU_OK) tu__run_folder_discard(&t->folder);
    return status;
}

/* ---- Resumed run ---- */

static tu_status check_same_dataset(const tu__trainer *t) {
    const tu_dataset_info *stored = &t->config.dataset;
    tu_dataset_info now = TU_SIZED(tu_dataset_info);
    TU_TRY(tu_dataset_describe(t->dataset, &now));
    bool same_images = stored->height == now.height && stored->width == now.width &&
                       stored->channels == now.channels && stored->dtype == now.dtype &&
                       tu__same_columns(&t->config.columns, &t->dataset->columns);
    if (same_images && strcmp(stored->digest, now.digest) == 0 && stored->classes == now.classes &&
        stored->count[TU_TRAIN] == now.count[TU_TRAIN] && stored->count[TU_TEST] == now.count[TU_TEST] &&
        (stored->validation == 0 || stored->validation == now.validation))
        return TU_OK;
    return tu_fail(
        TU_INVALID,
        "data set '%s' has changed since the run was started: its digest is %.12s (%lld %s), expected %.12s (%lld %s)",
        now.name, now.digest, (long long)now.count[TU_TRAIN], tu__samples_name(&t->config), stored->digest,
        (long long)stored->count[TU_TRAIN], tu__samples_name(&t->config));
}

static tu_status check_same_arguments(const tu__trainer *t, const char *folder, const char *model,
                                      const char *data) {
    if (model && strcmp(model, t->config.model) != 0)
        return tu_fail(TU_INVALID, "--resume cannot change the model to '%s': the run in '%s' trains '%s'",
                       model, folder, t->config.model);
    if (data && strcmp(data, t->config.data) != 0)
        return tu_fail(TU_INVALID,
                       "--resume cannot change --data to '%s': the run in '%s' was started on '%s'", data,
                       folder, t->config.data);
    if (t->options.init && strcmp(t->options.init, t->config.init) != 0)
        return tu_fail(TU_INVALID,
                       "--init '%s' cannot be used with --resume: the run in '%s' already has weights",
                       t->options.init, folder);
    return TU_OK;
}

/* Applies the settings of a resume. The stored number of threads belongs to the old devices: with other devices it is
 * reset, and with another number of processes, which divide the cores, unless the user chose it. */
static tu_status apply_settings(tu__trainer *t) {
    tu__run_config *config = &t->config;
    tu__settings *s = &config->settings;
    int64_t images = tu__training_images(&t->config);
    if (t->options.batch > images) t->options.batch = images; /* limited like at the start of the run */
    const char *before = s->devices;
    TU_TRY(tu__settings_resume(s, &t->options, &t->arena));
    if (t->options.threads)
        config->automatic_threads = false;
    else if (strcmp(before, s->devices) != 0 ||
             (config->automatic_threads && config->processes != tu__ranks_count(t)))
        s->threads = 0;
    return TU_OK;
}

static tu_status load_state(tu__trainer *t) {
    bool found;
    TU_TRY(tu__checkpoint_load_newest(t->folder.path, &t->config, t->state, &t->progress, &found,
                                      tu__trainer_notice, t));
    if (found || !*t->config.init) return TU_OK;
    return tu_fail(
        TU_CORRUPT,
        "run '%s' has no checkpoint left, not even its initial weights: start a new run with --init '%s'",
        t->folder.path, t->config.init);
}

/* Saves settings that a resume changed (devices, checkpoints to keep), so that the next resume uses them. */
static tu_status save_changes(const tu__trainer *t, const tu__run_config *before) {
    if (tu__settings_equal(&t->config.settings, &before->settings) &&
        t->config.processes == before->processes && t->config.automatic_threads == before->automatic_threads)
        return TU_OK;
    TU_TRY(save_kernels(t));
    return tu__run_config_save(&t->folder, &t->config);
}

static tu_status check_not_ensemble(const tu__trainer *t, const char *folder) {
    if (t->config.members == 0) return TU_OK;
    return tu_fail(TU_INVALID, "'%s' is an ensemble of %lld members: resume it with tu_train_ensemble",
                   folder, (long long)t->config.members);
}

/* Resumes the run in `folder`. `model` and `data` may be NULL: as stored in the run. */
static tu_status resume(tu__trainer *t, const char *folder, const char *model, const char *data) {
    if (tu__is_writer(t))
        TU_TRY(tu__run_folder_open(folder, &t->folder));
    else /* only reads the configuration and the graphs */
        snprintf(t->folder.path, sizeof t->folder.path, "%s", folder);
    TU_TRY(tu__run_config_load(t->folder.path, &t->arena, &t->config));
    const tu__run_config before = t->config;
    TU_TRY(check_not_ensemble(t, folder));
    TU_TRY(check_same_arguments(t, folder, model, data));
    TU_TRY(apply_settings(t));
    set_lock_owner(t);
    TU_TRY(tu__ranks_set_devices(t));
    config_hooks(t);
    TU_TRY(open_dataset(t, t->config.data, t->config.dataset.height, t->config.dataset.width,
                        tu__window_of(&t->config.columns), t->config.dataset.validation > 0));
    TU_TRY(check_same_dataset(t));
    TU_TRY(tu__ranks_check(t, true));
    TU_TRY(tu__run_graphs_load(t->folder.path, &t->config, &t->graphs));
    if (t->plan_only) return tu__stepper_plan(&t->graphs, &t->config, &t->stepper);
    TU_TRY(compile_programs(t));
    TU_TRY(tu__ranks_agree(t, tu__is_writer(t) ? load_state(t) : TU_OK));
    TU_TRY(tu__ranks_copy_state(t));
    TU_TRY(tu__ranks_report(t));
    if (!tu__is_writer(t)) return TU_OK;
    TU_TRY(save_changes(t, &before));
    return tu__metrics_open(t->folder.path, &t->config, t->progress.step, tu__trainer_notice, t, &t->metrics);
}

/* ---- Start or resume ---- */

static bool is_network(const char *model) {
    tu_network_options defaults = TU_SIZED(tu_network_options);
    return tu_network_defaults(model, &defaults) == TU_OK;
}

static bool is_same_folder(const char *a, const char *b) {
    struct stat info_a, info_b;
    return stat(a, &info_a) == 0 && stat(b, &info_b) == 0 && info_a.st_dev == info_b.st_dev &&
           info_a.st_ino == info_b.st_ino;
}

/* Handles --resume with --out: resumes the run in that folder, or starts one there. If `model` is both a network's
 * name and a folder's, it means the network. */
static tu_status resume_in_folder(tu__trainer *t, const char *model, const char *data) {
    const char *out = t->options.out;
    bool run_given = tu__run_folder_has_run(model);
    if (run_given && is_same_folder(model, out)) return resume(t, out, NULL, data);
    if (run_given && !is_network(model))
        return tu_fail(
            TU_INVALID,
            "--resume is ambiguous: '%s' contains a run, and --out is '%s'; remove --out to continue the run",
            model, out);
    if (tu__run_folder_has_run(out)) return resume(t, out, model, data);
    tu__trainer_notice(t, "no run to resume: starting a new one");
    return start_new(t, model, data);
}

static tu_status start_or_resume(tu__trainer *t, const char *model, const char *data) {
    if (!model || !*model)
        return tu_fail(TU_INVALID, "no model given: expected a name, a C file or a run folder");
    bool run_given = tu__run_folder_has_run(model);
    if (!t->options.resume && run_given && !is_network(model))
        return tu_fail(
            TU_INVALID,
            "'%s' is a run folder: continue it with --resume, or start from its weights with --init", model);
    if (!t->options.resume) return start_new(t, model, data);
    if (t->options.out) return resume_in_folder(t, model, data);
    if (run_given) return resume(t, model, NULL, data);
    return tu_fail(
        TU_NOT_FOUND,
        "--resume: '%s' is not a run folder (it has no config.json): expected a run folder, or --out", model);
}

static void init_trainer(tu__trainer *t, const tu_train_options *options, const tu__run_config *ensemble) {
    *t = (tu__trainer){.arena = {.purpose = "a run's configuration"}, .progress = tu__progress_initial()};
    t->ensemble = ensemble;
    t->config.selects_on_test = ensemble && ensemble->selects_on_test;
    tu__copy_options(&t->options, sizeof t->options, options);
}

tu_status tu__trainer_begin(tu__trainer *t, const char *model, const char *data,
                            const tu_train_options *options, const tu__run_config *ensemble) {
    init_trainer(t, options, ensemble);
    TU_TRY(start_or_resume(t, model, data));
    report_notices(t);
    return TU_OK;
}

tu_status tu__trainer_begin_trial(tu__trainer *t, const char *model, const char *data,
                                  const tu_train_options *options, const tu__shared_inputs *shared) {
    init_trainer(t, options, NULL);
    t->shared = shared;
    TU_TRY(start_or_resume(t, model, data));
    report_notices(t);
    return TU_OK;
}

tu_status tu__trainer_plan(tu__trainer *t, const char *model, const char *data,
                           const tu_train_options *options, const tu__run_config *ensemble) {
    init_trainer(t, options, ensemble);
    t->plan_only = true;
    return start_or_resume(t, model, data);
}

void tu__trainer_end(tu__trainer *t) {
    tu__train_stack_abandon(t);
    if (t->metrics) tu__metrics_close(t->metrics);
    tu__multi_step_loop_close(&t->multi_step);
    tu__stepper_close(&t->stepper);
    tu__evaluator_close(&t->evaluator);
    tu__snapshot_free(&t->snapshot);
    tu_state_free(t->state);
    tu__run_graphs_free(&t->graphs);
    tu_dataset_free(t->opened);
    tu__run_folder_close(&t->folder);
    tu__text_free(&t->notices);
    tu__free(t->waits);
    tu__arena_free(&t->arena);
}
