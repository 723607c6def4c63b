/* `tutti train MODEL --data SET`: trains a network and writes a run folder.
 *
 * Its options are the rows of tutti/settings.def (setting_options.h) and a few more. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/network.h>
#include <tutti/train.h>

#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/ensemble_report.h"
#include "cli/launched.h"
#include "cli/memory_advice.h"
#include "cli/processes.h"
#include "cli/progress.h"
#include "cli/setting_options.h"
#include "cli/train_result.h"
#include "cli/unequal_devices.h"

enum { STOPPED = 130 }; /* exit status after Ctrl-C, as in shells */

struct train_values {
    CLI_SETTING_FIELDS
    const char *data;
    int64_t ensemble; /* members; 0: not given */
    bool json, quiet;
    double collective_timeout;
    const char *interface;
    bool independent;
};

/* The context of on_report(). */
struct run_output {
    struct progress progress;
    char *trace;  /* summary of a trace, printed after the run; NULL: none */
    bool prints;  /* false for other processes than rank 0 */
    bool trained; /* at least one step */
};

static const struct train_values defaults = {
    .o =
        {
            .struct_size = sizeof(tu_train_options),
            .trace_steps = 10,
#define TU_SETTING(kind, field, option, letter, argument, default_value, minimum, maximum, group, help)      \
    .field = NOT_GIVEN_##kind,
#include <tutti/settings.def>
#undef TU_SETTING
        },
    .collective_timeout = 60,
};

static const struct cli_option options[] = {
    CLI_STRING(struct train_values, data, "data", 'd', "SET", CLI_HELP_DATA),
    CLI_STRING(struct train_values, o.recipe, "recipe", 0, "NAME",
               "named set of settings: quick, tutorial or plain (default: quick)"),
    CLI_STRING(struct train_values, o.out, "out", 'o', "DIR", "run folder (default: runs/MODEL-SET-NUMBER)"),
    CLI_FLAG(struct train_values, o.resume, "resume", 0,
             "resume a run: give its folder in place of MODEL, or with --out"),
    CLI_STRING(struct train_values, o.init, "init", 0, "RUN|FILE",
               "load initial weights from a run or a safetensors file"),
    CLI_INT(struct train_values, ensemble, "ensemble", 0, "N", 1, TU_MAX_ENSEMBLE,
            "train N networks independently, each on one device, with consecutive seeds"),
    CLI_FLAG(struct train_values, o.offline, "offline", 0, CLI_HELP_OFFLINE),
    CLI_STRING(struct train_values, o.trace, "trace", 0, "FILE", CLI_HELP_TRACE),
    CLI_INT(struct train_values, o.trace_steps, "trace-steps", 0, "N", 1, 100000, CLI_HELP_TRACE_STEPS),
    CLI_FLAG(struct train_values, quiet, "quiet", 'q', "show no progress"),
    CLI_FLAG(struct train_values, json, "json", 0, CLI_HELP_JSON),
    CLI_DOUBLE(struct train_values, collective_timeout, "collective-timeout", 0, "SECONDS", 0.1, 1e6,
               CLI_HELP_COLLECTIVE_TIMEOUT, .group = GROUP_DEVICES),
    CLI_STRING(struct train_values, interface, "interface", 0, "NAME", CLI_HELP_INTERFACE,
               .group = GROUP_DEVICES),
    CLI_FLAG(struct train_values, independent, "independent", 0, CLI_HELP_INDEPENDENT,
             .group = GROUP_DEVICES),
#define TU_SETTING(kind, field, option, letter, argument, default_value, minimum, maximum, group, help)      \
    CLI_OPTION_##kind(struct train_values, field, option, letter, argument, minimum, maximum, GROUP_##group, \
                      help),
#include <tutti/settings.def>
#undef TU_SETTING
    {0},
};

static int convert_settings(struct train_values *v) {
#define TU_SETTING(kind, field, option, letter, argument, default_value, minimum, maximum, group, help)      \
    CLI_CONVERT_##kind("train", v, field, option);
#include <tutti/settings.def>
#undef TU_SETTING
    return CLI_DONE;
}

/* ---- Ctrl-C, SIGTERM, a closed terminal or a closed pipe stop the run, which is then saved ---- */

static volatile sig_atomic_t stop_requested;

/* Any thread may run this signal handler. */
static void request_stop(int number) {
    (void)number;
    __atomic_store_n(&stop_requested, 1, __ATOMIC_RELAXED);
}

/* Prevents SIGPIPE from ending the process: the write fails with EPIPE, which progress.c handles. */
static void ignore_signal(int number) {
    (void)number;
}

static void set_signal_handler(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | flags};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static bool is_ignored(int number) {
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* Called when the run has started: a signal before that ends the process, because there is nothing to save. The first
 * SIGINT or SIGTERM stops the run after the current step; the second one ends the process (SA_RESETHAND). SIGHUP
 * keeps its handler, because closing a terminal sends it twice: by the shell, and by the system when the shell exits.
 * SIGUSR1 is the one that mpirun and srun pass on without killing the processes soon after. Signals that are ignored,
 * such as SIGHUP under nohup, stay ignored. */
static void catch_signals(void) {
    set_signal_handler(SIGINT, request_stop, (int)SA_RESETHAND);
    set_signal_handler(SIGTERM, request_stop, (int)SA_RESETHAND);
    set_signal_handler(SIGUSR1, request_stop, 0);
    if (!is_ignored(SIGHUP)) set_signal_handler(SIGHUP, request_stop, 0);
    if (!is_ignored(SIGPIPE)) set_signal_handler(SIGPIPE, ignore_signal, 0);
}

/* By the first step all processes catch signals, since each step begins with an exchange between them. */
static void tell_launch(struct run_output *output, const tu_train_report *report) {
    if (report->event == TU_TRAIN_BEGUN) cli_tell_launch("run %s", report->folder);
    if (report->event == TU_TRAIN_STEPPED && !output->trained) {
        output->trained = true;
        cli_tell_launch("trains");
    }
}

static void on_report(void *context, const tu_train_report *report) {
    struct run_output *output = context;
    if (report->event == TU_TRAIN_BEGUN) catch_signals();
    if (!output->prints) return;
    tell_launch(output, report);
    if (report->event == TU_TRAIN_TRACED && !output->trace) output->trace = strdup(report->message);
    progress_show(&output->progress, report);
    if (output->progress.pipe_closed) request_stop(SIGPIPE);
}

/* ---- The command ---- */

struct planned_run { /* context of plan_run() */
    const char *model, *data;
    tu_train_options o;
};

/* Plans a run to report its memory. Only the first call opens the data set; later calls use the same one. */
static tu_status plan_run(void *context, const struct memory_settings *settings, struct memory_plan *plan) {
    struct planned_run *run = context;
    *plan = (struct memory_plan){.planner_data = calloc(1, sizeof(tu_train_plan))};
    tu_train_plan *result = plan->planner_data;
    if (!result) return tu_fail(TU_NO_MEMORY, "train: out of memory");
    *result = TU_SIZED(tu_train_plan);
    tu_train_options o = run->o;
    if (settings) {
        o.batch = settings->batch;
        o.accumulate = settings->accumulate;
        o.precision = settings->precision;
    }
    TU_TRY(tu_plan_training_with(run->model, run->data, result, &o));
    run->o.set = result->set; /* images are already left out as these options say */
    run->o.skip_bad = false;
    run->o.ignore_label = NULL;
    plan->program = result->program;
    plan->settings = (struct memory_settings){result->batch, result->accumulate, result->precision};
    return TU_OK;
}

static void free_run_plan(struct memory_plan *plan) {
    if (plan->planner_data) tu_train_plan_free(plan->planner_data);
    free(plan->planner_data);
}

static int report_memory(const char *model, const struct train_values *values) {
    struct planned_run run = {model, values->data, values->o};
    run.o.on_report = NULL; /* progress has been printed already */
    /* Compile a C file only once for all plans. */
    if (tu_network_is_file(model) && tu_network_load(model, &run.model) != TU_OK) run.model = model;
    return cli_report_memory(&(struct memory_planner){.command = "train",
                                                      .what = "a run",
                                                      .settings_fixed = values->o.resume,
                                                      .is_user_network = tu_network_is_file(model),
                                                      .context = &run,
                                                      .plan = plan_run,
                                                      .release = free_run_plan});
}

/* Plans the run and warns if its devices differ in speed. Ignores errors: the run itself reports them. */
static void warn_unequal_devices(const char *model, const struct train_values *v) {
    tu_train_plan plan = TU_SIZED(tu_train_plan);
    tu_train_options o = v->o;
    if (!o.devices || !strchr(o.devices, ',')) return; /* devices of one kind */
    o.on_report = NULL;
    if (tu_plan_training_with(model, v->data, &plan, &o) == TU_OK)
        cli_warn_unequal_devices(plan.program, (int)o.threads, o.timeout);
    tu_train_plan_free(&plan);
}

static void print_result(const tu_train_result *result, const struct train_values *v,
                         const struct run_output *output) {
    if (v->json)
        cli_print_training_json(result);
    else
        cli_print_training(result, output->progress.pipe_closed);
    if (output->trace && !v->json) printf("\n%-10s  %s: %s", "trace", v->o.trace, output->trace);
}

static int train_one(const char *model, const struct train_values *v, struct run_output *output) {
    tu_train_result result = TU_SIZED(tu_train_result);
    if (!v->o.group) warn_unequal_devices(model, v);
    tu_status status = tu_train_with(model, v->data, &result, &v->o);
    progress_end(&output->progress);
    if (status == TU_NO_MEMORY && !v->o.group) return report_memory(model, v);
    if (status != TU_OK) return cli_report_common(v->o.group, status);
    if (cli_prints(v->o.group)) print_result(&result, v, output);
    return result.stopped ? STOPPED : CLI_DONE;
}

/* Each member is trained on one device: plans a run on the first device of the list. */
static int report_memory_of_member(const char *model, const struct train_values *values) {
    struct train_values one = *values;
    one.o.strategy = "single";
    return report_memory(model, &one);
}

static int train_ensemble(const char *model, const struct train_values *v, struct run_output *output) {
    tu_ensemble_result result = TU_SIZED(tu_ensemble_result);
    tu_status status = tu_train_ensemble_with(model, v->data, v->ensemble, &result, &v->o);
    progress_end(&output->progress);
    if (status == TU_NO_MEMORY && !v->o.resume) return report_memory_of_member(model, v);
    if (status != TU_OK) return cli_report(status);
    if (v->json)
        cli_print_ensemble_json(&result);
    else
        cli_print_ensemble(&result, output->progress.pipe_closed);
    bool stopped = result.stopped;
    tu_ensemble_result_free(&result);
    return stopped ? STOPPED : CLI_DONE;
}

/* A resumed ensemble is detected by its folder. */
static bool is_ensemble(const char *model, const struct train_values *v) {
    return v->ensemble > 0 || (v->o.resume && tu_ensemble_members(v->o.out ? v->o.out : model) > 0);
}

static int run(const void *given, int operand_count, char **operands) {
    (void)operand_count;
    struct train_values values = *(const struct train_values *)given;
    struct run_output output = {0};
    if (convert_settings(&values) != CLI_DONE) return CLI_BAD_INPUT;
    progress_begin(&output.progress, values.quiet);
    values.o.stop = &stop_requested;
    values.o.on_report = on_report;
    values.o.context = &output;
    int outcome = values.independent
                      ? cli_stay_independent("train")
                      : cli_join_processes(values.collective_timeout, values.interface, &values.o.group);
    output.prints = outcome == CLI_DONE && cli_prints(values.o.group);
    bool ensemble = is_ensemble(operands[0], &values);
    if (outcome == CLI_DONE && values.o.group && ensemble)
        outcome = !output.prints
                      ? CLI_BAD_INPUT
                      : cli_input_error(
                            "train: --ensemble trains each network on one device, and cannot be divided "
                            "among processes: start it without mpirun or srun");
    else if (outcome == CLI_DONE)
        outcome = (ensemble ? train_ensemble : train_one)(operands[0], &values, &output);
    cli_leave_processes(values.o.group);
    free(output.trace);
    return outcome;
}

const struct cli_command cli_command_train = {
    .name = "train",
    .summary = "trains a network and writes a run folder with checkpoints and metrics",
    .usage = "MODEL --data SET [OPTIONS]",
    .description = "Trains MODEL (a built-in network or your own C file) on SET and writes a\n"
                   "run folder: configuration, graphs, checkpoints, metrics, TensorBoard events,\n"
                   "curves. Ctrl-C, SIGTERM, a closed terminal or a closed pipe on standard error\n"
                   "finish the step and save; 'tutti train RUN --resume' then resumes the run. Its\n"
                   "result is bit-identical to that of an uninterrupted run.\n"
                   "\n"
                   "A setting that is not given has the value of the recipe, or else the default\n"
                   "in 'man tutti-train'.",
    .lists_models = true,
    .options = options,
    .values_size = sizeof(struct train_values),
    .defaults = &defaults,
    .min_operands = 1,
    .max_operands = 1,
    .joins_processes = true,
    .run = run,
};
