/* Measures the overhead of the training loop (data loading, reporting): compares a step of `tutti train` with a
 * step of `tutti bench`.
 *
 *     bench_loop [MODEL] [--data SET] [--threads N] …       default: tutorial-cnn on cifar10, 30 pairs of blocks
 *
 * A difference of a few percent cannot be measured with two processes: the memory layout and other load on the
 * machine cause larger differences. Both are therefore measured in one process, alternating. The program trains
 * into a temporary run folder, with everything a run has: loader, preprocessing, check for non-finite values,
 * gradient norm, metrics, event file, progress line. After each block of training steps the progress callback runs
 * a block of the same number of steps of the same network on one fixed batch, as `tutti bench` does. Two
 * consecutive blocks are a pair; the result is the median ratio of all pairs.
 *
 * The time of a training step is from the return of the progress callback to the end of printing the next step, so
 * that everything between two steps is included. Evaluations and checkpoints are not. A block that contains the
 * last, shorter step of an epoch is discarded. The first step of each block is not timed; it warms up the caches.
 *
 * By default the run uses the optimizer of `tutti bench` (momentum), because only data loading and reporting are
 * measured; with --recipe it uses the optimizer of that recipe. */
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

/* ---- Options ---- */

struct loop_values {
    const char *data, *recipe, *precision;
    int64_t threads, batch, steps, pairs;
};

static const struct loop_values defaults = {
    .data = "cifar10", .precision = "f32", .batch = 128, .steps = 8, .pairs = 30};

static const struct cli_option options[] = {
    CLI_STRING(struct loop_values, data, "data", 'd', "SET", "data set to train on"),
    CLI_STRING(struct loop_values, recipe, "recipe", 'r', "NAME",
               "recipe to train with (default: quick, with the optimizer of 'tutti bench')"),
    CLI_STRING(struct loop_values, precision, "precision", 'p', "TYPE",
               "dtype of matmuls, convolutions and activations"),
    CLI_INT(struct loop_values, threads, "threads", 't', "N", 1, 1024, "threads (default: all cores)"),
    CLI_INT(struct loop_values, batch, "batch", 'b', "N", 1, 1048576, "samples per batch"),
    CLI_INT(struct loop_values, steps, "steps", 's', "N", 1, 1000000, "timed steps per block"),
    CLI_INT(struct loop_values, pairs, "pairs", 'n', "N", 1, MAX_PAIRS, "number of pairs of blocks"),
    {0},
};

/* ---- Time per phase of a step ---- */

enum phase { PREPROCESSING, NETWORK, UPDATE, OUTSIDE, PHASES };

static const char *const phase_names[PHASES] = {"preprocessing", "network, loss, gradients",
                                                "gradient norm, update", "outside of kernels"};

/* The phase of a kernel by the name of its first operation; all other kernels belong to NETWORK. */
static const struct {
    const char *prefix;
    enum phase phase;
} prefixes[] = {{"preprocess/", PREPROCESSING}, {"optimizer/", UPDATE}, {"schedule/", UPDATE}};

/* In seconds: sums while a block is running, means per step afterwards. */
struct times {
    double step, phase[PHASES];
    double progress_seconds; /* printing the progress line, a part of OUTSIDE */
};

static enum phase phase_of(const char *node) {
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(node, prefixes[i].prefix, strlen(prefixes[i].prefix)) == 0) return prefixes[i].phase;
    return NETWORK;
}

static void add_step(struct times *sum, const tu_program *program, double seconds, double progress_seconds) {
    tu_kernel_report kernel = TU_SIZED(tu_kernel_report);
    double outside = seconds;
    for (size_t i = 0;
         i < tu_program_kernel_count(program) && tu_program_kernel(program, i, &kernel) == TU_OK; i++) {
        sum->phase[phase_of(kernel.node)] += kernel.seconds;
        outside -= kernel.seconds;
    }
    sum->phase[OUTSIDE] += outside;
    sum->step += seconds;
    sum->progress_seconds += progress_seconds;
}

static struct times mean(struct times sum, int64_t steps) {
    sum.step /= (double)steps;
    sum.progress_seconds /= (double)steps;
    for (int p = 0; p < PHASES; p++) sum.phase[p] /= (double)steps;
    return sum;
}

/* ---- Measuring ---- */

struct bench {
    struct loop_values values;
    struct workload work;
    tu__trainer trainer;
    struct progress progress;
    volatile sig_atomic_t stop;
    tu_status status; /* of the progress callback */
    struct times block;
    int64_t timed_steps; /* timed steps of the present block; -1: the next step is the untimed one */
    double returned_at;  /* when the progress callback returned */
    int64_t pairs;
    struct times training_blocks[MAX_PAIRS], bench_blocks[MAX_PAIRS];
};

static tu_status run_bench_block(struct bench *b, struct times *block) {
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
    b->timed_steps = -1;
}

static void end_block(struct bench *b) {
    b->training_blocks[b->pairs] = mean(b->block, b->values.steps);
    b->status = run_bench_block(b, &b->bench_blocks[b->pairs]);
    b->stop = b->status != TU_OK || ++b->pairs == b->values.pairs;
    restart_block(b);
}

static void record_step(struct bench *b, const tu_train_report *report, double seconds,
                        double progress_seconds) {
    bool ends_epoch = report->step % b->trainer.config.steps_per_epoch == 0;
    if (ends_epoch) {
        restart_block(b);
        return;
    }
    if (b->timed_steps >= 0) add_step(&b->block, b->trainer.stepper.full.program, seconds, progress_seconds);
    if (++b->timed_steps == b->values.steps) end_block(b);
}

static void on_progress(void *context, const tu_train_report *report) {
    struct bench *b = context;
    double called = tu__now();
    progress_show(&b->progress, report);
    if (report->event != TU_TRAIN_STEPPED) return;
    double now = tu__now();
    record_step(b, report, now - b->returned_at, now - called);
    b->returned_at = tu__now();
}

/* ---- The run ---- */

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk) {
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

static tu_status create_folder(char *folder, size_t size) {
    const char *parent = getenv("TMPDIR");
    snprintf(folder, size, "%s/tutti-loop-XXXXXX", parent && *parent ? parent : "/tmp");
    if (mkdtemp(folder)) return TU_OK;
    return tu_fail(TU_IO, "cannot create the folder '%s': %s; set TMPDIR to another folder", folder,
                   strerror(errno));
}

static tu_status start_run(struct bench *b, const char *model, const char *folder) {
    const struct loop_values *v = &b->values;
    tu_train_options o = {.struct_size = sizeof o,
                          .recipe = v->recipe,
                          .out = folder,
                          .stop = &b->stop,
                          .on_report = on_progress,
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

/* Fails if the run has too few steps. Each block has one untimed step more, and each epoch discards one block. */
static tu_status check_length(const struct bench *b) {
    const tu__run_config *c = &b->trainer.config;
    int64_t block = b->values.steps + 1, needed = b->values.pairs * block;
    int64_t timed = c->steps - (c->steps / c->steps_per_epoch + 1) * block;
    if (needed <= timed && c->settings.accumulate == 1) return TU_OK;
    return tu_fail(TU_INVALID,
                   "%" PRId64 " pairs of %" PRId64 " steps do not fit into the %" PRId64
                   " steps of the run (without gradient accumulation): use fewer, or a larger data set",
                   b->values.pairs, b->values.steps, c->steps);
}

/* ---- Printing ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the quantile `fraction` (0 to 1) of the numbers; sorts them. */
static double quantile(double *numbers, int64_t count, double fraction) {
    qsort(numbers, (size_t)count, sizeof *numbers, compare_doubles);
    double position = fraction * (double)(count - 1);
    int64_t below = (int64_t)position, above = below + 1 < count ? below + 1 : below;
    return numbers[below] + (position - (double)below) * (numbers[above] - numbers[below]);
}

/* Returns the median, in milliseconds, of the field at `offset` over all blocks. */
static double median_ms(const struct times *blocks, int64_t count, size_t offset) {
    double numbers[MAX_PAIRS];
    for (int64_t i = 0; i < count; i++)
        memcpy(&numbers[i], (const char *)&blocks[i] + offset, sizeof *numbers);
    return 1e3 * quantile(numbers, count, 0.5);
}

static void print_row(const char *name, const struct bench *b, size_t offset) {
    double training = median_ms(b->training_blocks, b->pairs, offset);
    double bench = median_ms(b->bench_blocks, b->pairs, offset),
           bench_step = median_ms(b->bench_blocks, b->pairs, 0);
    printf("%-28s %9.3f %9.3f %9.3f %8.2f%%\n", name, training, bench, training - bench,
           100 * (training - bench) / bench_step);
}

static void print_results(const struct bench *b, const char *model) {
    double ratios[MAX_PAIRS];
    for (int64_t i = 0; i < b->pairs; i++) ratios[i] = b->training_blocks[i].step / b->bench_blocks[i].step;
    printf("%s on %s, batch %" PRId64 ", %s, %" PRId64 " threads; %" PRId64 " pairs of %" PRId64 " steps\n\n",
           model, b->values.data, b->trainer.config.settings.batch, b->values.precision,
           b->trainer.config.settings.threads, b->pairs, b->values.steps);
    printf("%-28s %9s %9s %9s %9s\n", "median, ms", "training", "bench", "overhead", "of step");
    print_row("step", b, offsetof(struct times, step));
    for (size_t p = 0; p < PHASES; p++)
        print_row(phase_names[p], b, offsetof(struct times, phase) + p * sizeof(double));
    print_row("  including progress line", b, offsetof(struct times, progress_seconds));
    double low = quantile(ratios, b->pairs, 0.25), high = quantile(ratios, b->pairs, 0.75);
    printf("\noverhead of the training loop: %.2f%% (median of the pairs; quartiles %.2f%% and %.2f%%)\n",
           100 * (quantile(ratios, b->pairs, 0.5) - 1), 100 * (low - 1), 100 * (high - 1));
}

/* ---- Measuring one model ---- */

static tu_status measure_in_folder(struct bench *b, const char *model, const char *folder) {
    const struct loop_values *v = &b->values;
    const struct workload_settings settings = {.model = model,
                                               .devices = "cpu:0",
                                               .precision = v->precision,
                                               .threads = (int)v->threads,
                                               .batch = v->batch};
    TU_TRY(workload_init(&b->work, &settings));
    TU_TRY(start_run(b, model, folder));
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
    TU_TRY(create_folder(folder, sizeof folder));
    progress_begin(&b->progress, false);
    b->progress.terminal = true; /* draw the progress line always: it is part of the loop */
    tu_status status = measure_in_folder(b, model, folder);
    progress_end(&b->progress);
    tu__trainer_end(&b->trainer);
    workload_free(&b->work);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}

/* ---- Command line ---- */

static int help(void) {
    printf(
        "Usage: bench_loop [MODEL] [OPTIONS]\n\n"
        "Measures training steps of MODEL (default tutorial-cnn) and steps of 'tutti bench', alternating.\n\n");
    cli_print_options(stdout, options, &defaults);
    return CLI_DONE;
}

int main(int argc, char **argv) {
    static struct bench bench; /* too large for the stack */
    bench.values = defaults;
    int operands = cli_parse("bench_loop", options, argc - 1, argv + 1, &bench.values);
    if (operands == CLI_PARSE_HELP) return help();
    if (operands == CLI_PARSE_ERROR) return CLI_BAD_INPUT;
    if (operands > 1) return cli_input_error("bench_loop: %s: expected one model", cli_quote(argv[2]).text);
    const char *model = operands ? argv[1] : "tutorial-cnn";
    return cli_report(measure(&bench, model));
}
