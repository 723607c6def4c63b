/* `tutti tune MODEL --data SET`: searches for good settings, and shows what a study has found. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/network.h>
#include <tutti/process_group.h>
#include <tutti/tune.h>

#include "cli/launched.h"
#include "cli/setting_options.h"
#include "cli/tune_find.h"
#include "cli/tune_report.h"
#include "cli/tune_table.h"

enum { STOPPED = 130, MAX_TRIES = 64 };

struct tune_values {
    CLI_SETTING_FIELDS
    const char *data, *study, *name, *space, *tries, *time, *page;
    int64_t trials, total_steps, attempts;
    double heartbeat_timeout, database_timeout;
    int sampler, pruner, objective, export, find; /* -1: not given */
    bool worker, status, best, quiet, json;
};

static const struct tune_values defaults = {
    .o =
        {
            .struct_size = sizeof(tu_train_options),
#define TU_SETTING(kind, field, option, letter, argument, default_value, minimum, maximum, group, help)      \
    .field = NOT_GIVEN_##kind,
#include <tutti/settings.def>
#undef TU_SETTING
        },
    .heartbeat_timeout = 60,
    .database_timeout = 300,
    .sampler = -1,
    .pruner = -1,
    .objective = -1,
    .export = -1,
    .find = -1,
};

static const char *const samplers[] = {"tpe", "random", "sobol", "grid", NULL};
static const char *const pruners[] = {"asha", "median", "none", NULL};
static const char *const objectives[] = {"accuracy", "loss", NULL};
static const char *const formats[] = {"csv", "json", NULL};
static const char *const finders[] = {"rate", "batch", NULL};

static const struct cli_option options[] = {
    CLI_STRING(struct tune_values, data, "data", 'd', "SET", CLI_HELP_DATA),
    CLI_STRING(struct tune_values, tries, "try", 0, "LIST",
               "parameters to vary, as in 'rate=log:1e-4:1,batch=64|128|256'"),
    CLI_STRING(struct tune_values, space, "space", 0, "FILE", "parameters to vary, one a line"),
    CLI_CHOICE(struct tune_values, sampler, "sampler", 0, "NAME", samplers,
               "how values are chosen (default: tpe)"),
    CLI_CHOICE(struct tune_values, pruner, "pruner", 0, "NAME", pruners,
               "how bad trials are stopped early (default: asha)"),
    CLI_CHOICE(struct tune_values, objective, "objective", 0, "NAME", objectives,
               "what is compared, on the validation split (default: accuracy, or loss if the task has none)"),
    CLI_INT(struct tune_values, trials, "trials", 0, "N", 0, 100000000,
            "number of trials; 0: 20, or all points of a grid, unless another budget is given"),
    CLI_INT(struct tune_values, total_steps, "total-steps", 0, "N", 0, INT64_MAX,
            "start no further trial after so many training steps of all trials; 0: no limit"),
    CLI_STRING(struct tune_values, time, "time", 0, "DURATION",
               "stop after this time, as in 90s, 30m or 2h; unfinished trials can be continued"),
    CLI_STRING(struct tune_values, study, "study", 0, "PLACE",
               "folder of the study, or postgresql://... (default: studies/MODEL-SET-NUMBER)"),
    CLI_STRING(struct tune_values, name, "name", 0, "NAME",
               "name of the study in its database (default: MODEL-SET, or the only one)"),
    CLI_STRING(struct tune_values, o.out, "out", 'o', "DIR",
               "folder for the runs of the trials (default: the study's folder, or studies/NAME)"),
    CLI_FLAG(struct tune_values, worker, "worker", 0,
             "work on the study that exists: its model, data, space and settings are used"),
    CLI_FLAG(struct tune_values, status, "status", 0, "show the trials of --study"),
    CLI_FLAG(struct tune_values, best, "best", 0, "show the best trial of --study"),
    CLI_CHOICE(struct tune_values, export, "export", 0, "FORMAT", formats, "print all trials of --study"),
    CLI_STRING(struct tune_values, page, "page", 0, "FILE",
               "write a page of HTML about the study (default: page.html in its folder, when a search ends)"),
    CLI_CHOICE(struct tune_values, find, "find", 0, "WHAT", finders,
               "find a learning rate or a batch size within seconds, without a study"),
    CLI_DOUBLE(struct tune_values, heartbeat_timeout, "heartbeat-timeout", 0, "SECONDS", 0.1, 1e6,
               "a worker that is silent for longer is taken for dead: others continue its trials"),
    CLI_INT(struct tune_values, attempts, "attempts", 0, "N", 0, 1000000,
            "a trial whose workers died so often has failed; 0: 3, or as the study says"),
    CLI_DOUBLE(struct tune_values, database_timeout, "database-timeout", 0, "SECONDS", 0, 1e6,
               "time to wait for a database that is away"),
    CLI_STRING(struct tune_values, o.recipe, "recipe", 0, "NAME",
               "named set of settings: quick, tutorial or plain (default: quick)"),
    CLI_STRING(struct tune_values, o.init, "init", 0, "RUN|FILE",
               "load initial weights from a run or a safetensors file"),
    CLI_FLAG(struct tune_values, o.offline, "offline", 0, CLI_HELP_OFFLINE),
    CLI_FLAG(struct tune_values, quiet, "quiet", 'q', "show no progress"),
    CLI_FLAG(struct tune_values, json, "json", 0, CLI_HELP_JSON),
#define TU_SETTING(kind, field, option, letter, argument, default_value, minimum, maximum, group, help)      \
    CLI_OPTION_##kind(struct tune_values, field, option, letter, argument, minimum, maximum, GROUP_##group,  \
                      help),
#include <tutti/settings.def>
#undef TU_SETTING
    {0},
};

static int convert_settings(struct tune_values *v) {
#define TU_SETTING(kind, field, option, letter, argument, default_value, minimum, maximum, group, help)      \
    CLI_CONVERT_##kind("tune", v, field, option);
#include <tutti/settings.def>
#undef TU_SETTING
    return CLI_DONE;
}

/* ---- Values of options ---- */

/* Splits --try at its commas, in place. Returns the number of parameters; -1 after an error. */
static int split_tries(char *list, const char **parameters) {
    int count = 0;
    for (char *rest = list, *word; (word = strsep(&rest, ","));) {
        if (count == MAX_TRIES) {
            cli_input_error("tune: --try: expected at most %d parameters; more fit into a file: --space",
                            MAX_TRIES);
            return -1;
        }
        parameters[count++] = word;
    }
    return count;
}

/* Parses "90", "90s", "30m" or "2h" to seconds. */
static bool parse_duration(const char *text, double *seconds) {
    char *end;
    *seconds = strtod(text, &end);
    double unit = *end == 'h' ? 3600 : *end == 'm' ? 60 : 1;
    if (*end == 'h' || *end == 'm' || *end == 's') end++;
    *seconds *= unit;
    bool valid = end != text && !*end && isfinite(*seconds) && *seconds > 0;
    if (!valid)
        cli_input_error("tune: --time %s: expected a duration above 0, as in 90s, 30m or 2h",
                        cli_quote(text).text);
    return valid;
}

/* ---- Processes of mpirun and srun ----
 *
 * Each is a worker by itself. Those of a host divide its devices, a GPU each or a share of the cores. */

static long number_in(const char *const *variables) {
    for (; *variables; variables++) {
        const char *value = getenv(*variables);
        if (value) return strtol(value, NULL, 10);
    }
    return -1;
}

static const char *const local_ranks[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", NULL};
static const char *const local_sizes[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE", NULL};

/* Chooses this process's share of "all" devices; `list` has room for it. NULL: all of them. */
static const char *own_devices(char list[64]) {
    long rank = number_in(local_ranks), size = number_in(local_sizes), gpus = 0;
    if (!tu_process_group_is_launched() || rank < 0 || size <= 1) return NULL;
    tu_device_info info = TU_SIZED(tu_device_info);
    for (size_t i = 0, count = tu_device_count(); i < count && tu_device(i, &info) == TU_OK; i++)
        gpus += !info.unusable && info.accelerator;
    if (gpus)
        snprintf(list, 64, "gpu:%ld", rank % gpus);
    else /* the launcher may have bound the process to its own cores */
        snprintf(list, 64, "cpu:0.%ld/%ld", rank % size, size);
    return list;
}

/* ---- Signals ---- */

static volatile sig_atomic_t stop_requested;

static void request_stop(int number) {
    (void)number;
    __atomic_store_n(&stop_requested, 1, __ATOMIC_RELAXED);
}

/* The first SIGINT or SIGTERM interrupts the trials, which are saved; the second one ends the process. */
static void catch_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before, action = {.sa_handler = request_stop, .sa_flags = SA_RESTART};
        if (numbers[i] != SIGHUP) action.sa_flags |= (int)SA_RESETHAND;
        sigemptyset(&action.sa_mask);
        /* Under nohup SIGHUP stays ignored. */
        bool ignored = sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (numbers[i] != SIGHUP || !ignored) sigaction(numbers[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
}

static void on_report(void *context, const tu_tune_report *report) {
    struct tune_table *table = context;
    if (report->event == TU_TUNE_BEGUN) catch_signals();
    tune_table_show(table, report);
    if (table->pipe_closed) request_stop(SIGPIPE);
}

/* ---- Searching ---- */

/* Writes the page; a failure is only a notice, because the study has all that it shows. */
static void save_page(const tu_tune_result *r, const char *address, const char *page) {
    char path[5000];
    tu_study *study;
    snprintf(path, sizeof path, "%s", page ? page : "");
    if (!page) snprintf(path, sizeof path, "%s/page.html", r->folder);
    tu_status status = tu_study_open(address, r->name, &study);
    if (status == TU_OK) status = tu_study_save_page(study, path);
    if (status == TU_OK) tu_study_free(study);
    if (status != TU_OK) fprintf(stderr, "tutti: notice: %s\n", tu_message());
}

/* The place of a study that was just created has no option. */
static const char *address_of(const struct tune_values *v, const tu_tune_result *r) {
    return v->study ? v->study : r->study;
}

/* An address may contain a password, which is not printed. */
static const char *shown_address(const struct tune_values *v, const tu_tune_result *r) {
    bool has_password = strstr(r->study, ":***") != NULL || (v->study && strstr(v->study, "password"));
    return v->study && !has_password ? v->study : r->study;
}

static int search(const char *model, struct tune_values *v) {
    const char *parameters[MAX_TRIES];
    char *list = v->tries ? strdup(v->tries) : NULL, share[64];
    int count = list ? split_tries(list, parameters) : 0;
    double seconds = 0;
    struct tune_table table;
    tu_tune_result result = TU_SIZED(tu_tune_result);
    if (!v->study && tu_process_group_is_launched()) {
        free(list);
        return cli_input_error("tune: the processes of mpirun and srun need a common place: --study");
    }
    if (count < 0 || (v->time && !parse_duration(v->time, &seconds))) {
        free(list);
        return CLI_BAD_INPUT;
    }
    const char *out = v->o.out;
    v->o.out = NULL;
    if (!v->o.devices) v->o.devices = own_devices(share);
    tune_table_begin(&table, v->quiet, v->trials);
    tu_status status =
        tu_tune(model, v->data, &result, .train = &v->o, .space = parameters, .space_count = (size_t)count,
                .space_file = v->space, .sampler = v->sampler >= 0 ? samplers[v->sampler] : NULL,
                .pruner = v->pruner >= 0 ? pruners[v->pruner] : NULL,
                .objective = v->objective >= 0 ? objectives[v->objective] : NULL, .trials = v->trials,
                .total_steps = v->total_steps, .seconds = seconds, .study = v->study, .name = v->name,
                .out = out, .worker = v->worker, .heartbeat_timeout = v->heartbeat_timeout,
                .attempts = v->attempts, .database_timeout = v->database_timeout, .stop = &stop_requested,
                .on_report = on_report, .context = &table);
    tune_table_end(&table);
    free(list);
    if (status != TU_OK) return cli_report(status);
    save_page(&result, address_of(v, &result), v->page);
    if (v->json)
        cli_print_tune_json(&result);
    else
        cli_print_tune(&result, shown_address(v, &result));
    return stop_requested ? STOPPED : CLI_DONE;
}

/* ---- Looking at a study ---- */

static int show(const struct tune_values *v) {
    tu_study *study;
    if (!v->study)
        return cli_input_error(
            "tune: --status, --best, --export and --page need --study: a folder, a file or postgresql://...");
    tu_status status = tu_study_open(v->study, v->name, &study);
    if (status != TU_OK) return cli_report(status);
    if (v->page) status = tu_study_save_page(study, v->page);
    if (status == TU_OK && v->export >= 0) status = tu_study_export(study, formats[v->export], stdout);
    if (status == TU_OK && v->status)
        status = v->json ? tu_study_export(study, "json", stdout) : cli_print_study(study);
    if (status == TU_OK && v->best) status = cli_print_best(study, v->json);
    tu_study_free(study);
    return cli_report(status);
}

/* ---- Finders ---- */

static int find(const char *model, struct tune_values *v) {
    const char *given = v->worker                     ? "--worker"
                        : v->study                    ? "--study"
                        : v->name                     ? "--name"
                        : v->tries                    ? "--try"
                        : v->space                    ? "--space"
                        : v->time                     ? "--time"
                        : v->trials || v->total_steps ? "a budget"
                        : v->page                     ? "--page"
                        : v->sampler >= 0             ? "--sampler"
                        : v->pruner >= 0              ? "--pruner"
                        : v->objective >= 0           ? "--objective"
                        : v->o.out                    ? "--out"
                                                      : NULL;
    if (given) return cli_input_error("tune: --find makes no study: remove %s", given);
    catch_signals();
    v->o.stop = &stop_requested;
    int status = cli_tune_find(finders[v->find], model, v->data, &v->o, v->json);
    return stop_requested ? STOPPED : status;
}

static int run(const void *given, int operand_count, char **operands) {
    struct tune_values values = *(const struct tune_values *)given;
    const char *model = operand_count ? operands[0] : NULL;
    bool shows =
        values.status || values.best || values.export >= 0 || (values.page && !model && !values.worker);
    if (convert_settings(&values) != CLI_DONE) return CLI_BAD_INPUT;
    if (shows && (model || values.worker || values.find >= 0))
        return cli_input_error(
            "tune: --status, --best and --export show a study: expected no model, --worker or --find");
    if (shows) return show(&values);
    if (!model && !values.worker)
        return cli_input_error("tune: no model given: expected a name or a C file, or --worker with --study");
    if (values.find >= 0) return find(model, &values);
    return search(model, &values);
}

const struct cli_command cli_command_tune = {
    .name = "tune",
    .summary = "searches for the settings with which a network trains best",
    .usage = "[MODEL] --data SET --try LIST [OPTIONS]",
    .description = "Trains MODEL on SET many times with different settings, one trial on each device\n"
                   "at a time, and compares the trials by the validation split. A study records all\n"
                   "trials; each is a run folder. When the search has ended, the best trial is\n"
                   "evaluated on the test split, once. 'tutti tune --worker --study PLACE' continues\n"
                   "a study, also on other machines at once.\n"
                   "\n"
                   "Parameters: LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH, LOW:HIGH/N (N values), A|B|C;\n"
                   "'NAME=VALUES if OTHER=A|B' makes one conditional. All other settings of\n"
                   "'tutti train' are the same for all trials.",
    .lists_models = true,
    .options = options,
    .values_size = sizeof(struct tune_values),
    .defaults = &defaults,
    .min_operands = 0,
    .max_operands = 1,
    .run = run,
};
