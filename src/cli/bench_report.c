/* Prints the results of `tutti bench` as a table or as a JSON object. */
#include "cli/bench_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

/* ---- Text ---- */

/* Names of the devices, joined, and their number of threads. */
struct device_names {
    char text[1024];
    int threads;       /* of the last device with threads; 0: unknown */
    bool same_threads; /* all devices have the same number */
};

/* `with_threads`: append the number of threads to each name. */
static struct device_names device_names(const struct workload *work, const char *separator,
                                        bool with_threads) {
    struct device_names names = {.text = "", .same_threads = true};
    tu_device_report report = TU_SIZED(tu_device_report);
    size_t used = 0;
    for (size_t i = 0; used < sizeof names.text && i < tu_program_device_count(work->step) &&
                       tu_program_device(work->step, i, &report) == TU_OK;
         i++) {
        used += (size_t)snprintf(names.text + used, sizeof names.text - used, "%s%s", i ? separator : "",
                                 report.device);
        if (with_threads && report.threads && used < sizeof names.text)
            used += (size_t)snprintf(names.text + used, sizeof names.text - used, " with %d thread%s",
                                     report.threads, report.threads == 1 ? "" : "s");
        names.same_threads = names.same_threads && (i == 0 || report.threads == names.threads);
        if (report.threads) names.threads = report.threads;
    }
    return names;
}

static void print_devices(const struct workload *work) {
    struct device_names names = device_names(work, ", ", false);
    bool several = workload_device_count(work) > 1;
    printf("%-12s  %s", several ? "devices" : "device",
           names.same_threads ? names.text : device_names(work, ", ", true).text);
    if (names.threads && names.same_threads)
        printf(", %d thread%s%s", names.threads, names.threads == 1 ? "" : "s", several ? " each" : "");
    putchar('\n');
}

/* "12.3", or "-" if the device does not report the times of its kernels */
struct cell {
    char text[24];
};

static struct cell positive_or_dash(int decimals, double value) {
    struct cell cell = {"-"};
    if (value > 0) snprintf(cell.text, sizeof cell.text, "%.*f", decimals, value);
    return cell;
}

static void print_kernel(const tu_kernel_report *r, double ms, double total) {
    double giga_per_second = ms > 0 ? 1e-6 / ms : 0; /* converts a count to 10^9 per second */
    printf("%9s  %6s  %9.3f  %9.3f  %8s  %7s  %-32s  %5" PRIu32 "  %s\n", positive_or_dash(4, ms).text,
           positive_or_dash(1, ms > 0 ? 100 * ms / total : 0).text, 1e-6 * (double)r->flops,
           1e-6 * (double)r->bytes, positive_or_dash(1, (double)r->flops * giga_per_second).text,
           positive_or_dash(1, (double)r->bytes * giga_per_second).text, r->kernel, r->node_count, r->node);
}

static void print_kernels(const struct workload *work, const struct measurement *m) {
    double total = 0;
    for (size_t k = 0; k < m->kernel_count; k++) total += m->kernel_ms[k];
    printf("\n%9s  %6s  %9s  %9s  %8s  %7s  %-32s  %5s  %s\n", "ms", "share%", "MFLOP", "MB", "GFLOP/s",
           "GB/s", "kernel", "nodes", "first operation");
    tu_kernel_report report = TU_SIZED(tu_kernel_report);
    for (size_t k = 0; k < m->kernel_count && k < tu_program_kernel_count(work->step) &&
                       tu_program_kernel(work->step, k, &report) == TU_OK;
         k++)
        print_kernel(&report, m->kernel_ms[k], total);
    if (total > 0 && workload_device_count(work) > 1)
        printf("%9.4f  in %zu kernels, summed over all devices\n", total, m->kernel_count);
    else if (total > 0)
        printf("%9.4f  in %zu kernels; %.4f ms of a step are outside of kernels\n", total, m->kernel_count,
               fmax(m->median_ms - total, 0));
}

static double samples_per_second(const struct bench_run *run) {
    return 1e3 * (double)run->batch / run->m.median_ms;
}

/* Returns the speedup over the first device, divided by the number of devices. */
static double efficiency(const struct bench_report *r) {
    return samples_per_second(r->run) / samples_per_second(r->single) / (double)r->processes.devices;
}

/* True if the devices exchange gradients by all-reduces alone. */
static bool all_reduces(const struct workload *work) {
    return strcmp(work->strategy, "mirrored") == 0;
}

static void print_processes(const struct bench_processes *p) {
    if (p->count > 1)
        printf("%-12s  %" PRIu32
               " (%s) with %zu devices; memory and times of compiling are those of rank 0\n",
               "processes", p->count, p->transport, p->devices);
}

static void print_communication(const struct bench_run *run, const struct communication_cost *c) {
    printf(
        "%-12s  %s; per step: %.4g ms of communication (%.0f%% overlapped with computation), %.4g ms waiting for "
        "other devices, %.3g MB sent",
        "strategy", run->work.strategy, c->ms, 100 * c->overlapped, c->waiting_ms, 1e-6 * (double)c->bytes);
    if (all_reduces(&run->work) && c->bus_gb_per_s > 0) printf("; bus bandwidth %.3g GB/s", c->bus_gb_per_s);
    putchar('\n');
}

static void print_scaling(const struct bench_report *r) {
    printf("%-12s  %.2f times the throughput of the first device with batch %" PRId64
           " (%.1f samples/s): %.1f%% of linear scaling to %zu devices\n",
           "scaling", samples_per_second(r->run) / samples_per_second(r->single), r->single->batch,
           samples_per_second(r->single), 100 * efficiency(r), r->processes.devices);
}

/* Returns how many times as fast the step of the stack is as that many steps of one network. */
static double stack_speedup(const struct bench_report *r) {
    return (double)r->stack * r->single->m.median_ms / r->run->m.median_ms;
}

static void print_stack(const struct bench_report *r) {
    printf("%-12s  %" PRId64 " networks, %.2f times as fast as one after another (%.4g ms each)\n", "stack",
           r->stack, stack_speedup(r), r->single->m.median_ms);
}

static double mib(uint64_t bytes) {
    return (double)bytes / 1048576;
}

static void print_memory(const struct workload *work) {
    struct workload_memory memory = workload_memory(work);
    printf("%-12s  %.1f MiB", "planned peak", mib(memory.peak));
    if (memory.overhead) printf("; plus %.1f MiB for context and libraries", mib(memory.overhead));
    if (memory.tables) printf("; plus %.1f MiB of input tables", mib(memory.tables));
    putchar('\n');
}

void bench_print_text(const struct bench_report *r) {
    const struct workload *work = &r->run->work;
    const struct measurement *m = &r->run->m;
    printf("%-12s  %s, batch %" PRId64 ", %s\n", "workload", r->model, r->run->batch, r->precision);
    print_processes(&r->processes);
    print_devices(work);
    printf("%-12s  %.4g ms (min %.4g, max %.4g; %" PRId64 " blocks of %" PRId64 " steps%s)\n", "step",
           m->median_ms, m->min_ms, m->max_ms, r->repeat, m->steps,
           work->multi_step ? ", each in one call" : "");
    printf("%-12s  %.1f samples/s\n", "throughput", samples_per_second(r->run));
    if (r->single) (r->stack ? print_stack : print_scaling)(r);
    if (workload_is_sharded(work)) print_communication(r->run, r->communication);
    print_memory(work);
    printf("%-12s  %.3f s\n", "compiling", work->compile_seconds);
    printf("%-12s  %.3f s after the process started\n", "first step", m->first_step_seconds);
    printf("%-12s  %s after %d steps\n", "digest", m->digest, BENCH_DIGEST_STEPS);
    if (r->kernels) print_kernels(work, m);
}

/* ---- JSON ---- */

/* Rounds to 5 decimals: further digits are below the resolution of the clock. */
static double rounded(double value) {
    return round(value * 1e5) / 1e5;
}

static void put_kernels(tu_json *json, const struct workload *work, const struct measurement *m) {
    tu_json_begin_array(json, "kernels");
    for (size_t k = 0; k < m->kernel_count; k++) {
        tu_kernel_report r = TU_SIZED(tu_kernel_report);
        if (tu_program_kernel(work->step, k, &r) != TU_OK) break;
        tu_json_begin_object(json, NULL);
        tu_json_string(json, "device", r.device);
        tu_json_string(json, "kernel", r.kernel);
        tu_json_string(json, "node", r.node);
        tu_json_u64(json, "nodes", r.node_count);
        tu_json_f64(json, "ms", rounded(m->kernel_ms[k]));
        tu_json_i64(json, "flops", r.flops);
        tu_json_i64(json, "bytes", r.bytes);
        tu_json_u64(json, "workspace_bytes", r.workspace_bytes);
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

static void put_scaling(tu_json *json, const struct bench_report *r) {
    const struct bench_run *single = r->single;
    tu_json_begin_object(json, "one_device");
    tu_json_i64(json, "batch", single->batch);
    tu_json_f64(json, "ms_per_step", rounded(single->m.median_ms));
    tu_json_f64(json, "per_s", rounded(samples_per_second(single)));
    tu_json_end_object(json);
    tu_json_f64(json, "speedup", rounded(samples_per_second(r->run) / samples_per_second(single)));
    tu_json_f64(json, "efficiency", rounded(efficiency(r)));
}

static void put_stack(tu_json *json, const struct bench_report *r) {
    tu_json_i64(json, "stack", r->stack);
    tu_json_f64(json, "one_network_ms", rounded(r->single->m.median_ms));
    tu_json_f64(json, "speedup", rounded(stack_speedup(r)));
}

static void put_communication(tu_json *json, const struct workload *work,
                              const struct communication_cost *c) {
    if (all_reduces(work)) tu_json_f64(json, "bus_gb_per_s", rounded(c->bus_gb_per_s));
    tu_json_f64(json, "communication_ms", rounded(c->ms));
    tu_json_f64(json, "overlapped", rounded(c->overlapped));
    tu_json_f64(json, "waiting_ms", rounded(c->waiting_ms));
    tu_json_u64(json, "communication_bytes", c->bytes);
}

/* Writes the times of each device per traced step. The replicas come first; a central device may follow them. */
static void put_device_times(tu_json *json, const struct workload *work, int64_t steps) {
    tu_trace_report r = TU_SIZED(tu_trace_report);
    tu_json_begin_array(json, "shares");
    for (size_t i = 0; i < tu_program_device_count(work->step) && tu_trace_device(work->step, i, &r) == TU_OK;
         i++) {
        tu_json_begin_object(json, NULL);
        tu_json_string(json, "device", r.device);
        tu_json_bool(json, "replica", i < workload_device_count(work));
        tu_json_f64(json, "computing_ms", rounded(1e3 * r.computing / (double)steps));
        tu_json_f64(json, "copying_ms", rounded(1e3 * r.copying / (double)steps));
        tu_json_f64(json, "collective_ms", rounded(1e3 * r.collective / (double)steps));
        tu_json_f64(json, "feeding_ms", rounded(1e3 * r.feeding / (double)steps));
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

void bench_print_json(const struct bench_report *r) {
    const struct workload *work = &r->run->work;
    const struct measurement *m = &r->run->m;
    struct device_names names = device_names(work, ",", false);
    struct workload_memory memory = workload_memory(work);
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "workload", r->model);
    if (r->processes.count > 1) {
        tu_json_u64(&json, "processes", r->processes.count);
        tu_json_string(&json, "transport", r->processes.transport);
        tu_json_u64(&json, "all_devices", r->processes.devices);
    }
    tu_json_string(&json, "devices", names.text);
    tu_json_string(&json, "strategy", work->strategy);
    tu_json_string(&json, "precision", r->precision);
    tu_json_i64(&json, "batch", r->run->batch);
    tu_json_i64(&json, "threads", names.threads);
    tu_json_f64(&json, "ms_per_step", rounded(m->median_ms));
    tu_json_f64(&json, "per_s", rounded(samples_per_second(r->run)));
    tu_json_u64(&json, "peak_bytes", memory.peak);
    tu_json_u64(&json, "overhead_bytes", memory.overhead);
    tu_json_u64(&json, "table_bytes", memory.tables);
    tu_json_f64(&json, "compile_s", rounded(work->compile_seconds));
    tu_json_f64(&json, "first_step_s", rounded(m->first_step_seconds));
    tu_json_string(&json, "digest", m->digest);
    tu_json_f64(&json, "least_ms", rounded(m->min_ms));
    tu_json_f64(&json, "most_ms", rounded(m->max_ms));
    tu_json_i64(&json, "steps", m->steps);
    tu_json_i64(&json, "repeat", r->repeat);
    tu_json_bool(&json, "at_once", work->multi_step);
    if (r->invariant) tu_json_i64(&json, "invariant", r->invariant);
    if (workload_is_sharded(work))
        put_communication(&json, work, r->communication), put_device_times(&json, work, r->traced_steps);
    if (r->single) (r->stack ? put_stack : put_scaling)(&json, r);
    if (r->kernels) put_kernels(&json, work, m);
    tu_json_end_object(&json);
    putchar('\n');
}
