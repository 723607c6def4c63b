/* Prints the results of `tutti bench --inference` as a table or as a JSON object. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

#include "cli/bench_inference.h"

static double mib(uint64_t bytes) {
    return (double)bytes / 1048576;
}

/* Gets the threads of the model's device and its memory; zeros if they are not known. */
static tu_device_report device_of(const tu_model *model) {
    tu_device_report report = TU_SIZED(tu_device_report);
    if (tu_program_device(tu_model_program(model, 0), 0, &report) != TU_OK) report.device = "";
    return report;
}

static tu_model_memory_report memory_of(const tu_model *model) {
    tu_model_memory_report memory = TU_SIZED(tu_model_memory_report);
    if (tu_model_memory(model, &memory) != TU_OK) memory.total_bytes = 0;
    return memory;
}

/* A quantized model computes the layers that its file names in int8, and the others in the precision of the options. */
static const char *precision_of(const struct inference_report *r) {
    const char *given = r->bench->settings.precision, *quantized = tu_model_text(r->model, "quantization");
    if (!quantized || strncmp(quantized, "0 of ", 5) == 0) return given;
    if (strcmp(given, "bf16") == 0) return "int8 and bf16";
    if (strcmp(given, "f16") == 0) return "int8 and f16";
    return "int8";
}

/* ---- Text ---- */

static void print_device(const struct inference_report *r) {
    tu_device_report device = device_of(r->model);
    int sessions = r->bench->settings.sessions;
    printf("%-12s  %s", "device", device.device);
    if (device.threads) printf(", %d thread%s", device.threads, device.threads == 1 ? "" : "s");
    printf(", %d session%s\n", sessions, sessions == 1 ? "" : "s");
}

void inference_print_text(const struct inference_report *r) {
    tu_model_memory_report memory = memory_of(r->model);
    printf("%-12s  %s, %s\n", "workload", r->bench->settings.model, precision_of(r));
    print_device(r);
    printf("%-12s  %.1f MiB: weights %.1f, %.1f per session", "planned", mib(memory.total_bytes),
           mib(memory.weight_bytes), mib(memory.scratch_bytes));
    if (r->resident_bytes) printf("; resident %.1f MiB", mib(r->resident_bytes));
    printf("\n%-12s  %.2f ms\n", "loading", 1e3 * r->load_seconds);
    printf("%-12s  %.3f ms, %.1f ms after the process started\n", "first answer",
           1e3 * r->first_answer_seconds, 1e3 * r->first_answer_age);
    printf("\n%8s  %8s  %9s  %9s  %9s  %9s  %11s\n", "batch", "calls", "p50 ms", "p90 ms", "p99 ms", "max ms",
           "samples/s");
    for (int i = 0; i < r->bench->batch_count; i++) {
        const struct inference_times *t = &r->times[i];
        printf("%8" PRId64 "  %8" PRId64 "  %9.4f  %9.4f  %9.4f  %9.4f  %11.1f\n", t->batch, t->calls, t->p50,
               t->p90, t->p99, t->max, t->samples_per_second);
    }
}

/* ---- JSON ---- */

/* Rounds to 5 decimals: further digits are below the resolution of the clock. */
static double rounded(double value) {
    return round(value * 1e5) / 1e5;
}

static void put_batches(tu_json *json, const struct inference_report *r) {
    tu_json_begin_array(json, "batches");
    for (int i = 0; i < r->bench->batch_count; i++) {
        const struct inference_times *t = &r->times[i];
        tu_json_begin_object(json, NULL);
        tu_json_i64(json, "batch", t->batch);
        tu_json_i64(json, "calls", t->calls);
        tu_json_f64(json, "p50_ms", rounded(t->p50));
        tu_json_f64(json, "p90_ms", rounded(t->p90));
        tu_json_f64(json, "p99_ms", rounded(t->p99));
        tu_json_f64(json, "most_ms", rounded(t->max));
        tu_json_f64(json, "per_s", rounded(t->samples_per_second));
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

void inference_print_json(const struct inference_report *r) {
    tu_device_report device = device_of(r->model);
    tu_model_memory_report memory = memory_of(r->model);
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "workload", r->bench->settings.model);
    tu_json_string(&json, "devices", device.device);
    tu_json_string(&json, "precision", precision_of(r));
    tu_json_i64(&json, "threads", device.threads);
    tu_json_i64(&json, "sessions", r->bench->settings.sessions);
    tu_json_u64(&json, "weight_bytes", memory.weight_bytes);
    tu_json_u64(&json, "session_bytes", memory.scratch_bytes);
    tu_json_u64(&json, "planned_bytes", memory.total_bytes);
    tu_json_u64(&json, "resident_bytes", r->resident_bytes);
    tu_json_f64(&json, "load_s", rounded(r->load_seconds));
    tu_json_f64(&json, "first_answer_ms", rounded(1e3 * r->first_answer_seconds));
    tu_json_f64(&json, "first_answer_s", rounded(r->first_answer_age));
    put_batches(&json, r);
    tu_json_end_object(&json);
    putchar('\n');
}
