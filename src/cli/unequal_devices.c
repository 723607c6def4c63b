/* Warns if a slow device makes a program slower than the fastest device would be without it.
 *
 * The speed of a device is measured with a chain of products of 512 x 512 matrices, for about 20 ms. The time of a
 * step is predicted as the number of floating-point operations of its kernels divided by that speed. This is only an
 * estimate: pointwise operations are slower than products, and copies are not counted. */
#include "cli/unequal_devices.h"

#include <stdio.h>
#include <string.h>

#include <tutti/ops.h>

#include "cli/clock.h"

enum { MAX_DEVICES = 64, SIDE = 512, CHAIN = 4 };

static const double min_ratio = 1.5; /* of two speeds, for a warning */
static const double calibration_seconds = 0.02;

/* ---- One device ---- */

static tu_status time_product(tu_program *program, tu_state *state, double *flops_per_second) {
    float sum;
    /* The first run includes one-time initialisation and is not timed. */
    TU_TRY(tu_run(program, state, 0, NULL, (void *[]){&sum}));
    double start = cli_now(), elapsed;
    int runs = 0;
    do {
        TU_TRY(tu_run(program, state, 0, NULL, (void *[]){&sum}));
        runs++;
        elapsed = cli_now() - start;
    } while (elapsed < calibration_seconds);
    *flops_per_second = 2.0 * SIDE * SIDE * SIDE * CHAIN * runs / elapsed;
    return TU_OK;
}

static tu_status measure_device(const char *device, int threads, double timeout, double *flops_per_second) {
    tu_graph *graph;
    tu_program *program = NULL;
    tu_state *state = NULL;
    TU_TRY(tu_graph_new(&graph));
    tu_value a = tu_variable(graph, "a", TU_F32, TU_SHAPE(SIDE, SIDE), .init = {.kind = TU_INIT_HE_NORMAL}),
             x = a;
    for (int i = 0; i < CHAIN; i++) x = tu_matmul(x, a);
    tu_value sum = tu_mean(x);
    tu_status status = tu_compile(graph, &program, .devices = device, .threads = threads, .timeout = timeout,
                                  .fetch = &sum, .fetch_count = 1);
    if (status == TU_OK) status = tu_state_new(graph, &state, .seed = 1);
    if (status == TU_OK) status = time_product(program, state, flops_per_second);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(graph);
    return status;
}

/* ---- The program ---- */

struct device_load {
    const char *device;
    double flops; /* per step */
    double speed; /* operations per second */
};

/* Sums the operations of each device. Returns the number of devices, or 0 if there are more than MAX_DEVICES. */
static size_t count_work(const tu_program *program, struct device_load loads[MAX_DEVICES]) {
    tu_kernel_report kernel = TU_SIZED(tu_kernel_report);
    size_t count = 0;
    for (size_t i = 0;
         i < tu_program_kernel_count(program) && tu_program_kernel(program, i, &kernel) == TU_OK; i++) {
        size_t at = 0;
        while (at < count && strcmp(loads[at].device, kernel.device) != 0) at++;
        if (at == MAX_DEVICES) return 0;
        if (at == count) loads[count++] = (struct device_load){.device = kernel.device};
        loads[at].flops += (double)kernel.flops;
    }
    return count;
}

/* False if there is only one device, or if there are logical devices of one GPU or CPU, which are equally fast. */
static bool can_measure(const struct device_load *loads, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strchr(loads[i].device, '.')) return false;
    return count > 1;
}

static void warn_if_slower(const struct device_load *loads, size_t count) {
    double min_speed = loads[0].speed, max_speed = min_speed, flops = 0, step_seconds = 0;
    for (size_t i = 0; i < count; i++) {
        if (loads[i].speed < min_speed) min_speed = loads[i].speed;
        if (loads[i].speed > max_speed) max_speed = loads[i].speed;
        flops += loads[i].flops;
        double device_seconds = loads[i].flops / loads[i].speed;
        if (device_seconds > step_seconds) step_seconds = device_seconds;
    }
    bool is_slower = step_seconds > flops / max_speed; /* than the fastest device by itself */
    if (max_speed < min_ratio * min_speed || !is_slower) return;
    fprintf(stderr, "tutti: the devices differ in speed; predicted time of a step:");
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "%s %.3g ms on %s only", i ? "," : "", 1e3 * flops / loads[i].speed, loads[i].device);
    fprintf(stderr, ", at least %.3g ms with this placement\n", 1e3 * step_seconds);
}

void cli_warn_unequal_devices(const tu_program *program, int threads, double timeout) {
    struct device_load loads[MAX_DEVICES];
    size_t count = count_work(program, loads);
    if (!can_measure(loads, count)) return;
    for (size_t i = 0; i < count; i++)
        if (measure_device(loads[i].device, threads, timeout, &loads[i].speed) != TU_OK) {
            fprintf(stderr, "tutti: cannot measure the speed of %s: %s\n", loads[i].device, tu_message());
            return;
        }
    warn_if_slower(loads, count);
}
