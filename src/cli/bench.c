/* `tutti bench MODEL`: how long a training step takes, from a cold start on.
 *
 * A time is the median of several blocks of steps: the mean within a block evens out the clock and the scheduler, the
 * median between blocks drops the one in which somebody else woke up. Before them come the first step, which is timed
 * from the start of the process, and a few more whose end state is digested: two runs that should compute the same
 * bits can be compared by that digest, whatever is measured afterwards. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/communication.h"
#include "cli/memory_refusal.h"
#include "cli/placed.h"
#include "cli/size.h"
#include "cli/workload.h"

enum {
    DIGEST_STEPS = 3,
    MOST_BLOCKS = 1000,
    MOST_STEPS = 1000000,
    TRIED_AT_ONCE =
        20, /* steps whose time tells how many fill a block, where a call of one would tell of the call */
    BLOCK_MILLISECONDS = 500, /* what a block should last when the number of steps is ours to choose */
};

static const char *const precisions[] = {"f32", "tf32", "bf16", "f16", NULL};
static const char *const strategies[] = {"single", "central", "mirrored", NULL};

struct bench_values {
    const char *devices, *place, *lock, *memory_limit, *trace, *central;
    int64_t threads, batch, steps, warmup, repeat, trace_steps; /* threads, steps 0: ours to choose */
    int64_t invariant;
    int precision, strategy; /* strategy -1: not given */
    bool json, kernels, tune_kernels, strict_placement, bf16_gradients, scaling;
};

static const struct bench_values defaults = {
    .devices = "cpu:0", .batch = 128, .warmup = 5, .repeat = 5, .trace_steps = 10, .strategy = -1};

static const struct cli_option options[] = {
    CLI_STRING(struct bench_values, devices, "devices", 0, "LIST",
               "the devices to run on, as in \"cpu:0/2\"; several share the batch"),
    CLI_CHOICE(struct bench_values, strategy, "strategy", 0, "NAME", strategies,
               "how they share it: mirrored (several alike), central or single"),
    CLI_STRING(struct bench_values, central, "central", 0, "DEVICE",
               "with --strategy central: the device that holds the variables"),
    CLI_INT(struct bench_values, invariant, "invariant", 0, "K", 1, 1024,
            "cut the batch into K parts, for the same bits on any number of devices"),
    CLI_FLAG(struct bench_values, bf16_gradients, "bf16-gradients", 0,
             "send gradients between devices as bf16"),
    CLI_FLAG(struct bench_values, scaling, "scaling", 0,
             "also measure the first device alone with its part of the batch, in turns"),
    CLI_STRING(struct bench_values, place, "place", 0, "RULES",
               "names and devices, as in 'conv1/*=gpu:1,local*=cpu:0'; the first that fits counts"),
    CLI_FLAG(struct bench_values, strict_placement, "strict-placement", 0,
             "refuse an operation that its device does not take, instead of moving it"),
    CLI_STRING(struct bench_values, lock, "lock", 0, "FILE",
               "hold the step to the placement in FILE; written if there is none"),
    CLI_INT(struct bench_values, threads, "threads", 't', "N", 1, 1024,
            "threads of a CPU device (default: its cores)"),
    CLI_INT(struct bench_values, batch, "batch", 'b', "N", 1, 1048576, "samples in a batch"),
    CLI_CHOICE(struct bench_values, precision, "precision", 'p', "TYPE", precisions,
               "type of products and activations"),
    CLI_STRING(struct bench_values, memory_limit, "memory-limit", 0, "SIZE",
               "bytes on each device, as in 64M or 1.5G (default: what it has)"),
    CLI_INT(struct bench_values, steps, "steps", 's', "N", 1, MOST_STEPS,
            "steps in a block (default: as many as fill half a second)"),
    CLI_INT(struct bench_values, warmup, "warmup", 'w', "N", 0, MOST_STEPS,
            "steps before the first block; at least 3 are made"),
    CLI_INT(struct bench_values, repeat, "repeat", 'r', "N", 1, MOST_BLOCKS, "blocks, whose median counts"),
    CLI_FLAG(struct bench_values, tune_kernels, "tune-kernels", 0,
             "time the kernels that a library has to choose from, and keep the fastest"),
    CLI_FLAG(struct bench_values, kernels, "kernels", 'k',
             "also print every kernel's time, GFLOP/s and GB/s"),
    CLI_STRING(struct bench_values, trace, "trace", 0, "FILE",
               "then trace some steps into FILE, for ui.perfetto.dev, and sum up where time went"),
    CLI_INT(struct bench_values, trace_steps, "trace-steps", 0, "N", 1, 100000, "with --trace: how many"),
    CLI_FLAG(struct bench_values, json, "json", 0, "print one JSON object"),
    {0},
};

/* ---- Measuring ---- */

struct measurement {
    double first_step_seconds;
    char digest[TU__SHA256_HEX];
    int64_t steps; /* in a block */
    double median_ms, least_ms, most_ms;
    size_t kernel_count;
    double *kernel_ms; /* mean of one more block */
};

/* Seconds since the kernel made this process, which is before the libraries were loaded; at most one tick too many. */
static double process_age(double otherwise) {
    double age = otherwise;
    char stat[1024] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file) return age;
    size_t length = fread(stat, 1, sizeof stat - 1, file);
    fclose(file);
    stat[length] = '\0';
    /* Field 22 is the start in clock ticks since boot; the second, the name in parentheses, may hold spaces. */
    const char *at = strrchr(stat, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    struct timespec now;
    if (at && clock_gettime(CLOCK_BOOTTIME, &now) == 0)
        age =
            (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - strtod(at, NULL) / (double)sysconf(_SC_CLK_TCK);
    return age;
}

/* The first steps: their end state is digested, and the last one tells how long a step takes. */
static tu_status warm_up(struct workload *work, const struct bench_values *values, double began,
                         struct measurement *m) {
    TU_TRY(workload_steps(work, 1));
    m->first_step_seconds = process_age(seconds_now() - began);
    TU_TRY(workload_steps(work, DIGEST_STEPS - 1));
    TU_TRY(workload_digest(work, m->digest));
    TU_TRY(workload_steps(work, values->warmup - DIGEST_STEPS));
    m->steps = values->steps;
    if (m->steps) return TU_OK;
    int64_t tried = work->at_once ? TRIED_AT_ONCE : 1;
    double start = seconds_now();
    TU_TRY(workload_steps(work, tried));
    double chosen = ceil(1e-3 * BLOCK_MILLISECONDS * (double)tried / (seconds_now() - start));
    m->steps = (int64_t)fmin(fmax(chosen, 1), MOST_STEPS);
    return TU_OK;
}

static int compare_times(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Milliseconds of a step in one block. */
static tu_status time_block(struct workload *work, const struct measurement *m, double *ms) {
    double start = seconds_now();
    TU_TRY(workload_steps(work, m->steps));
    *ms = 1e3 * (seconds_now() - start) / (double)m->steps;
    return TU_OK;
}

static void sum_up(double *ms, int64_t count, struct measurement *m) {
    qsort(ms, (size_t)count, sizeof *ms, compare_times);
    m->least_ms = ms[0];
    m->most_ms = ms[count - 1];
    m->median_ms = (ms[(count - 1) / 2] + ms[count / 2]) / 2;
}

/* What is measured, and with --scaling what it is compared with. */
struct run {
    struct workload work;
    struct measurement m;
    int64_t batch;
};

/* In turns, so that whatever else the machine does falls on both. */
static tu_status time_blocks(size_t run_count, struct run *runs, int64_t count) {
    double ms[2][MOST_BLOCKS];
    for (int64_t i = 0; i < count; i++)
        for (size_t k = 0; k < run_count; k++) TU_TRY(time_block(&runs[k].work, &runs[k].m, &ms[k][i]));
    for (size_t k = 0; k < run_count; k++) sum_up(ms[k], count, &runs[k].m);
    return TU_OK;
}

static size_t count_kernels(const tu_program *program) {
    tu_kernel_report report;
    size_t count = 0;
    while (tu_program_kernel(program, count, &report) == TU_OK) count++;
    return count;
}

/* One block more, after each step of which the devices are asked how long each kernel took. */
static tu_status time_kernels(struct workload *work, struct measurement *m) {
    m->kernel_count = count_kernels(work->step);
    m->kernel_ms = calloc(m->kernel_count + 1, sizeof *m->kernel_ms);
    if (!m->kernel_ms) return tu_fail(TU_NO_MEMORY, "bench: out of memory");
    for (int64_t i = 0; i < m->steps; i++) {
        TU_TRY(workload_step(work));
        for (size_t k = 0; k < m->kernel_count; k++) {
            tu_kernel_report report;
            TU_TRY(tu_program_kernel(work->step, k, &report));
            m->kernel_ms[k] += 1e3 * report.seconds / (double)m->steps;
        }
    }
    return TU_OK;
}

static bool is_shared(const struct workload *work) {
    return strcmp(work->strategy, "single") != 0;
}

static tu_status measure(size_t run_count, struct run *runs, const struct bench_values *values, double began,
                         struct communication *spent) {
    for (size_t k = 0; k < run_count; k++) TU_TRY(warm_up(&runs[k].work, values, began, &runs[k].m));
    TU_TRY(time_blocks(run_count, runs, values->repeat));
    for (size_t k = 0; k < run_count; k++) TU_TRY(workload_check_loss(&runs[k].work));
    if (is_shared(&runs->work)) TU_TRY(communication_measure(&runs->work, values->trace_steps, spent));
    return values->kernels ? time_kernels(&runs->work, &runs->m) : TU_OK;
}

/* A few steps more, which are written down. */
static tu_status trace_steps(struct workload *work, const struct bench_values *values) {
    TU_TRY(tu_program_trace_begin(work->step));
    TU_TRY(workload_steps(work, values->trace_steps));
    return tu_trace_save(1, &work->step, values->trace);
}

/* ---- Printing ---- */

/* The devices' names, `between` them, and the threads of each: 0 when that is not known. */
struct device_names {
    char text[1024];
    int threads;
};

static struct device_names device_names(const struct workload *work, const char *between) {
    struct device_names names = {.text = ""};
    tu_device_report report;
    size_t used = 0;
    for (size_t i = 0; used < sizeof names.text && tu_program_device(work->step, i, &report) == TU_OK; i++) {
        used += (size_t)snprintf(names.text + used, sizeof names.text - used, "%s%s", i ? between : "",
                                 report.device);
        names.threads = report.threads;
    }
    return names;
}

static void print_devices(const struct workload *work) {
    struct device_names names = device_names(work, ", ");
    bool several = workload_device_count(work) > 1;
    printf("%-12s  %s", several ? "devices" : "device", names.text);
    if (names.threads)
        printf(", %d thread%s%s", names.threads, names.threads == 1 ? "" : "s", several ? " each" : "");
    putchar('\n');
}

/* "12.3", or "-" where the device does not say how long its kernels take */
struct cell {
    char text[24];
};

static struct cell number(int decimals, double value) {
    struct cell cell = {"-"};
    if (value > 0) snprintf(cell.text, sizeof cell.text, "%.*f", decimals, value);
    return cell;
}

static void print_kernel(const tu_kernel_report *r, double ms, double total) {
    double per = ms > 0 ? 1e-6 / ms : 0; /* from a count to thousand millions of it a second */
    printf("%9s  %6s  %9.3f  %9.3f  %8s  %7s  %-32s  %5" PRIu32 "  %s\n", number(4, ms).text,
           number(1, ms > 0 ? 100 * ms / total : 0).text, 1e-6 * (double)r->flops, 1e-6 * (double)r->bytes,
           number(1, (double)r->flops * per).text, number(1, (double)r->bytes * per).text, r->kernel,
           r->node_count, r->node);
}

static void print_kernels(const struct workload *work, const struct measurement *m) {
    double total = 0;
    for (size_t k = 0; k < m->kernel_count; k++) total += m->kernel_ms[k];
    printf("\n%9s  %6s  %9s  %9s  %8s  %7s  %-32s  %5s  %s\n", "ms", "share%", "MFLOP", "MB", "GFLOP/s",
           "GB/s", "kernel", "nodes", "first operation");
    tu_kernel_report report;
    for (size_t k = 0; k < m->kernel_count && tu_program_kernel(work->step, k, &report) == TU_OK; k++)
        print_kernel(&report, m->kernel_ms[k], total);
    if (total > 0 && workload_device_count(work) > 1)
        printf("%9.4f  in %zu kernels, of all devices together\n", total, m->kernel_count);
    else if (total > 0)
        printf("%9.4f  in %zu kernels; %.4f ms of a step are outside of them\n", total, m->kernel_count,
               fmax(m->median_ms - total, 0));
}

static double samples_per_second(const struct run *run) {
    return 1e3 * (double)run->batch / run->m.median_ms;
}

/* How much of as many times one device's throughput the devices come to. */
static double efficiency(const struct run *run, const struct run *one) {
    return samples_per_second(run) / samples_per_second(one) / (double)workload_device_count(&run->work);
}

static void print_sharing(const struct run *run, const struct communication *c) {
    printf(
        "%-12s  %s; of a step %.4g ms in communication, %.0f%% of it beside computing, %.4g ms waiting for others, "
        "%.3g MB are sent\n",
        "strategy", run->work.strategy, c->ms, 100 * c->overlapped, c->waiting_ms, 1e-6 * (double)c->bytes);
}

static void print_scaling(const struct run *run, const struct run *one) {
    printf("%-12s  %.2f times the first device alone with batch %" PRId64
           " (%.1f samples/s): %.1f%% of what %zu could\n",
           "scaling", samples_per_second(run) / samples_per_second(one), one->batch, samples_per_second(one),
           100 * efficiency(run, one), workload_device_count(&run->work));
}

static void print_text(const struct bench_values *values, const char *model, const struct run *runs,
                       const struct communication *spent) {
    const struct workload *work = &runs->work;
    const struct measurement *m = &runs->m;
    printf("%-12s  %s, batch %" PRId64 ", %s\n", "workload", model, values->batch,
           precisions[values->precision]);
    print_devices(work);
    printf("%-12s  %.4g ms (least %.4g, most %.4g; %" PRId64 " times %" PRId64 " steps%s)\n", "step",
           m->median_ms, m->least_ms, m->most_ms, values->repeat, m->steps,
           work->at_once ? ", each time in one call" : "");
    printf("%-12s  %.1f samples/s\n", "throughput", samples_per_second(runs));
    if (values->scaling) print_scaling(runs, runs + 1);
    if (is_shared(work)) print_sharing(runs, spent);
    printf("%-12s  %.1f MiB\n", "planned peak", (double)workload_peak(work) / 1048576);
    printf("%-12s  %.3f s\n", "compiling", work->compile_seconds);
    printf("%-12s  %.3f s after the process began\n", "first step", m->first_step_seconds);
    printf("%-12s  %s after %d steps\n", "digest", m->digest, DIGEST_STEPS);
    if (values->kernels) print_kernels(work, m);
}

/* Digits that the clock does not vouch for are left out. */
static double rounded(double value) {
    return round(value * 1e5) / 1e5;
}

static void put_kernels(tu__json *json, const struct workload *work, const struct measurement *m) {
    tu__json_begin_array(json, "kernels");
    for (size_t k = 0; k < m->kernel_count; k++) {
        tu_kernel_report r;
        if (tu_program_kernel(work->step, k, &r) != TU_OK) break;
        tu__json_begin_object(json, NULL);
        tu__json_string(json, "device", r.device);
        tu__json_string(json, "kernel", r.kernel);
        tu__json_string(json, "node", r.node);
        tu__json_u64(json, "nodes", r.node_count);
        tu__json_f64(json, "ms", rounded(m->kernel_ms[k]));
        tu__json_i64(json, "flops", r.flops);
        tu__json_i64(json, "bytes", r.bytes);
        tu__json_u64(json, "workspace_bytes", r.workspace_bytes);
        tu__json_end_object(json);
    }
    tu__json_end_array(json);
}

static void put_scaling(tu__json *json, const struct run *run, const struct run *one) {
    tu__json_begin_object(json, "one_device");
    tu__json_i64(json, "batch", one->batch);
    tu__json_f64(json, "ms_per_step", rounded(one->m.median_ms));
    tu__json_f64(json, "per_s", rounded(samples_per_second(one)));
    tu__json_end_object(json);
    tu__json_f64(json, "speedup", rounded(samples_per_second(run) / samples_per_second(one)));
    tu__json_f64(json, "efficiency", rounded(efficiency(run, one)));
}

static void put_communication(tu__json *json, const struct communication *c) {
    tu__json_f64(json, "communication_ms", rounded(c->ms));
    tu__json_f64(json, "overlapped", rounded(c->overlapped));
    tu__json_f64(json, "waiting_ms", rounded(c->waiting_ms));
    tu__json_u64(json, "communication_bytes", c->bytes);
}

/* What each device spends a traced step on. The devices of the list come first: a central one may stand beside them. */
static void put_shares(tu__json *json, const struct workload *work, int64_t steps) {
    tu_trace_report r;
    tu__json_begin_array(json, "shares");
    for (size_t i = 0; tu_trace_device(work->step, i, &r) == TU_OK; i++) {
        tu__json_begin_object(json, NULL);
        tu__json_string(json, "device", r.device);
        tu__json_bool(json, "replica", i < workload_device_count(work));
        tu__json_f64(json, "computing_ms", rounded(1e3 * r.computing / (double)steps));
        tu__json_f64(json, "copying_ms", rounded(1e3 * r.copying / (double)steps));
        tu__json_f64(json, "meeting_ms", rounded(1e3 * r.meeting / (double)steps));
        tu__json_end_object(json);
    }
    tu__json_end_array(json);
}

static void print_json(const struct bench_values *values, const char *model, const struct run *runs,
                       const struct communication *spent) {
    const struct workload *work = &runs->work;
    const struct measurement *m = &runs->m;
    struct device_names names = device_names(work, ",");
    tu__json json = tu__json_to_file(stdout);
    tu__json_begin_object(&json, NULL);
    tu__json_string(&json, "workload", model);
    tu__json_string(&json, "devices", names.text);
    tu__json_string(&json, "strategy", work->strategy);
    tu__json_string(&json, "precision", precisions[values->precision]);
    tu__json_i64(&json, "batch", values->batch);
    tu__json_i64(&json, "threads", names.threads);
    tu__json_f64(&json, "ms_per_step", rounded(m->median_ms));
    tu__json_f64(&json, "per_s", rounded(samples_per_second(runs)));
    tu__json_u64(&json, "peak_bytes", workload_peak(work));
    tu__json_f64(&json, "compile_s", rounded(work->compile_seconds));
    tu__json_f64(&json, "first_step_s", rounded(m->first_step_seconds));
    tu__json_string(&json, "digest", m->digest);
    tu__json_f64(&json, "least_ms", rounded(m->least_ms));
    tu__json_f64(&json, "most_ms", rounded(m->most_ms));
    tu__json_i64(&json, "steps", m->steps);
    tu__json_i64(&json, "repeat", values->repeat);
    tu__json_bool(&json, "at_once", work->at_once);
    if (values->invariant) tu__json_i64(&json, "invariant", values->invariant);
    if (is_shared(work)) put_communication(&json, spent), put_shares(&json, work, values->trace_steps);
    if (values->scaling) put_scaling(&json, runs, runs + 1);
    if (values->kernels) put_kernels(&json, work, m);
    tu__json_end_object(&json);
    putchar('\n');
}

/* ---- The command ---- */

/* What the devices' users should know; the parts of one device say the same, and are heard once. */
static void print_notices(const struct workload *work) {
    tu_device_report report;
    char said[256] = "";
    for (size_t i = 0; tu_program_device(work->list, i, &report) == TU_OK; i++) {
        if (!report.notice || strcmp(report.notice, said) == 0) continue;
        snprintf(said, sizeof said, "%s", report.notice);
        fprintf(stderr, "tutti: notice: %s\n", said);
    }
}

/* The first device alone, with the part of the batch that is its own. */
static tu_status begin_one(const struct workload_settings *settings, const struct run *shared,
                           struct run *one) {
    struct workload_settings s = *settings;
    tu_device_report first;
    int64_t devices = (int64_t)workload_device_count(&shared->work);
    if (devices < 2)
        return tu_fail(TU_INVALID,
                       "bench: --scaling on one device: expected several, as in --devices cpu:0/2");
    TU_TRY(tu_program_device(shared->work.list, 0, &first));
    s.devices = first.word;
    s.strategy = "single";
    s.central = s.place = s.lock = NULL;
    s.invariant = 0;
    s.bf16_gradients = false;
    s.batch = one->batch = (settings->batch + devices - 1) / devices;
    return workload_begin(&one->work, &s);
}

static tu_status bench(const struct bench_values *values, const struct workload_settings *settings,
                       double began, struct run runs[2]) {
    struct communication spent = {0};
    runs->batch = settings->batch;
    TU_TRY(workload_begin(&runs->work, settings));
    print_notices(&runs->work);
    cli_say_placement(runs->work.step);
    if (values->scaling) TU_TRY(begin_one(settings, runs, runs + 1));
    TU_TRY(measure(values->scaling ? 2 : 1, runs, values, began, &spent));
    if (values->trace) TU_TRY(trace_steps(&runs->work, values));
    (values->json ? print_json : print_text)(values, settings->model, runs, &spent);
    if (!values->trace || values->json) return TU_OK;
    printf("\n%-12s  %s: ", "trace", values->trace);
    return tu_trace_summary(runs->work.step, stdout);
}

static tu_status plan_workload(void *context, const struct memory_settings *settings,
                               struct memory_plan *plan) {
    struct workload_settings s = *(const struct workload_settings *)context;
    *plan = (struct memory_plan){.own = calloc(1, sizeof(struct workload))};
    struct workload *work = plan->own;
    if (!work) return tu_fail(TU_NO_MEMORY, "bench: out of memory");
    if (settings) s.batch = settings->batch, s.precision = settings->precision;
    plan->settings = (struct memory_settings){.batch = s.batch, .precision = s.precision};
    TU_TRY(workload_plan(work, &s));
    plan->program = work->step;
    return TU_OK;
}

static void release_workload(struct memory_plan *plan) {
    if (plan->own) workload_end(plan->own);
    free(plan->own);
}

static int run(const void *given, int operand_count, char **operands) {
    const struct bench_values *values = given;
    (void)operand_count;
    double began = seconds_now();
    struct workload_settings settings = {.model = operands[0],
                                         .devices = values->devices,
                                         .place = values->place,
                                         .strict_placement = values->strict_placement,
                                         .lock = values->lock,
                                         .strategy =
                                             values->strategy < 0 ? NULL : strategies[values->strategy],
                                         .central = values->central,
                                         .invariant = (int)values->invariant,
                                         .bf16_gradients = values->bf16_gradients,
                                         .precision = precisions[values->precision],
                                         .tune_kernels = values->tune_kernels,
                                         .threads = (int)values->threads,
                                         .batch = values->batch};
    if (values->memory_limit && !cli_parse_size(values->memory_limit, &settings.memory_limit))
        return cli_refuse("bench: --memory-limit %s: expected bytes, as in 64M, 1G or 1.5G",
                          cli_quote(values->memory_limit).text);
    if (values->invariant && values->threads > 1)
        return cli_refuse(
            "bench: --invariant %d with --threads %d: a part is computed by one thread; for more cores "
            "divide the processor, as in --devices cpu:0/%d",
            (int)values->invariant, (int)values->threads, (int)values->threads);
    struct run runs[2] = {{.batch = 0}};
    tu_status status = bench(values, &settings, began, runs);
    bool planned_too_large = status == TU_NO_MEMORY && !runs->work.step;
    for (size_t k = 0; k < 2; k++) {
        workload_end(&runs[k].work);
        free(runs[k].m.kernel_ms);
    }
    if (!planned_too_large) return cli_report(status);
    return cli_report_memory(&(struct memory_planner){.command = "bench",
                                                      .what = "a workload",
                                                      .context = &settings,
                                                      .plan = plan_workload,
                                                      .release = release_workload});
}

const struct cli_command cli_command_bench = {
    .name = "bench",
    .summary = "measures a training step: time, throughput, memory, time to the first step",
    .usage = "MODEL [OPTIONS]",
    .description = "Measures the training step of MODEL, a built-in network: forward, backward and\n"
                   "an update by gradient descent with momentum, over one fixed random batch.\n"
                   "Prints the median time of a step, samples a second, the planned peak of memory,\n"
                   "the time of compiling, the time from the start of the process to the first\n"
                   "finished step, and a digest of all variables after three steps: runs with the\n"
                   "same digest computed the same bits. What does not fit into memory is refused\n"
                   "before anything is computed, with what weighs most and what would help.\n"
                   "\n"
                   "Several devices share the batch; --scaling compares them with the first alone.\n"
                   "'branches' is a workload of sixteen independent networks, dealt out among the\n"
                   "devices.",
    .takes_model = true,
    .options = options,
    .values_size = sizeof(struct bench_values),
    .defaults = &defaults,
    .least_operands = 1,
    .most_operands = 1,
    .run = run,
};
