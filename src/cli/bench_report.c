/* Printing what `tutti bench` has measured: a short table for people, one JSON object for scripts. */
#include "cli/bench_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <tutti/command.h>

/* ---- Text ---- */

/* The devices' names, `between` them, and the threads of those that have any: 0 when that is not known. */
struct device_names {
    char text[1024];
    int threads;
    bool alike; /* all have as many */
};

/* `each`: a device's own threads behind its name. */
static struct device_names device_names(const struct workload *work, const char *between, bool each) {
    struct device_names names = {.text = "", .alike = true};
    tu_device_report report = TU_SIZED(tu_device_report);
    size_t used = 0;
    for (size_t i = 0; used < sizeof names.text && i < tu_program_device_count(work->step) &&
                       tu_program_device(work->step, i, &report) == TU_OK;
         i++) {
        used += (size_t)snprintf(names.text + used, sizeof names.text - used, "%s%s", i ? between : "",
                                 report.device);
        if (each && report.threads && used < sizeof names.text)
            used += (size_t)snprintf(names.text + used, sizeof names.text - used, " with %d thread%s",
                                     report.threads, report.threads == 1 ? "" : "s");
        names.alike = names.alike && (i == 0 || report.threads == names.threads);
        if (report.threads) names.threads = report.threads;
    }
    return names;
}

static void print_devices(const struct workload *work) {
    struct device_names names = device_names(work, ", ", false);
    bool several = workload_device_count(work) > 1;
    printf("%-12s  %s", several ? "devices" : "device",
           names.alike ? names.text : device_names(work, ", ", true).text);
    if (names.threads && names.alike)
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
    tu_kernel_report report = TU_SIZED(tu_kernel_report);
    for (size_t k = 0; k < m->kernel_count && k < tu_program_kernel_count(work->step) &&
                       tu_program_kernel(work->step, k, &report) == TU_OK;
         k++)
        print_kernel(&report, m->kernel_ms[k], total);
    if (total > 0 && workload_device_count(work) > 1)
        printf("%9.4f  in %zu kernels, of all devices together\n", total, m->kernel_count);
    else if (total > 0)
        printf("%9.4f  in %zu kernels; %.4f ms of a step are outside of them\n", total, m->kernel_count,
               fmax(m->median_ms - total, 0));
}

static double samples_per_second(const struct bench_run *run) {
    return 1e3 * (double)run->batch / run->m.median_ms;
}

/* How much of as many times one device's throughput the devices come to. */
static double efficiency(const struct bench_run *run, const struct bench_run *one) {
    return samples_per_second(run) / samples_per_second(one) / (double)workload_device_count(&run->work);
}

static void print_sharing(const struct bench_run *run, const struct communication *c) {
    printf(
        "%-12s  %s; of a step %.4g ms in communication, %.0f%% of it beside computing, %.4g ms waiting for others, "
        "%.3g MB are sent\n",
        "strategy", run->work.strategy, c->ms, 100 * c->overlapped, c->waiting_ms, 1e-6 * (double)c->bytes);
}

static void print_scaling(const struct bench_run *run, const struct bench_run *one) {
    printf("%-12s  %.2f times the first device alone with batch %" PRId64
           " (%.1f samples/s): %.1f%% of what %zu could\n",
           "scaling", samples_per_second(run) / samples_per_second(one), one->batch, samples_per_second(one),
           100 * efficiency(run, one), workload_device_count(&run->work));
}

static double mib(uint64_t bytes) {
    return (double)bytes / 1048576;
}

/* What is no part of the plan is told beside it. */
static void print_memory(const struct workload *work) {
    struct workload_memory memory = workload_memory(work);
    printf("%-12s  %.1f MiB", "planned peak", mib(memory.peak));
    if (memory.overhead) printf("; beside it %.1f MiB for context and libraries", mib(memory.overhead));
    if (memory.tables) printf("; %.1f MiB of input tables", mib(memory.tables));
    putchar('\n');
}

void bench_print_text(const struct bench_report *r) {
    const struct workload *work = &r->run->work;
    const struct measurement *m = &r->run->m;
    printf("%-12s  %s, batch %" PRId64 ", %s\n", "workload", r->model, r->run->batch, r->precision);
    print_devices(work);
    printf("%-12s  %.4g ms (least %.4g, most %.4g; %" PRId64 " times %" PRId64 " steps%s)\n", "step",
           m->median_ms, m->least_ms, m->most_ms, r->repeat, m->steps,
           work->at_once ? ", each time in one call" : "");
    printf("%-12s  %.1f samples/s\n", "throughput", samples_per_second(r->run));
    if (r->one) print_scaling(r->run, r->one);
    if (workload_is_shared(work)) print_sharing(r->run, r->spent);
    print_memory(work);
    printf("%-12s  %.3f s\n", "compiling", work->compile_seconds);
    printf("%-12s  %.3f s after the process began\n", "first step", m->first_step_seconds);
    printf("%-12s  %s after %d steps\n", "digest", m->digest, BENCH_DIGEST_STEPS);
    if (r->kernels) print_kernels(work, m);
}

/* ---- JSON ---- */

/* Digits that the clock does not vouch for are left out. */
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

static void put_scaling(tu_json *json, const struct bench_run *run, const struct bench_run *one) {
    tu_json_begin_object(json, "one_device");
    tu_json_i64(json, "batch", one->batch);
    tu_json_f64(json, "ms_per_step", rounded(one->m.median_ms));
    tu_json_f64(json, "per_s", rounded(samples_per_second(one)));
    tu_json_end_object(json);
    tu_json_f64(json, "speedup", rounded(samples_per_second(run) / samples_per_second(one)));
    tu_json_f64(json, "efficiency", rounded(efficiency(run, one)));
}

static void put_communication(tu_json *json, const struct communication *c) {
    tu_json_f64(json, "communication_ms", rounded(c->ms));
    tu_json_f64(json, "overlapped", rounded(c->overlapped));
    tu_json_f64(json, "waiting_ms", rounded(c->waiting_ms));
    tu_json_u64(json, "communication_bytes", c->bytes);
}

/* What each device spends a traced step on. The devices of the list come first: a central one may stand beside them. */
static void put_shares(tu_json *json, const struct workload *work, int64_t steps) {
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
    tu_json_f64(&json, "least_ms", rounded(m->least_ms));
    tu_json_f64(&json, "most_ms", rounded(m->most_ms));
    tu_json_i64(&json, "steps", m->steps);
    tu_json_i64(&json, "repeat", r->repeat);
    tu_json_bool(&json, "at_once", work->at_once);
    if (r->invariant) tu_json_i64(&json, "invariant", r->invariant);
    if (workload_is_shared(work)) put_communication(&json, r->spent), put_shares(&json, work, r->traced);
    if (r->one) put_scaling(&json, r->run, r->one);
    if (r->kernels) put_kernels(&json, work, m);
    tu_json_end_object(&json);
    putchar('\n');
}
