/* `tutti train MODEL --data SET`: trains a network and keeps a run folder.
 *
 * Its options are the rows of tutti/settings.def and a few about the run itself. In the library zero stands for "not
 * given" and a negative number for zero; here a number not given is -1, which no row allows, so that the help shows no
 * default where the recipe decides. settle() turns one into the other. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/model.h>
#include <tutti/train.h>

#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/ensemble_report.h"
#include "cli/memory_advice.h"
#include "cli/progress.h"
#include "cli/size.h"
#include "cli/speeds.h"

enum { STOPPED = 130 }; /* exit status of what a Ctrl-C ended, as shells have it */

struct train_values {
    tu_train_options o;
    const char *data;
    const char *memory_limit, *gpu_memory_limit, *gpu_memory_reserve; /* sizes as they are written */
    int64_t ensemble;                                                 /* members; 0: not given */
    bool skip_bad;
    bool json, quiet;
};

/* What is shown while the run goes on, and what is kept to be printed behind it. */
struct audience {
    struct progress progress;
    char *trace; /* the summary of one; NULL: none */
};

#define NOT_GIVEN_COUNT -1
#define NOT_GIVEN_SIZE 0
#define NOT_GIVEN_NUMBER -1
#define NOT_GIVEN_SWITCH -1
#define NOT_GIVEN_FLAG 0
#define NOT_GIVEN_TEXT NULL
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
};

static const char *const no_yes[] = {"no", "yes", NULL};

/* The groups of settings.def, in the order in which --help lists them. Options of no group come first. */
enum {
    GROUP_DEVICES = 1,
    GROUP_LENGTH,
    GROUP_DATA,
    GROUP_NETWORK,
    GROUP_AUGMENTATION,
    GROUP_UPDATE,
    GROUP_FOLDER
};

#define OPTION_COUNT(field, name, letter, argument, minimum, maximum, place, help)                           \
    CLI_INT(struct train_values, o.field, name, letter, argument, minimum, maximum, help, .group = place)
#define OPTION_SIZE(field, name, letter, argument, minimum, maximum, place, help)                            \
    CLI_STRING(struct train_values, field, name, letter, argument, help, .group = place)
#define OPTION_NUMBER(field, name, letter, argument, minimum, maximum, place, help)                          \
    CLI_DOUBLE(struct train_values, o.field, name, letter, argument, minimum, maximum, help, .group = place)
#define OPTION_SWITCH(field, name, letter, argument, minimum, maximum, place, help)                          \
    CLI_CHOICE(struct train_values, o.field, name, letter, argument, no_yes, help, .group = place)
#define OPTION_FLAG(field, name, letter, argument, minimum, maximum, place, help)                            \
    CLI_FLAG(struct train_values, field, name, letter, help, .group = place)
#define OPTION_TEXT(field, name, letter, argument, minimum, maximum, place, help)                            \
    CLI_STRING(struct train_values, o.field, name, letter, argument, help, .group = place)

static const struct cli_option options[] = {
    CLI_STRING(struct train_values, data, "data", 'd', "SET", CLI_HELP_DATA),
    CLI_STRING(struct train_values, o.recipe, "recipe", 0, "NAME",
               "settings that work together: quick (unless given), tutorial or plain"),
    CLI_STRING(struct train_values, o.out, "out", 'o', "DIR",
               "the run folder (unless given: runs/MODEL-SET-NUMBER)"),
    CLI_FLAG(struct train_values, o.resume, "resume", 0, "go on with the run in MODEL or --out"),
    CLI_STRING(struct train_values, o.init, "init", 0, "RUN|FILE",
               "start with the weights of a run or a safetensors file"),
    CLI_INT(struct train_values, ensemble, "ensemble", 0, "N", 1, TU_MAX_ENSEMBLE,
            "train N networks apart, one a device at a time, with seeds one after another"),
    CLI_FLAG(struct train_values, o.offline, "offline", 0, CLI_HELP_OFFLINE),
    CLI_STRING(struct train_values, o.trace, "trace", 0, "FILE", CLI_HELP_TRACE),
    CLI_INT(struct train_values, o.trace_steps, "trace-steps", 0, "N", 1, 100000, CLI_HELP_TRACE_STEPS),
    CLI_FLAG(struct train_values, quiet, "quiet", 'q', "show no progress"),
    CLI_FLAG(struct train_values, json, "json", 0, CLI_HELP_JSON),
#define TU_SETTING(kind, field, option, letter, argument, default_value, minimum, maximum, group, help)      \
    OPTION_##kind(field, option, letter, argument, minimum, maximum, GROUP_##group, help),
#include <tutti/settings.def>
#undef TU_SETTING
    {0},
};

/* A size as it is written, if it is, into an option of the library. */
static bool read_size(const char *option, const char *text, int64_t *size) {
    uint64_t bytes = 0;
    if (text && strcmp(text, "0") != 0 && (!cli_parse_size(text, &bytes) || bytes > INT64_MAX)) {
        cli_refuse("train: --%s %s: expected a size, as in 64M or 1.5G", option, cli_quote(text).text);
        return false;
    }
    *size = text && !bytes ? -1 : (int64_t)bytes;
    return true;
}

#define SETTLE_COUNT(v, field, option) v->o.field = v->o.field < 0 ? 0 : v->o.field == 0 ? -1 : v->o.field
#define SETTLE_NUMBER(v, field, option) SETTLE_COUNT(v, field, option)
#define SETTLE_SWITCH(v, field, option) SETTLE_COUNT(v, field, option)
#define SETTLE_FLAG(v, field, option) v->o.field = v->field
#define SETTLE_SIZE(v, field, option)                                                                        \
    if (!read_size(option, v->field, &v->o.field)) return CLI_BAD_INPUT
#define SETTLE_TEXT(v, field, option) (void)0
static int settle(struct train_values *v) {
#define TU_SETTING(kind, field, option, letter, argument, default_value, minimum, maximum, group, help)      \
    SETTLE_##kind(v, field, option);
#include <tutti/settings.def>
#undef TU_SETTING
    return CLI_DONE;
}

/* ---- Ctrl-C, SIGTERM, a terminal or a pipe that was closed: the run is stopped and saved ---- */

static volatile sig_atomic_t stop_wanted;

/* A signal is handled on whatever thread it finds. */
static void want_stop(int number) {
    (void)number;
    __atomic_store_n(&stop_wanted, 1, __ATOMIC_RELAXED);
}

/* The write that met the closed pipe fails, too, and is seen there. */
static void pass_over(int number) {
    (void)number;
}

static void on_signal(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | flags};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static bool is_ignored(int number) {
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* The first one ends the run after its step; the next one is not caught any more, and ends the process. So does one before
 * the run has begun, when there is nothing to save. A terminal that is closed sends SIGHUP more than once: by the shell, and
 * by the system when the shell ends. Under nohup it is ignored, and stays so. */
static void catch_signals(void) {
    on_signal(SIGINT, want_stop, (int)SA_RESETHAND);
    on_signal(SIGTERM, want_stop, (int)SA_RESETHAND);
    if (!is_ignored(SIGHUP)) on_signal(SIGHUP, want_stop, 0);
    if (!is_ignored(SIGPIPE)) on_signal(SIGPIPE, pass_over, 0);
}

static void watch(void *context, const tu_train_report *report) {
    struct audience *audience = context;
    if (report->event == TU_TRAIN_BEGUN) catch_signals();
    if (report->event == TU_TRAIN_TRACED && !audience->trace) audience->trace = strdup(report->message);
    progress_show(&audience->progress, report);
    if (audience->progress.closed) want_stop(SIGPIPE);
}

/* ---- Results ---- */

static void print_row(const char *name, const char *format, ...) TU_PRINTF(2, 3);
static void print_row(const char *name, const char *format, ...) {
    printf("%-10s  ", name);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

/* `closed`: the pipe that progress went to. */
static const char *why_stopped(const tu_train_result *r, bool closed) {
    if (r->stopped_early) /* a run begun before there were validation parts looks at the test images */
        return r->validation_images ? ", stopped early: the validation accuracy did not rise any more"
                                    : ", stopped early: the test accuracy did not rise any more";
    return r->stopped && closed ? ", stopped: the reader of standard error closed the pipe" : "";
}

/* An accuracy says little without that of always naming the largest class. */
static void print_score(const char *part, double accuracy, double largest, double top5, double loss,
                        int64_t step) {
    char beside[48] = "";
    if (largest > 0) snprintf(beside, sizeof beside, " (largest class %.2f%%)", 100 * largest);
    print_row(part, "accuracy %.2f%%%s, top-5 %.2f%%, loss %.4f, after step %" PRId64, 100 * accuracy, beside,
              100 * top5, loss, step);
}

static void print_text(const tu_train_result *r, bool closed) {
    print_row("run", "%s", r->folder);
    if (r->validation_images)
        print_row("images", "%" PRId64 " to train on, %" PRId64 " kept out to validate with", r->train_images,
                  r->validation_images);
    else
        print_row("images", "%" PRId64 " to train on", r->train_images);
    print_row("steps", "%" PRId64 " of %" PRId64 "%s", r->step, r->steps, why_stopped(r, closed));
    print_row("training", "accuracy %.2f%%, loss %.4f", 100 * r->accuracy, r->loss);
    if (r->validation_step >= 0)
        print_score("validation", r->validation_accuracy, r->validation_largest_class, r->validation_top5,
                    r->validation_loss, r->validation_step);
    if (r->best_step >= 0 && r->best_step != (r->validation_images ? r->validation_step : r->test_step))
        print_row("best", "%saccuracy %.2f%%, after step %" PRId64, r->validation_images ? "validation " : "",
                  100 * r->best_accuracy, r->best_step);
    if (r->test_step >= 0)
        print_score("test", r->test_accuracy, r->test_largest_class, r->test_top5, r->test_loss,
                    r->test_step);
    print_row("time", "%.1f s, %.0f images/s", r->seconds, r->images_per_second);
    print_row("parameters", "%" PRId64, r->parameters);
    print_row("digest", "%s", r->digest);
    if (r->stopped) {
        print_row("go on", "tutti train %s --resume", r->folder);
        return;
    }
    print_row("look", "%s/curves.svg, or tensorboard --logdir %s", r->folder, r->folder);
    print_row("evaluate", "tutti eval %s", r->folder);
    print_row("use", "tutti predict %s PICTURE...", r->folder);
}

static void print_json(const tu_train_result *r) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "run", r->folder);
    tu_json_i64(&json, "step", r->step);
    tu_json_i64(&json, "steps", r->steps);
    tu_json_bool(&json, "stopped", r->stopped);
    tu_json_bool(&json, "stopped_early", r->stopped_early);
    tu_json_f64(&json, "loss", r->loss);
    tu_json_f64(&json, "accuracy", r->accuracy);
    if (r->test_step >= 0) {
        tu_json_i64(&json, "test_step", r->test_step);
        tu_json_f64(&json, "test_loss", r->test_loss);
        tu_json_f64(&json, "test_accuracy", r->test_accuracy);
        tu_json_f64(&json, "test_top5", r->test_top5);
        if (r->test_largest_class > 0) tu_json_f64(&json, "test_largest_class", r->test_largest_class);
    }
    if (r->validation_step >= 0) {
        tu_json_i64(&json, "validation_step", r->validation_step);
        tu_json_f64(&json, "validation_loss", r->validation_loss);
        tu_json_f64(&json, "validation_accuracy", r->validation_accuracy);
        tu_json_f64(&json, "validation_top5", r->validation_top5);
        tu_json_f64(&json, "validation_largest_class", r->validation_largest_class);
    }
    if (r->best_step >= 0) {
        tu_json_i64(&json, "best_step", r->best_step);
        tu_json_f64(&json, "best_accuracy", r->best_accuracy);
    }
    tu_json_i64(&json, "train_images", r->train_images);
    tu_json_i64(&json, "validation_images", r->validation_images);
    tu_json_f64(&json, "seconds", r->seconds);
    tu_json_f64(&json, "images_per_second", r->images_per_second);
    tu_json_i64(&json, "parameters", r->parameters);
    tu_json_string(&json, "digest", r->digest);
    tu_json_end_object(&json);
    putchar('\n');
}

/* ---- The command ---- */

struct asked { /* what to plan when it does not fit */
    const char *model, *data;
    tu_train_options o;
};

/* The set is opened once: further plans are made over that of the first. */
static tu_status plan_run(void *context, const struct memory_settings *settings, struct memory_plan *plan) {
    struct asked *asked = context;
    *plan = (struct memory_plan){.own = calloc(1, sizeof(tu_train_plan))};
    tu_train_plan *made = plan->own;
    if (!made) return tu_fail(TU_NO_MEMORY, "train: out of memory");
    *made = TU_SIZED(tu_train_plan);
    tu_train_options o = asked->o;
    if (settings) {
        o.batch = settings->batch;
        o.accumulate = settings->accumulate;
        o.precision = settings->precision;
    }
    TU_TRY(tu_plan_training_with(asked->model, asked->data, made, &o));
    asked->o.set = made->set; /* as these options left it */
    asked->o.skip_bad = false;
    asked->o.ignore_label = NULL;
    plan->program = made->program;
    plan->settings = (struct memory_settings){made->batch, made->accumulate, made->precision};
    return TU_OK;
}

static void release_run(struct memory_plan *plan) {
    if (plan->own) tu_train_plan_free(plan->own);
    free(plan->own);
}

static int report_memory(const char *model, const struct train_values *values) {
    struct asked asked = {model, values->data, values->o};
    asked.o.on_report = NULL; /* all that is to be told was told */
    /* A file is compiled once for all plans. */
    if (tu_model_is_file(model) && tu_model_load(model, &asked.model) != TU_OK) asked.model = model;
    return cli_report_memory(&(struct memory_planner){.command = "train",
                                                      .what = "a run",
                                                      .fixed = values->o.resume,
                                                      .own_network = tu_model_is_file(model),
                                                      .context = &asked,
                                                      .plan = plan_run,
                                                      .release = release_run});
}

/* Only a list of several kinds can be of unequal devices. What is wrong with the plan is told when the run is begun. */
static void warn_of_unequal_devices(const char *model, const struct train_values *v) {
    tu_train_plan plan = TU_SIZED(tu_train_plan);
    tu_train_options o = v->o;
    if (!o.devices || !strchr(o.devices, ',')) return;
    o.on_report = NULL;
    if (tu_plan_training_with(model, v->data, &plan, &o) == TU_OK) speeds_warn(plan.program, (int)o.threads);
    tu_train_plan_free(&plan);
}

static int train_one(const char *model, const struct train_values *v, struct audience *audience) {
    tu_train_result result = TU_SIZED(tu_train_result);
    warn_of_unequal_devices(model, v);
    tu_status status = tu_train_with(model, v->data, &result, &v->o);
    progress_end(&audience->progress);
    if (status == TU_OK && v->json) print_json(&result);
    if (status == TU_OK && !v->json) print_text(&result, audience->progress.closed);
    if (status == TU_OK && audience->trace && !v->json)
        printf("\n%-10s  %s: %s", "trace", v->o.trace, audience->trace);
    if (status == TU_NO_MEMORY) return report_memory(model, v);
    if (status != TU_OK) return cli_report(status);
    return result.stopped ? STOPPED : CLI_DONE;
}

/* A member is a run on one device: that of the list's first, on which everything is placed. */
static int report_memory_of_member(const char *model, const struct train_values *values) {
    struct train_values one = *values;
    one.o.strategy = "single";
    return report_memory(model, &one);
}

static int train_ensemble(const char *model, const struct train_values *v, struct audience *audience) {
    tu_ensemble_result result = TU_SIZED(tu_ensemble_result);
    tu_status status = tu_train_ensemble_with(model, v->data, v->ensemble, &result, &v->o);
    progress_end(&audience->progress);
    if (status == TU_NO_MEMORY && !v->o.resume) return report_memory_of_member(model, v);
    if (status != TU_OK) return cli_report(status);
    if (v->json)
        cli_print_ensemble_json(&result);
    else
        cli_print_ensemble(&result, audience->progress.closed);
    bool stopped = result.stopped;
    tu_ensemble_result_free(&result);
    return stopped ? STOPPED : CLI_DONE;
}

/* An ensemble that goes on is known by its folder. */
static bool is_ensemble(const char *model, const struct train_values *v) {
    return v->ensemble > 0 || (v->o.resume && tu_ensemble_members(v->o.out ? v->o.out : model) > 0);
}

static int run(const void *given, int operand_count, char **operands) {
    (void)operand_count;
    struct train_values values = *(const struct train_values *)given;
    struct audience audience = {0};
    if (settle(&values) != CLI_DONE) return CLI_BAD_INPUT;
    progress_begin(&audience.progress, values.quiet);
    values.o.stop = &stop_wanted;
    values.o.on_report = watch;
    values.o.context = &audience;
    int outcome =
        (is_ensemble(operands[0], &values) ? train_ensemble : train_one)(operands[0], &values, &audience);
    free(audience.trace);
    return outcome;
}

const struct cli_command cli_command_train = {
    .name = "train",
    .summary = "trains a network, and keeps a run folder to resume, evaluate and use",
    .usage = "MODEL --data SET [OPTIONS]",
    .description = "Trains MODEL (a built-in network or a C file of your own) on SET and writes a\n"
                   "run folder: configuration, graphs, checkpoints, metrics, TensorBoard events,\n"
                   "curves. Ctrl-C, SIGTERM, a closed terminal or a closed pipe on standard error\n"
                   "finish the step and save; 'tutti train RUN --resume' goes on and computes the\n"
                   "same bits as if it had never stopped.\n"
                   "\n"
                   "A setting that is not given is the recipe's; without one there, it is what\n"
                   "'man tutti-train' says.",
    .takes_model = true,
    .options = options,
    .values_size = sizeof(struct train_values),
    .defaults = &defaults,
    .least_operands = 1,
    .most_operands = 1,
    .run = run,
};
