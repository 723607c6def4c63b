/* What a training run loses to data and reporting: a step of `tutti train` beside a step of `tutti bench`.
 *
 *     bench_loop [MODEL] [--data SET] [--threads N] …           tutorial-cnn on cifar10, 30 pairs of blocks
 *
 * Two processes cannot settle a difference of a few percent: where memory happens to lie, and who else uses the machine,
 * make more than that. So both are measured in one process, in turn. A run trains into a folder of its own, with all
 * that runs have: loader, preprocessing, guard, gradient norm, metrics, event file, progress line. Whenever it has made
 * a block of steps, its watcher makes as many steps of the same network over one fixed batch, as `tutti bench` does.
 * Neighbouring blocks are a pair, and the median of the pairs' ratios is the answer.
 *
 * A step of training lasts from the watcher's return to the end of showing the next step, so that everything between two
 * steps counts. Evaluations and checkpoints do not: they are work of their own, once an epoch. Blocks with the short
 * step that ends an epoch are made again, and the first step after each change of sides warms its caches up, untimed.
 *
 * The run uses the update of `tutti bench`, momentum alone, since data and reporting are what is asked about; with
 * --recipe it uses that recipe's. */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/workload.h"
#include "train/trainer.h"

enum { MAX_PAIRS = 1000, NEVER = 1000000000 };

/* ---- What is asked for ---- */

struct loop_values {
    const char *data, *recipe, *precision;
    int64_t threads, batch, steps, pairs;
};

static const struct loop_values defaults = {
    .data = "cifar10", .precision = "f32", .batch = 128, .steps = 8, .pairs = 30};

static const struct cli_option options[] = {
    CLI_STRING(struct loop_values, data, "data", 'd', "SET", "the set to train on"),
    CLI_STRING(struct loop_values, recipe, "recipe", 'r', "NAME",
               "train by this recipe as it is (unless given: quick, with the update of 'tutti bench')"),
    CLI_STRING(struct loop_values, precision, "precision", 'p', "TYPE", "of products and activations"),
    CLI_INT(struct loop_values, threads, "threads", 't', "N", 1, 1024, "threads (default: all cores)"),
    CLI_INT(struct loop_values, batch, "batch", 'b', "N", 1, 1048576, "samples in a batch"),
    CLI_INT(struct loop_values, steps, "steps", 's', "N", 1, 1000000, "timed steps in a block"),
    CLI_INT(struct loop_values, pairs, "pairs", 'n', "N", 1, MAX_PAIRS, "pairs of blocks"),
    {0},
};

/* ---- Where the time of a step goes ---- */

enum part { PREPROCESSING, NETWORK, UPDATE, OUTSIDE, PARTS };

static const char *const part_names[PARTS] = {"preprocessing", "network, loss, gradients",
                                              "norm, guard, update", "outside of kernels"};

/* What a kernel belongs to, by the name of its first operation; all others are the network's. */
static const struct {
    const char *prefix;
    enum part part;
} prefixes[] = {{"preprocess/", PREPROCESSING}, {"optimizer/", UPDATE}, {"schedule/", UPDATE}};

/* Seconds: sums while a block is under way, means once it is made. */
struct times {
    double step, part[PARTS];
    double shown; /* of a training step: the progress line, which is outside of kernels too */
};

static enum part part_of(const char *node) {
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(node, prefixes[i].prefix, strlen(prefixes[i].prefix)) == 0) return prefixes[i].part;
    return NETWORK;
}

static void add_step(struct times *sum, const tu_program *program, double seconds, double shown) {
    tu_kernel_report kernel = TU_SIZED(tu_kernel_report);
    double outside = seconds;
    for (size_t i = 0;
         i < tu_program_kernel_count(program) && tu_program_kernel(program, i, &kernel) == TU_OK; i++) {
        sum->part[part_of(kernel.node)] += kernel.seconds;
        outside -= kernel.seconds;
    }
    sum->part[OUTSIDE] += outside;
    sum->step += seconds;
    sum->shown += shown;
}

static struct times mean(struct times sum, int64_t steps) {
    sum.step /= (double)steps;
    sum.shown /= (double)steps;
    for (int p = 0; p < PARTS; p++) sum.part[p] /= (double)steps;
    return sum;
}

/* ---- Measuring ---- */

struct bench {
    struct loop_values values;
    struct workload work;
    tu__trainer trainer;
    struct progress progress;
    volatile sig_atomic_t stop;
    tu_status status; /* of what the watcher did */
    struct times block;
    int64_t made;   /* steps of the block under way; -1: the untimed one comes first */
    double resumed; /* when the watcher returned */
    int64_t pairs;
    struct times training[MAX_PAIRS], fixed[MAX_PAIRS];
};

static tu_status fixed_block(struct bench *b, struct times *block) {
    struct times sum = {0};
    TU_TRY(workload_step(&b->work));
    for (int64_t i = 0; i < b->values.steps; i++) {
        double start = tu__now();
        TU_TRY(workload_step(&b->work));
        add_step(&sum, b->work.step, tu__now() - start, 0);
    }
    *block = mean(sum, b->values.steps);
    return workload_check_loss(&b->work);
}

static void restart_block(struct bench *b) {
    b->block = (struct times){0};
    b->made = -1;
}

static void end_block(struct bench *b) {
    b->training[b->pairs] = mean(b->block, b->values.steps);
    b->status = fixed_block(b, &b->fixed[b->pairs]);
    b->stop = b->status != TU_OK || ++b->pairs == b->values.pairs;
    restart_block(b);
}

static void take_step(struct bench *b, const tu_train_report *report, double seconds, double shown) {
    bool ends_epoch = report->step % b->trainer.config.steps_per_epoch == 0;
    if (ends_epoch) {
        restart_block(b);
        return;
    }
    if (b->made >= 0) add_step(&b->block, b->trainer.stepper.full.program, seconds, shown);
    if (++b->made == b->values.steps) end_block(b);
}

static void watch(void *context, const tu_train_report *report) {
    struct bench *b = context;
    double told = tu__now();
    progress_show(&b->progress, report);
    if (report->event != TU_TRAIN_STEPPED) return;
    double now = tu__now();
    take_step(b, report, now - b->resumed, now - told);
    b->resumed = tu__now();
}

/* ---- The run ---- */

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *at) {
    (void)status, (void)kind, (void)at;
    return remove(path);
}

static tu_status make_folder(char *folder, size_t size) {
    const char *place = getenv("TMPDIR");
    snprintf(folder, size, "%s/tutti-loop-XXXXXX", place && *place ? place : "/tmp");
    if (mkdtemp(folder)) return TU_OK;
    return tu_fail(TU_IO, "cannot make the folder '%s': %s; TMPDIR names another place", folder,
                   strerror(errno));
}

static tu_status begin_run(struct bench *b, const char *model, const char *folder) {
    const struct loop_values *v = &b->values;
    tu_train_options o = {.struct_size = sizeof o,
                          .recipe = v->recipe,
                          .out = folder,
                          .stop = &b->stop,
                          .watch = watch,
                          .context = b,
                          .devices = "cpu:0",
                          .threads = v->threads,
                          .precision = v->precision,
                          .batch = v->batch,
                          .checkpoint_every = NEVER,
                          .evaluate_every = NEVER};
    if (!v->recipe) o.optimizer = "momentum", o.weight_decay = o.clip = -1;
    return tu__trainer_begin(&b->trainer, model, v->data, &o, NULL);
}

/* Steps that a run needs: one that is not timed for each block, and one block made again in each epoch. */
static tu_status check_length(const struct bench *b) {
    const tu__run_config *c = &b->trainer.config;
    int64_t block = b->values.steps + 1, needed = b->values.pairs * block;
    int64_t timed = c->steps - (c->steps / c->steps_per_epoch + 1) * block;
    if (needed <= timed && c->settings.accumulate == 1) return TU_OK;
    return tu_fail(TU_INVALID,
                   "%" PRId64 " pairs of %" PRId64 " steps: expected no more than fit into the %" PRId64
                   " steps of the run, each over a whole batch; use fewer, or a larger set",
                   b->values.pairs, b->values.steps, c->steps);
}

/* ---- Printing ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The number that `share` of the numbers lie below; sorts them. */
static double quantile(double *numbers, int64_t count, double share) {
    qsort(numbers, (size_t)count, sizeof *numbers, by_value);
    double at = share * (double)(count - 1);
    int64_t below = (int64_t)at, above = below + 1 < count ? below + 1 : below;
    return numbers[below] + (at - (double)below) * (numbers[above] - numbers[below]);
}

/* Of one field of all blocks of a side, in milliseconds. */
static double median_ms(const struct times *blocks, int64_t count, size_t offset) {
    double numbers[MAX_PAIRS];
    for (int64_t i = 0; i < count; i++)
        memcpy(&numbers[i], (const char *)&blocks[i] + offset, sizeof *numbers);
    return 1e3 * quantile(numbers, count, 0.5);
}

static void print_row(const char *name, const struct bench *b, size_t offset) {
    double training = median_ms(b->training, b->pairs, offset);
    double fixed = median_ms(b->fixed, b->pairs, offset), whole = median_ms(b->fixed, b->pairs, 0);
    printf("%-28s %9.3f %9.3f %9.3f %8.2f%%\n", name, training, fixed, training - fixed,
           100 * (training - fixed) / whole);
}

static void print_results(const struct bench *b, const char *model) {
    double ratios[MAX_PAIRS];
    for (int64_t i = 0; i < b->pairs; i++) ratios[i] = b->training[i].step / b->fixed[i].step;
    printf("%s on %s, batch %" PRId64 ", %s, %" PRId64 " threads; %" PRId64 " pairs of %" PRId64 " steps\n\n",
           model, b->values.data, b->trainer.config.settings.batch, b->values.precision,
           b->trainer.config.settings.threads, b->pairs, b->values.steps);
    printf("%-28s %9s %9s %9s %9s\n", "median, ms", "training", "bench", "more", "share");
    print_row("a step", b, offsetof(struct times, step));
    for (size_t p = 0; p < PARTS; p++)
        print_row(part_names[p], b, offsetof(struct times, part) + p * sizeof(double));
    print_row("  of which the progress line", b, offsetof(struct times, shown));
    double low = quantile(ratios, b->pairs, 0.25), high = quantile(ratios, b->pairs, 0.75);
    printf("\nthe loop loses %.2f%% (median of the pairs; half of them between %.2f%% and %.2f%%)\n",
           100 * (quantile(ratios, b->pairs, 0.5) - 1), 100 * (low - 1), 100 * (high - 1));
}

/* ---- All of it ---- */

static tu_status measure_in(struct bench *b, const char *model, const char *folder) {
    const struct loop_values *v = &b->values;
    const struct workload_settings settings = {.model = model,
                                               .devices = "cpu:0",
                                               .precision = v->precision,
                                               .threads = (int)v->threads,
                                               .batch = v->batch};
    TU_TRY(workload_begin(&b->work, &settings));
    TU_TRY(begin_run(b, model, folder));
    TU_TRY(check_length(b));
    restart_block(b);
    TU_TRY(tu__trainer_run(&b->trainer, NULL));
    TU_TRY(b->status);
    progress_end(&b->progress);
    print_results(b, model);
    return TU_OK;
}

static tu_status measure(struct bench *b, const char *model) {
    char folder[4096];
    TU_TRY(make_folder(folder, sizeof folder));
    progress_begin(&b->progress, false);
    b->progress.terminal = true; /* the line is drawn wherever it goes: drawing it is part of the loop */
    tu_status status = measure_in(b, model, folder);
    progress_end(&b->progress);
    tu__trainer_end(&b->trainer);
    workload_end(&b->work);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}

/* ---- The command ---- */

static int help(void) {
    printf("Usage: bench_loop [MODEL] [OPTIONS]\n\n"
           "Times training steps of MODEL (tutorial-cnn) and steps of 'tutti bench' in turn.\n\n");
    cli_print_options(stdout, options, &defaults);
    return CLI_DONE;
}

int main(int argc, char **argv) {
    static struct bench bench; /* too large for a stack */
    bench.values = defaults;
    int operands = cli_parse("bench_loop", options, argc - 1, argv + 1, &bench.values);
    if (operands == CLI_PARSE_HELP) return help();
    if (operands == CLI_PARSE_REFUSED) return CLI_BAD_INPUT;
    if (operands > 1) return cli_refuse("bench_loop: %s: expected one model", cli_quote(argv[2]).text);
    const char *model = operands ? argv[1] : "tutorial-cnn";
    return cli_report(measure(&bench, model));
}
