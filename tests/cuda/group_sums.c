/* Sums over the GPUs of several processes (build_collective with `processes`), compared with sums in host memory:
 * element types x sizes, in place and not, one value and several, one and two GPUs per process.
 *
 *     mpirun -n 4 build/release/tests/group_sums [MEBIBYTES [emulated]]
 *
 * Prints a table; exits with 1 if any element differs. MEBIBYTES is the largest size (default 64). All processes use
 * parts of one GPU. Integers are exact, whatever the order of additions; for random numbers the bits must be those of the
 * sum in host memory, pairwise in the order of ranks, also if bf16 and f16 are rounded after each host (node_size). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/number.h"
#include "comm/comm.h"
#include "comm/process_group.h"
#include "cuda/emulated.h"
#include "device/device.h"

enum { MAX_LOCAL = 2, MAX_RANKS = 16, SEGMENTS = 3 };

static struct {
    tu_process_group *group;
    tu_processes processes;
    uint32_t local;
    tu__device *devices[MAX_LOCAL];
    tu_queue *queue;
    uint64_t differences;
} run;

static void must(tu_status status) {
    if (status == TU_OK) return;
    fprintf(stderr, "group_sums: rank %u: %s\n", run.group ? run.group->info.rank : 0, tu_message());
    if (run.group) tu_process_group_fail(run.group, TU_DEVICE, tu_message());
    exit(2);
}

static void end_process(void *context, tu_status cause, const char *message) {
    (void)context;
    (void)cause;
    fprintf(stderr, "group_sums: %s\n", message);
    _Exit(4);
}

static tu_status gather(void *group, const void *mine, size_t bytes, void *all) {
    return tu_process_group_gather(group, mine, bytes, all);
}

static tu_status check(void *group) {
    return tu__group_check(group);
}

static void progress(void *group) {
    (void)group;
}

/* ---- Values ---- */

typedef struct sum_case {
    tu_dtype dtype;
    size_t elements;
    bool has_segments, is_in_place, is_random;
    uint32_t node_size;
} sum_case;

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ x >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return x ^ x >> 33;
}

/* The value of an element of a rank: an integer of at most 8, so that all sums are exact, or a random number. */
static double value_of(const sum_case *c, uint32_t rank, size_t element) {
    uint64_t bits = mix(element * MAX_RANKS * 3 + rank + 1);
    return c->is_random ? ldexp((double)(bits >> 11) + 1, (int)(bits % 8) - 56) - 0.4
                        : (double)(int64_t)(bits % 17) - 8;
}

static void fill(const sum_case *c, uint32_t rank, void *values) {
    for (size_t i = 0; i < c->elements; i++) tu__store(c->dtype, values, (int64_t)i, value_of(c, rank, i));
}

static void add(const sum_case *c, uint32_t count, char *const *in, void *out) {
    tu__local_add(c->dtype, count, (const void *const *)in, c->elements, out);
}

/* Adds the values of all ranks as the host does: the local ranks, the processes of a node, the nodes. */
static void add_on_host(const sum_case *c, char *sum) {
    uint32_t size = run.processes.size, nodes = size / c->node_size;
    size_t bytes = c->elements * tu_dtype_size(c->dtype) + 64;
    char *values[MAX_RANKS] = {NULL}, *local[MAX_LOCAL] = {NULL};
    for (uint32_t k = 0; k < run.local; k++) local[k] = malloc(bytes);
    for (uint32_t r = 0; r < size; r++) {
        for (uint32_t k = 0; k < run.local; k++) fill(c, r * run.local + k, local[k]);
        values[r] = malloc(bytes);
        add(c, run.local, local, values[r]);
    }
    for (uint32_t n = 0; n < nodes; n++)
        add(c, c->node_size, values + n * c->node_size, values[n * c->node_size]);
    char *firsts[MAX_RANKS];
    for (uint32_t n = 0; n < nodes; n++) firsts[n] = values[n * c->node_size];
    add(c, nodes, firsts, sum);
    for (uint32_t r = 0; r < size; r++) free(values[r]);
    for (uint32_t k = 0; k < run.local; k++) free(local[k]);
}

/* ---- On the GPU ---- */

static const tu_device_api *api(void) {
    return run.devices[0]->api;
}

/* The segments of a case: all elements, or three runs of them at addresses that are not aligned to words. */
static uint32_t make_segments(const sum_case *c, char *const *in, char *const *out, const void **in_list,
                              void **out_list, tu_combine_segment *segments) {
    size_t first = 0, size = tu_dtype_size(c->dtype);
    uint32_t count = c->has_segments ? SEGMENTS : 1;
    for (uint32_t s = 0; s < count; s++) {
        size_t elements =
            s + 1 == count ? c->elements - first : c->elements / 7 + (s == 0 && c->elements > 8);
        for (uint32_t k = 0; k < run.local; k++) {
            in_list[s * run.local + k] = in[k] + first * size;
            out_list[s * run.local + k] = out[k] + first * size;
        }
        segments[s] = (tu_combine_segment){in_list + s * run.local, out_list + s * run.local, elements};
        first += elements;
    }
    return count;
}

static void wait_for_queue(void) {
    for (bool done = false; !done;) {
        must(api()->synchronize(run.queue, TU_ALL_EVENTS, 0, &done));
        must(check(run.group));
    }
}

/* Builds the collective, and launches it `times` times. Returns the milliseconds of the last launch. */
static double launch(const sum_case *c, char *const *in, char *const *out, int times) {
    const void *in_list[SEGMENTS * MAX_LOCAL];
    void *out_list[SEGMENTS * MAX_LOCAL];
    tu_combine_segment segments[SEGMENTS];
    struct timespec start = {0}, end = {0};
    uint32_t count = make_segments(c, in, out, in_list, out_list, segments);
    const tu_combination combination = {sizeof combination, c->dtype, run.local, run.local, count, segments};
    const tu_collective what = {sizeof what, 1, &combination, &run.processes};
    tu_executable *built;
    must(api()->build_collective(run.devices[0]->instance, run.queue, &what, &built));
    for (int i = 0; i < times; i++) {
        char byte = 0, bytes[MAX_RANKS];
        must(tu_process_group_gather(run.group, &byte, 1, bytes)); /* all begin together */
        clock_gettime(CLOCK_MONOTONIC, &start);
        must(api()->launch(run.devices[0]->instance, built, 0, 1));
        wait_for_queue();
        clock_gettime(CLOCK_MONOTONIC, &end);
    }
    api()->executable_free(run.devices[0]->instance, built);
    return 1e3 * (double)(end.tv_sec - start.tv_sec) + 1e-6 * (double)(end.tv_nsec - start.tv_nsec);
}

static double run_case(const sum_case *c, int times) {
    size_t bytes = c->elements * tu_dtype_size(c->dtype);
    char *in[MAX_LOCAL] = {NULL}, *out[MAX_LOCAL] = {NULL}, *host = malloc(bytes + 64),
         *expected = malloc(bytes + 64);
    for (uint32_t k = 0; k < run.local; k++) {
        void *address;
        must(api()->allocate(run.devices[k]->instance, false, bytes + 64, &address));
        in[k] = out[k] = address;
        if (!c->is_in_place) {
            must(api()->allocate(run.devices[k]->instance, false, bytes + 64, &address));
            out[k] = address;
        }
        fill(c, run.processes.rank * run.local + k, host);
        if (bytes) must(tu__upload(run.devices[k], in[k], host, bytes));
    }
    double ms = launch(c, in, out, c->is_in_place ? 1 : times);
    add_on_host(c, expected);
    for (uint32_t k = 0; k < run.local; k++) {
        if (bytes) must(tu__download(run.devices[k], host, out[k], bytes));
        for (size_t i = 0; i < bytes; i++) run.differences += host[i] != expected[i];
        api()->release(run.devices[k]->instance, in[k]);
        if (!c->is_in_place) api()->release(run.devices[k]->instance, out[k]);
    }
    free(host);
    free(expected);
    return ms;
}

/* ---- Cases ---- */

static const struct {
    tu_dtype dtype;
    const char *name;
} types[] = {{TU_F64, "f64"}, {TU_F32, "f32"}, {TU_BF16, "bf16"}, {TU_F16, "f16"}};

/* Returns the number of bytes that differ in any process, for one type and size. */
static uint64_t run_cases(tu_dtype dtype, size_t bytes, double *ms) {
    bool is_large = bytes > 4 << 20;
    sum_case c = {
        .dtype = dtype, .elements = bytes / tu_dtype_size(dtype), .node_size = run.processes.node_size};
    uint64_t all[MAX_RANKS], total = 0;
    run.differences = 0;
    *ms = run_case(&c, 3);
    c.is_in_place = c.has_segments = c.is_random = true;
    run_case(&c, 1);
    if (!is_large && run.processes.size % 2 == 0) { /* as if each host had two processes */
        run.processes.node_size = c.node_size = run.processes.size > 2 ? 2 : 1;
        run_case(&c, 1);
        run.processes.node_size = run.group->node_size;
    }
    must(tu_process_group_gather(run.group, &run.differences, sizeof run.differences, all));
    for (uint32_t r = 0; r < run.processes.size; r++) total += all[r];
    return total;
}

static uint64_t run_size(size_t bytes) {
    uint64_t failures = 0;
    bool prints = run.processes.rank == 0;
    if (prints) printf("%10zu", bytes);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        double ms;
        uint64_t differences = run_cases(types[t].dtype, bytes, &ms);
        if (prints && differences) printf("  %llu DIFFER", (unsigned long long)differences);
        if (prints && !differences) printf("  %9.2f ms", ms);
        failures += differences > 0;
    }
    if (prints) printf("\n");
    fflush(stdout);
    return failures;
}

/* ---- The program ---- */

static uint64_t run_sizes(size_t max_bytes) {
    const size_t sizes[] = {0,     8,      24,      1000,    65528,        65536,
                            65544, 100008, 1 << 20, 4 << 20, 4 << 20 | 72, 64 << 20};
    uint64_t failures = 0;
    if (run.processes.rank == 0)
        printf(
            "%u processes with %u part%s of the GPU each: milliseconds of a sum\n     bytes  %12s  %12s  %12s  %12s\n",
            run.processes.size, run.local, run.local > 1 ? "s" : "", "f64", "f32", "bf16", "f16");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] <= max_bytes) failures += run_size(sizes[i]);
    return failures;
}

/* Runs all cases with `local` GPUs in each process. */
static uint64_t run_with(uint32_t local, size_t max_bytes) {
    char list[128] = "";
    size_t count;
    tu_executable *connection;
    run.local = local;
    for (uint32_t k = 0; k < local; k++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%sgpu:0.%u/%u", k ? "," : "",
                 run.processes.rank * local + k, run.processes.size * local);
    must(tu__devices_open(list, NULL, MAX_LOCAL, run.devices, &count));
    const tu_collective nothing = {.struct_size = sizeof nothing, .processes = &run.processes};
    must(api()->build_collective(run.devices[0]->instance, NULL, &nothing, &connection));
    must(api()->queue_new(run.devices[0]->instance, 0, &run.queue));
    uint64_t failures = run_sizes(max_bytes);
    api()->queue_free(run.devices[0]->instance, run.queue);
    api()->executable_free(run.devices[0]->instance, connection);
    tu__devices_close(count, run.devices);
    return failures;
}

int main(int argc, char **argv) {
    size_t max_bytes = (size_t)((argc > 1 ? atof(argv[1]) : 64) * (1 << 20));
    if (argc > 2 && strcmp(argv[2], "emulated") == 0) use_emulated_gpu();
    setenv("TUTTI_NCCL", "share", 0);
    must(tu_process_group_open(&run.group, .on_failure = end_process));
    const tu_process_group *g = run.group;
    run.processes = (tu_processes){.struct_size = sizeof run.processes,
                                   .rank = g->info.rank,
                                   .size = g->info.size,
                                   .node_size = g->node_size,
                                   .timeout = g->timeout,
                                   .gather = gather,
                                   .check = check,
                                   .progress = progress,
                                   .context = run.group};
    uint64_t failures = run_with(1, max_bytes) + run_with(2, max_bytes < 1 << 20 ? max_bytes : 1 << 20);
    if (failures && g->info.rank == 0) printf("FAILED: %llu sums differ\n", (unsigned long long)failures);
    tu_process_group_close(run.group);
    return failures > 0;
}
