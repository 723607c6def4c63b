/* `tutti bench MODEL`: measures the time of a training step; with --inference, answers (bench_inference.c).
 *
 * The time of a step is the mean within a block of steps; the result is the median over several blocks, which
 * excludes blocks that other processes slowed down. Before the blocks come the first step, which is timed from the
 * start of the process, and a few more steps, after which the digest of all variables is computed: two runs with the
 * same digest computed bit-identical results. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/network.h>

#include "cli/bench_inference.h"
#include "cli/bench_report.h"
#include "cli/byte_size.h"
#include "cli/choices.h"
#include "cli/clock.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/memory_advice.h"
#include "cli/placement_notice.h"
#include "cli/process_age.h"
#include "cli/processes.h"
#include "cli/unequal_devices.h"
#include "cli/workload.h"

enum {
    MAX_BLOCKS = 1000,
    MAX_STEPS = 1000000,
    MAX_BATCH = 1048576,
    MAX_STACK = 4096,
    TRIAL_STEPS = 20, /* steps of a multi-step call that are timed to choose the number of steps per block */
    BLOCK_MILLISECONDS = 500, /* duration of a block if --steps is not given */
};

struct bench_values {
    const char *devices, *place, *lock, *trace, *central;
    const char *memory_limit, *gpu_memory_limit, *gpu_memory_reserve; /* sizes as text */
    int64_t threads, steps; /* threads 0: one per core; steps 0: not given */
    const char *batch;      /* NULL: not given */
    int64_t sessions, warmup, repeat, trace_steps, invariant, base, stack; /* stack 0: not given */
    int precision, strategy;                                               /* strategy -1: not given */
    int tune_kernels, strict_placement, bf16_gradients;                    /* no, yes */
    bool json, kernels, scaling, inference;
    double collective_timeout;
    const char *interface;
    bool independent;
};

static const struct bench_values defaults = {.devices = "cpu:0",
                                             .sessions = 1,
                                             .warmup = 5,
                                             .repeat = 5,
                                             .trace_steps = 10,
                                             .strategy = -1,
                                             .collective_timeout = 60};

static const char *const no_yes[] = {"no", "yes", NULL};

static const struct cli_option options[] = {
    CLI_STRING(struct bench_values, devices, "devices", 0, "LIST", CLI_HELP_DEVICES),
    CLI_CHOICE(struct bench_values, strategy, "strategy", 0, "NAME", cli_strategies,
               CLI_HELP_STRATEGY
               " (default: mirrored for several devices of one kind without --place and --lock)"),
    CLI_STRING(struct bench_values, central, "central", 0, "DEVICE",
               CLI_HELP_CENTRAL " (default: the first CPU of the list)"),
    CLI_INT(struct bench_values, invariant, "invariant", 0, "K", 0, 1024, CLI_HELP_INVARIANT),
    CLI_CHOICE(struct bench_values, bf16_gradients, "bf16-gradients", 0, "YES|NO", no_yes,
               CLI_HELP_BF16_GRADIENTS),
    CLI_FLAG(struct bench_values, scaling, "scaling", 0,
             "also measure the first device by itself, with its shard of the batch, in alternating blocks"),
    CLI_STRING(struct bench_values, place, "place", 0, "RULES", CLI_HELP_PLACE),
    CLI_CHOICE(struct bench_values, strict_placement, "strict-placement", 0, "YES|NO", no_yes,
               CLI_HELP_STRICT_PLACEMENT),
    CLI_STRING(struct bench_values, lock, "lock", 0, "FILE", CLI_HELP_LOCK),
    CLI_INT(struct bench_values, threads, "threads", 't', "N", 0, 1024, CLI_HELP_THREADS),
    CLI_STRING(struct bench_values, batch, "batch", 'b', "N",
               CLI_HELP_BATCH " (default: 128; with --inference 1, or a list as in 1,8,32)"),
    CLI_INT(struct bench_values, base, "base", 0, "N", 0, 65536, CLI_HELP_BASE),
    CLI_INT(struct bench_values, stack, "stack", 0, "N", 2, MAX_STACK,
            "train N networks as one program; also measure one, in alternating blocks"),
    CLI_FLAG(struct bench_values, inference, "inference", 0,
             "measure answers instead of training steps: of a model file, or of MODEL with random weights"),
    CLI_INT(struct bench_values, sessions, "sessions", 0, "N", 1, INFERENCE_MAX_SESSIONS,
            "with --inference: threads that call the model at once"),
    CLI_CHOICE(struct bench_values, precision, "precision", 'p', "TYPE", cli_precisions, CLI_HELP_PRECISION),
    CLI_STRING(struct bench_values, memory_limit, "memory-limit", 0, "SIZE", CLI_HELP_MEMORY_LIMIT),
    CLI_STRING(struct bench_values, gpu_memory_limit, "gpu-memory-limit", 0, "SIZE",
               CLI_HELP_GPU_MEMORY_LIMIT),
    CLI_STRING(struct bench_values, gpu_memory_reserve, "gpu-memory-reserve", 0, "SIZE",
               CLI_HELP_GPU_MEMORY_RESERVE),
    CLI_INT(struct bench_values, steps, "steps", 's', "N", 1, MAX_STEPS,
            "steps per block (default: as many as take half a second); calls with --inference"),
    CLI_INT(struct bench_values, warmup, "warmup", 'w', "N", 0, MAX_STEPS,
            "steps before the first block; at least 3 are run"),
    CLI_INT(struct bench_values, repeat, "repeat", 'r', "N", 1, MAX_BLOCKS,
            "number of blocks; the median is printed"),
    CLI_CHOICE(struct bench_values, tune_kernels, "tune-kernels", 0, "YES|NO", no_yes, CLI_HELP_TUNE_KERNELS),
    CLI_FLAG(struct bench_values, kernels, "kernels", 'k',
             "also print the time, GFLOP/s and GB/s of every kernel"),
    CLI_STRING(struct bench_values, trace, "trace", 0, "FILE", CLI_HELP_TRACE),
    CLI_INT(struct bench_values, trace_steps, "trace-steps", 0, "N", 1, 100000, CLI_HELP_TRACE_STEPS),
    CLI_DOUBLE(struct bench_values, collective_timeout, "collective-timeout", 0, "SECONDS", 0.1, 1e6,
               CLI_HELP_COLLECTIVE_TIMEOUT),
    CLI_STRING(struct bench_values, interface, "interface", 0, "NAME", CLI_HELP_INTERFACE),
    CLI_FLAG(struct bench_values, independent, "independent", 0, CLI_HELP_INDEPENDENT),
    CLI_FLAG(struct bench_values, json, "json", 0, CLI_HELP_JSON),
    {0},
};

/* ---- Measuring ---- */

/* Runs the first steps, computes the digest, and chooses the number of steps per block. */
static tu_status warm_up(struct workload *work, const struct bench_values *values, tu_process_group *group,
                         double start_time, struct measurement *m) {
    TU_TRY(workload_steps(work, 1));
    m->first_step_seconds = cli_process_age(cli_now() - start_time);
    TU_TRY(workload_steps(work, BENCH_DIGEST_STEPS - 1));
    TU_TRY(workload_digest(work, m->digest));
    TU_TRY(workload_steps(work, values->warmup - BENCH_DIGEST_STEPS));
    m->steps = values->steps;
    if (m->steps) return TU_OK;
    int64_t tried = work->multi_step ? TRIAL_STEPS : 1;
    double start = cli_now();
    TU_TRY(workload_steps(work, tried));
    double chosen = ceil(1e-3 * BLOCK_MILLISECONDS * (double)tried / (cli_now() - start));
    m->steps = (int64_t)fmin(fmax(chosen, 1), MAX_STEPS);
    /* All processes must run the same number of steps. */
    return group ? tu_process_group_broadcast(group, 0, &m->steps, sizeof m->steps) : TU_OK;
}

static int compare_times(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs a block and stores its milliseconds per step. */
static tu_status time_block(struct workload *work, const struct measurement *m, double *ms) {
    double start = cli_now();
    TU_TRY(workload_steps(work, m->steps));
    *ms = 1e3 * (cli_now() - start) / (double)m->steps;
    return TU_OK;
}

static void summarize_times(double *ms, int64_t count, struct measurement *m) {
    qsort(ms, (size_t)count, sizeof *ms, compare_times);
    m->min_ms = ms[0];
    m->max_ms = ms[count - 1];
    m->median_ms = (ms[(count - 1) / 2] + ms[count / 2]) / 2;
}

/* Waits until all processes have called it. */
static tu_status meet(tu_process_group *group, uint32_t processes) {
    char *all = calloc(processes, 1), mine = 0;
    if (!all) return tu_fail(TU_NO_MEMORY, "bench: out of memory");
    tu_status status = tu_process_group_gather(group, &mine, 1, all);
    free(all);
    return status;
}

/* Times a block of the run on the first device, which is rank 0's; meanwhile the other processes wait. */
static tu_status time_single(struct bench_run *single, tu_process_group *group, uint32_t processes,
                             double *ms) {
    *ms = 0;
    if (cli_prints(group)) TU_TRY(time_block(&single->work, &single->m, ms));
    return group ? meet(group, processes) : TU_OK;
}

/* Alternates between the runs, so that other load on the machine affects both. `single` may be NULL. */
static tu_status time_blocks(struct bench_run *run, struct bench_run *single, int64_t count,
                             tu_process_group *group, uint32_t processes) {
    double ms[MAX_BLOCKS], single_ms[MAX_BLOCKS];
    for (int64_t i = 0; i < count; i++) {
        TU_TRY(time_block(&run->work, &run->m, &ms[i]));
        if (single) TU_TRY(time_single(single, group, processes, &single_ms[i]));
    }
    summarize_times(ms, count, &run->m);
    if (single) summarize_times(single_ms, count, &single->m);
    return TU_OK;
}

static size_t count_kernels(const tu_program *program) {
    tu_kernel_report report = TU_SIZED(tu_kernel_report);
    size_t count = 0;
    while (count < tu_program_kernel_count(program) && tu_program_kernel(program, count, &report) == TU_OK)
        count++;
    return count;
}

/* Runs one more block and reads the time of each kernel after each step. */
static tu_status time_kernels(struct workload *work, struct measurement *m) {
    m->kernel_count = count_kernels(work->step);
    m->kernel_ms = calloc(m->kernel_count + 1, sizeof *m->kernel_ms);
    if (!m->kernel_ms) return tu_fail(TU_NO_MEMORY, "bench: out of memory");
    for (int64_t i = 0; i < m->steps; i++) {
        TU_TRY(workload_step(work));
        for (size_t k = 0; k < m->kernel_count; k++) {
            tu_kernel_report report = TU_SIZED(tu_kernel_report);
            TU_TRY(tu_program_kernel(work->step, k, &report));
            m->kernel_ms[k] += 1e3 * report.seconds / (double)m->steps;
        }
    }
    return TU_OK;
}

/* `single`: NULL without --scaling. */
static tu_status measure(struct bench_run *run, struct bench_run *single, const struct bench_values *values,
                         tu_process_group *group, uint32_t processes, double start_time,
                         struct communication_cost *communication) {
    TU_TRY(warm_up(&run->work, values, group, start_time, &run->m));
    if (single && cli_prints(group)) TU_TRY(warm_up(&single->work, values, NULL, start_time, &single->m));
    TU_TRY(time_blocks(run, single, values->repeat, group, processes));
    TU_TRY(workload_check_loss(&run->work));
    if (single) TU_TRY(workload_check_loss(&single->work));
    if (workload_is_sharded(&run->work))
        TU_TRY(measure_communication(&run->work, values->trace_steps, group, communication));
    return values->kernels ? time_kernels(&run->work, &run->m) : TU_OK;
}

/* Runs a few more steps with tracing, in all processes, and saves the trace of the one that prints. */
static tu_status trace_steps(struct workload *work, const struct bench_values *values, bool saves) {
    TU_TRY(tu_program_trace_begin(work->step));
    TU_TRY(workload_steps(work, values->trace_steps));
    return saves ? tu_trace_save(1, &work->step, values->trace) : TU_OK;
}

/* ---- All processes ---- */

/* If a process has failed, all fail with its message. */
static tu_status agree(tu_process_group *group, tu_status status) {
    return group ? tu_process_group_agree(group, status) : status;
}

/* Prints the notices of the devices. Logical devices of one device have the same notice, which is printed once. */
static void print_notices(const struct workload *work) {
    tu_device_report report = TU_SIZED(tu_device_report);
    char printed[320] = ""; /* the previous notice, possibly truncated */
    for (size_t i = 0;
         i < tu_program_device_count(work->step) && tu_program_device(work->step, i, &report) == TU_OK; i++) {
        if (!report.notice || strncmp(report.notice, printed, sizeof printed - 1) == 0) continue;
        snprintf(printed, sizeof printed, "%s", report.notice);
        fprintf(stderr, "tutti: notice: %s\n", report.notice);
    }
}

/* Counts the processes and their devices. */
static tu_status count_devices(tu_process_group *group, const struct workload *work,
                               struct bench_processes *processes) {
    tu_process_info info = TU_SIZED(tu_process_info);
    uint64_t mine = workload_device_count(work);
    *processes = (struct bench_processes){.count = 1, .devices = (size_t)mine};
    if (!group) return TU_OK;
    TU_TRY(tu_process_group_describe(group, &info));
    uint64_t *all = calloc(info.size, sizeof *all);
    if (!all) return tu_fail(TU_NO_MEMORY, "bench: out of memory");
    tu_status status = tu_process_group_gather(group, &mine, sizeof mine, all);
    *processes = (struct bench_processes){.count = info.size, .transport = info.transport};
    for (uint32_t r = 0; r < info.size; r++) processes->devices += (size_t)all[r];
    free(all);
    return status;
}

/* Initialises the workload on the first device only, with its shard of the batch. With several processes, rank 0 has
 * the first device. */
static tu_status init_single_device(const struct workload_settings *settings, const struct bench_run *shared,
                                    size_t device_count, struct bench_run *single) {
    struct workload_settings s = *settings;
    tu_device_report first = TU_SIZED(tu_device_report);
    int64_t devices = (int64_t)device_count;
    if (devices < 2)
        return tu_fail(TU_INVALID, "bench: --scaling needs several devices, as in --devices cpu:0/2");
    if (!cli_prints(settings->group)) return TU_OK;
    TU_TRY(tu_program_device(shared->work.device_list, 0, &first));
    s.devices = first.spec;
    s.group = NULL;
    s.strategy = "single";
    s.central = s.place = s.lock = NULL;
    s.invariant = 0;
    s.bf16_gradients = false;
    s.batch = single->batch = (settings->batch + devices - 1) / devices;
    return workload_init(&single->work, &s);
}

/* Initialises one network of the stack. */
static tu_status init_single_network(const struct workload_settings *settings, struct bench_run *single) {
    struct workload_settings s = *settings;
    s.stack = 0;
    single->batch = s.batch;
    return workload_init(&single->work, &s);
}

static tu_status bench(const struct bench_values *values, const struct workload_settings *settings,
                       double start_time, struct bench_run runs[2]) {
    struct communication_cost communication = {0};
    runs->batch = settings->batch * (settings->stack ? settings->stack : 1);
    TU_TRY(agree(settings->group, workload_init(&runs->work, settings)));
    bool prints = cli_prints(settings->group);
    if (prints) {
        print_notices(&runs->work);
        cli_print_placement_notice(runs->work.step);
    }
    if (!values->json && !settings->group) cli_warn_unequal_devices(runs->work.step, settings->threads, 0);
    struct bench_processes processes;
    struct bench_run *single = values->scaling || settings->stack ? runs + 1 : NULL;
    TU_TRY(count_devices(settings->group, &runs->work, &processes));
    if (single && settings->stack)
        TU_TRY(init_single_network(settings, single));
    else if (single)
        TU_TRY(agree(settings->group, init_single_device(settings, runs, processes.devices, single)));
    TU_TRY(measure(runs, single, values, settings->group, processes.count, start_time, &communication));
    if (values->trace) TU_TRY(agree(settings->group, trace_steps(&runs->work, values, prints)));
    if (!prints) return TU_OK;
    const struct bench_report report = {.model = settings->model,
                                        .precision = settings->precision,
                                        .repeat = values->repeat,
                                        .invariant = values->invariant,
                                        .stack = values->stack,
                                        .traced_steps = values->trace_steps,
                                        .kernels = values->kernels,
                                        .run = runs,
                                        .single = single,
                                        .communication = &communication,
                                        .processes = processes};
    (values->json ? bench_print_json : bench_print_text)(&report);
    if (!values->trace || values->json) return TU_OK;
    printf("\n%-12s  %s: ", "trace", values->trace);
    return tu_trace_summary(runs->work.step, stdout);
}

static tu_status plan_workload(void *context, const struct memory_settings *settings,
                               struct memory_plan *plan) {
    struct workload_settings s = *(const struct workload_settings *)context;
    *plan = (struct memory_plan){.planner_data = calloc(1, sizeof(struct workload))};
    struct workload *work = plan->planner_data;
    if (!work) return tu_fail(TU_NO_MEMORY, "bench: out of memory");
    if (settings) s.batch = settings->batch, s.precision = settings->precision;
    plan->settings = (struct memory_settings){.batch = s.batch, .precision = s.precision};
    TU_TRY(workload_plan(work, &s));
    plan->program = work->step;
    return TU_OK;
}

static void free_workload_plan(struct memory_plan *plan) {
    if (plan->planner_data) workload_free(plan->planner_data);
    free(plan->planner_data);
}

static int read_sizes(const struct bench_values *values, struct workload_settings *settings) {
    const struct {
        const char *option, *text;
        uint64_t *bytes;
    } sizes[] = {{"memory-limit", values->memory_limit, &settings->memory_limit},
                 {"gpu-memory-limit", values->gpu_memory_limit, &settings->gpu_memory_limit},
                 {"gpu-memory-reserve", values->gpu_memory_reserve, &settings->gpu_memory_reserve}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].text && strcmp(sizes[i].text, "0") != 0 &&
            !cli_parse_bytes(sizes[i].text, sizes[i].bytes))
            return cli_input_error("bench: --%s %s: expected a size, as in 64M or 1.5G", sizes[i].option,
                                   cli_quote(sizes[i].text).text);
    return CLI_DONE;
}

/* ---- --inference ---- */

/* Parses a list of batch sizes, separated by commas. Returns their number; 0 if one is wrong. */
static int parse_batches(const char *text, int64_t *batches) {
    int count = 0;
    for (const char *at = text;; at++) {
        char *end;
        if (count == INFERENCE_MAX_BATCHES || *at < '0' || *at > '9') return 0;
        batches[count] = strtoll(at, &end, 10);
        if (batches[count] < 1 || batches[count] > MAX_BATCH || (*end && *end != ',')) return 0;
        count++;
        if (!*end) return count;
        at = end;
    }
}

/* Reads --batch; several sizes only with --inference. */
static int read_batches(const struct bench_values *values, int64_t *batches, int *count) {
    const char *text = values->batch ? values->batch : values->inference ? "1" : "128";
    *count = parse_batches(text, batches);
    if (*count == 1 || (*count && values->inference)) return CLI_DONE;
    return cli_input_error("bench: --batch %s: expected a whole number from 1 to %d%s", cli_quote(text).text,
                           MAX_BATCH,
                           values->inference ? ", or up to 16 of them separated by commas"
                           : *count          ? "; only --inference measures several"
                                             : "");
}

/* Fails if an option is given that says how to train. */
static int check_inference_options(const struct bench_values *v) {
    const struct {
        const char *name;
        bool is_given;
    } others[] = {{"strategy", v->strategy >= 0},
                  {"central", v->central},
                  {"invariant", v->invariant},
                  {"bf16-gradients", v->bf16_gradients},
                  {"scaling", v->scaling},
                  {"base", v->base},
                  {"stack", v->stack},
                  {"place", v->place},
                  {"strict-placement", v->strict_placement},
                  {"lock", v->lock},
                  {"gpu-memory-limit", v->gpu_memory_limit},
                  {"gpu-memory-reserve", v->gpu_memory_reserve},
                  {"tune-kernels", v->tune_kernels},
                  {"warmup", v->warmup != defaults.warmup},
                  {"repeat", v->repeat != defaults.repeat},
                  {"kernels", v->kernels},
                  {"trace", v->trace}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].is_given)
            return cli_input_error(
                "bench: --%s cannot be used with --inference: expected --devices, --threads, --batch, "
                "--precision, --sessions, --steps, --memory-limit or --json",
                others[i].name);
    return CLI_DONE;
}

static int run_inference(const struct bench_values *values, const char *model, double start_time) {
    struct inference_bench b = {.settings = {.model = model,
                                             .devices = values->devices,
                                             .precision = cli_precisions[values->precision],
                                             .threads = (int)values->threads,
                                             .sessions = (int)values->sessions},
                                .calls = values->steps,
                                .json = values->json,
                                .start_time = start_time};
    struct workload_settings sizes = {.batch = 0};
    int checked = check_inference_options(values);
    if (checked == CLI_DONE) checked = read_sizes(values, &sizes);
    if (checked == CLI_DONE) checked = read_batches(values, b.batches, &b.batch_count);
    if (checked != CLI_DONE) return checked;
    b.settings.memory_limit = sizes.memory_limit;
    for (int i = 0; i < b.batch_count; i++)
        if (b.batches[i] > b.settings.max_batch) b.settings.max_batch = b.batches[i];
    return cli_report(bench_inference(&b));
}

/* ---- The command ---- */

static int run(const void *given, int operand_count, char **operands) {
    const struct bench_values *values = given;
    (void)operand_count;
    double start_time = cli_now();
    int64_t batches[INFERENCE_MAX_BATCHES];
    int batch_count;
    if (values->inference) return run_inference(values, operands[0], start_time);
    if (values->stack && values->scaling)
        return cli_input_error("bench: --stack cannot be combined with --scaling: expected one of them");
    if (values->sessions > 1) return cli_input_error("bench: --sessions is for --inference");
    int parsed = read_batches(values, batches, &batch_count);
    if (parsed != CLI_DONE) return parsed;
    struct workload_settings settings = {.model = operands[0],
                                         .devices = values->devices,
                                         .place = values->place,
                                         .strict_placement = values->strict_placement,
                                         .lock = values->lock,
                                         .strategy =
                                             values->strategy < 0 ? NULL : cli_strategies[values->strategy],
                                         .central = values->central,
                                         .invariant = (int)values->invariant,
                                         .bf16_gradients = values->bf16_gradients,
                                         .precision = cli_precisions[values->precision],
                                         .tune_kernels = values->tune_kernels,
                                         .threads = (int)values->threads,
                                         .base = values->base,
                                         .stack = values->stack,
                                         .batch = batches[0]};
    int sizes = read_sizes(values, &settings);
    if (sizes != CLI_DONE) return sizes;
    tu_status loaded =
        tu_network_is_file(settings.model) ? tu_network_load(settings.model, &settings.model) : TU_OK;
    if (loaded != TU_OK) return cli_report(tu_fail(loaded, "bench: %s", tu_message()));
    if (values->invariant && values->threads > 1)
        return cli_input_error(
            "bench: --invariant %d with --threads %d: each shard is computed by one thread; to use more "
            "cores, split the CPU: --devices cpu:0/%d",
            (int)values->invariant, (int)values->threads, (int)values->threads);
    char devices[1024];
    if (settings.stack && values->lock)
        return cli_input_error("bench: --stack cannot be combined with --lock");
    int joined = values->independent
                     ? cli_stay_independent("bench")
                     : cli_join_processes(values->collective_timeout, values->interface, &settings.group);
    if (joined != CLI_DONE) return joined;
    tu_status status = TU_OK;
    if (settings.group && settings.stack)
        status = tu_fail(TU_INVALID, "bench: --stack is for one process: see --independent");
    if (settings.group && status == TU_OK) {
        status = tu_process_group_devices(settings.group, values->devices, devices, sizeof devices);
        status = agree(settings.group, status);
        settings.devices = devices;
    }
    struct bench_run runs[2] = {{.batch = 0}};
    if (status == TU_OK) status = bench(values, &settings, start_time, runs);
    bool planned_too_large = status == TU_NO_MEMORY && !runs->work.step;
    for (size_t k = 0; k < 2; k++) {
        workload_free(&runs[k].work);
        free(runs[k].m.kernel_ms);
    }
    if (settings.group && status != TU_OK) tu_process_group_fail(settings.group, status, tu_message());
    cli_leave_processes(settings.group);
    if (!planned_too_large || settings.group) return cli_report_common(settings.group, status);
    return cli_report_memory(&(struct memory_planner){.command = "bench",
                                                      .what = "a workload",
                                                      .is_user_network = tu_network_is_file(operands[0]),
                                                      .context = &settings,
                                                      .plan = plan_workload,
                                                      .release = free_workload_plan});
}

const struct cli_command cli_command_bench = {
    .name = "bench",
    .summary = "measures a training step or answers: time, throughput, memory",
    .usage = "MODEL [OPTIONS]",
    .description = "Measures the training step of MODEL (a built-in network or your own C file):\n"
                   "forward pass, backward pass and an update by SGD with momentum, with one fixed\n"
                   "random batch.\n"
                   "Prints the median time of a step, samples per second, the planned peak of\n"
                   "memory, the compile time, the time from the start of the process to the end of\n"
                   "the first step, and a digest of all variables after three steps: runs with the\n"
                   "same digest computed bit-identical results. A step that does not fit into\n"
                   "memory fails before it runs; the error lists the largest buffers and options\n"
                   "that help.\n"
                   "\n"
                   "With --inference, MODEL may also be a model file. Prints the time to load it and\n"
                   "to the first answer, its memory, and for each batch size the percentiles of\n"
                   "the time of a call and the samples per second.\n"
                   "\n"
                   "With --stack N, the step trains N networks with a batch each as one program\n"
                   "(docs/ensembles.md); its speed is compared with that of N steps of one network.\n"
                   "\n"
                   "Several devices share the batch; --scaling compares them with the first device.\n"
                   "'branches' is a workload of sixteen small networks, distributed over the\n"
                   "devices.",
    .lists_models = true,
    .options = options,
    .values_size = sizeof(struct bench_values),
    .defaults = &defaults,
    .min_operands = 1,
    .max_operands = 1,
    .joins_processes = true,
    .run = run,
};
