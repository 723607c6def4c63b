/* Unequal devices: a warning before somebody waits for the slow one.
 *
 * Devices that share a step wait for each other, so a slow one can make two slower than the fast one alone. How fast each
 * is, is measured, not looked up: a chain of products of 512 x 512 matrices, for about 20 ms. The time of a program is then
 * predicted from the operations its kernels count. That is a guess, and said to be one: products run near the measured
 * rate, pointwise work does not, and copies are left out. */
#include "cli/speeds.h"

#include <stdio.h>
#include <string.h>

#include <tutti/ops.h>

#include "cli/clock.h"

enum { MAX_DEVICES = 64, SIDE = 512, CHAIN = 4 };

static const double unequal = 1.5, calibration_seconds = 0.02;

/* ---- One device ---- */

static tu_status time_product(tu_program *program, tu_state *state, double *flops_per_second) {
    float sum;
    TU_TRY(tu_run(program, state, 0, NULL, (void *[]){&sum})); /* what is set up once is not counted */
    double began = cli_now(), elapsed;
    int runs = 0;
    do {
        TU_TRY(tu_run(program, state, 0, NULL, (void *[]){&sum}));
        runs++;
        elapsed = cli_now() - began;
    } while (elapsed < calibration_seconds);
    *flops_per_second = 2.0 * SIDE * SIDE * SIDE * CHAIN * runs / elapsed;
    return TU_OK;
}

static tu_status measure(const char *device, int threads, double *flops_per_second) {
    tu_graph *graph;
    tu_program *program = NULL;
    tu_state *state = NULL;
    TU_TRY(tu_graph_new(&graph));
    tu_value a = tu_variable(graph, "a", TU_F32, TU_SHAPE(SIDE, SIDE), .init = {.kind = TU_INIT_HE_NORMAL}),
             x = a;
    for (int i = 0; i < CHAIN; i++) x = tu_matmul(x, a);
    tu_value sum = tu_mean(x);
    tu_status status =
        tu_compile(graph, &program, .devices = device, .threads = threads, .fetch = &sum, .fetch_count = 1);
    if (status == TU_OK) status = tu_state_new(graph, &state, .seed = 1);
    if (status == TU_OK) status = time_product(program, state, flops_per_second);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(graph);
    return status;
}

/* ---- The program ---- */

struct share {
    const char *device;
    double flops, speed;
};

static size_t count_work(const tu_program *program, struct share shares[MAX_DEVICES]) {
    tu_kernel_report kernel = TU_SIZED(tu_kernel_report);
    size_t count = 0;
    for (size_t i = 0;
         i < tu_program_kernel_count(program) && tu_program_kernel(program, i, &kernel) == TU_OK; i++) {
        size_t at = 0;
        while (at < count && strcmp(shares[at].device, kernel.device) != 0) at++;
        if (at == MAX_DEVICES) return 0;
        if (at == count) shares[count++] = (struct share){.device = kernel.device};
        shares[at].flops += (double)kernel.flops;
    }
    return count;
}

/* Parts of one device are equal to each other: they are not measured. */
static bool measurable(const struct share *shares, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strchr(shares[i].device, '.')) return false;
    return count > 1;
}

static void warn(const struct share *shares, size_t count) {
    double slow = shares[0].speed, fast = slow, all = 0, together = 0;
    for (size_t i = 0; i < count; i++) {
        if (shares[i].speed < slow) slow = shares[i].speed;
        if (shares[i].speed > fast) fast = shares[i].speed;
        all += shares[i].flops;
        double own = shares[i].flops / shares[i].speed;
        if (own > together) together = own;
    }
    if (fast < unequal * slow || together <= all / fast) return; /* no harm in the slow one's share */
    fprintf(stderr, "tutti: the devices are unequal; a step is predicted to compute for");
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "%s %.3g ms on %s alone", i ? "," : "", 1e3 * all / shares[i].speed,
                shares[i].device);
    fprintf(stderr, ", at least %.3g ms on all together as placed\n", 1e3 * together);
}

void speeds_warn(const tu_program *program, int threads) {
    struct share shares[MAX_DEVICES];
    size_t count = count_work(program, shares);
    if (!measurable(shares, count)) return;
    for (size_t i = 0; i < count; i++)
        if (measure(shares[i].device, threads, &shares[i].speed) != TU_OK) {
            fprintf(stderr, "tutti: %s could not be measured: %s\n", shares[i].device, tu_message());
            return;
        }
    warn(shares, count);
}
