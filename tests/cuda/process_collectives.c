/* Collectives over the GPUs of several processes (build_collective with `processes`), compared with host memory: kinds x
 * element types x sizes, in place and not, one value and several, one and two GPUs per process.
 *
 *     mpirun -n 4 build/release/tests/process_collectives [MEBIBYTES [real|emulated [TYPE]]]
 *
 * Prints a table for each kind; exits with 1 if any byte differs. MEBIBYTES is the largest size of an input or result (default
 * 64). All processes use parts of one GPU. Integers are exact, whatever the order of additions; for random numbers the bits must
 * be those of the sum in host memory, pairwise in the order of ranks, also if bf16 and f16 are rounded after each host
 * (node_size). TYPE selects one type. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/number.h"
#include "comm/comm.h"
#include "comm/communicator.h"
#include "comm/process_group.h"
#include "cuda/emulated.h"
#include "device/device.h"

enum { MAX_LOCAL = 2, MAX_RANKS = 16, VALUES = 3, UNTOUCHED = 0x55 };

static struct {
    tu_process_group *group;
    tu_processes processes;
    uint32_t local;
    tu__device *devices[MAX_LOCAL];
    tu_queue *queue;
    uint64_t differences;
    const char *only_type; /* NULL: all */
} run;

static void must(tu_status status) {
    if (status == TU_OK) return;
    fprintf(stderr, "process_collectives: rank %u: %s\n", run.group ? run.group->info.rank : 0, tu_message());
    if (run.group) tu_process_group_fail(run.group, TU_DEVICE, tu_message());
    exit(2);
}

static void end_process(void *context, tu_status cause, const char *message) {
    (void)context;
    (void)cause;
    fprintf(stderr, "process_collectives: %s\n", message);
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

typedef struct collective_case {
    tu__collective_kind kind;
    tu_dtype dtype;
    uint32_t root; /* a rank of all processes */
    uint32_t node_size;
    bool is_in_place, is_random;
    uint32_t values;
    size_t in[VALUES], out[VALUES]; /* elements of each value, in the input and the result of a rank */
} collective_case;

static uint32_t all_ranks(void) {
    return run.processes.size * run.local;
}

static bool has_rows(tu__collective_kind kind) {
    return kind == TU__REDUCE_SCATTER || kind == TU__ALL_GATHER;
}

static bool is_sum(tu__collective_kind kind) {
    return kind != TU__ALL_GATHER && kind != TU__BROADCAST;
}

static size_t total(const collective_case *c, const size_t *elements) {
    size_t sum = 0;
    for (uint32_t v = 0; v < c->values; v++) sum += elements[v];
    return sum;
}

/* Divides `elements`, those of the larger of input and result, into values at addresses that are not aligned to words. */
static void divide(collective_case *c, size_t elements, uint32_t values) {
    size_t left = elements;
    c->values = values;
    for (uint32_t v = 0; v < values; v++) {
        size_t part = v + 1 == values ? left : elements / 7 + (v == 0 && elements > 8);
        left -= part;
        if (has_rows(c->kind)) part -= part % all_ranks();
        c->in[v] = c->kind == TU__ALL_GATHER ? part / all_ranks() : part;
        c->out[v] = c->kind == TU__REDUCE_SCATTER ? part / all_ranks() : part;
    }
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ x >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return x ^ x >> 33;
}

/* The value of an element of a rank: an integer of at most 16, so that all sums are exact, or a random number. */
static double value_of(const collective_case *c, uint32_t rank, size_t element) {
    uint64_t bits = mix(element * MAX_RANKS * 3 + rank + 1);
    if (c->dtype == TU_BOOL) return (double)(bits % 2);
    if (!tu_dtype_is_float(c->dtype)) return (double)(bits % 17);
    return c->is_random ? ldexp((double)(bits >> 11) + 1, (int)(bits % 8) - 56) - 0.4
                        : (double)(int64_t)(bits % 17) - 8;
}

static char *new_input(const collective_case *c, uint32_t rank) {
    size_t elements = total(c, c->in);
    char *values = malloc(elements * tu_dtype_size(c->dtype) + 64);
#pragma omp parallel for if (elements > 4 << 20)
    for (size_t i = 0; i < elements; i++) tu__store(c->dtype, values, (int64_t)i, value_of(c, rank, i));
    return values;
}

static void add(const collective_case *c, uint32_t count, char *const *in, void *out) {
    tu__local_add(c->dtype, count, (const void *const *)in, total(c, c->in), out);
}

/* Adds the inputs of all ranks as the host does: the local ranks, the processes of a node, the nodes. */
static char *new_sum(const collective_case *c) {
    uint32_t size = run.processes.size, nodes = size / c->node_size;
    char *values[MAX_RANKS] = {NULL}, *local[MAX_LOCAL] = {NULL}, *firsts[MAX_RANKS];
    for (uint32_t r = 0; r < size; r++) {
        for (uint32_t k = 0; k < run.local; k++) local[k] = new_input(c, r * run.local + k);
        values[r] = malloc(total(c, c->in) * tu_dtype_size(c->dtype) + 64);
        add(c, run.local, local, values[r]);
        for (uint32_t k = 0; k < run.local; k++) free(local[k]);
    }
    for (uint32_t n = 0; n < nodes; n++)
        add(c, c->node_size, values + n * c->node_size, values[n * c->node_size]);
    for (uint32_t n = 0; n < nodes; n++) firsts[n] = values[n * c->node_size];
    add(c, nodes, firsts, values[0]);
    for (uint32_t r = 1; r < size; r++) free(values[r]);
    return values[0];
}

/* Copies `count` elements. */
static void copy_elements(const collective_case *c, char *to, size_t first, const char *from,
                          size_t from_first, size_t count) {
    size_t size = tu_dtype_size(c->dtype);
    memcpy(to + first * size, from + from_first * size, count * size);
}

/* The results of a rank of this process: of all rows (`sum`), its own rows, or the rows of all ranks. */
static char *new_expected(const collective_case *c, uint32_t rank, const char *sum) {
    size_t in = 0, out = 0;
    char *expected = malloc(total(c, c->out) * tu_dtype_size(c->dtype) + 64);
    memset(expected, UNTOUCHED, total(c, c->out) * tu_dtype_size(c->dtype));
    char *from = c->kind == TU__BROADCAST ? new_input(c, c->root) : NULL;
    for (uint32_t v = 0; v < c->values; in += c->in[v], out += c->out[v], v++) {
        switch (c->kind) {
        case TU__ALL_REDUCE: copy_elements(c, expected, out, sum, in, c->in[v]); break;
        case TU__REDUCE:
            if (rank == c->root) copy_elements(c, expected, out, sum, in, c->in[v]);
            break;
        case TU__REDUCE_SCATTER:
            copy_elements(c, expected, out, sum, in + rank * c->out[v], c->out[v]);
            break;
        case TU__BROADCAST: copy_elements(c, expected, out, from, in, c->in[v]); break;
        case TU__ALL_GATHER:
            for (uint32_t r = 0; r < all_ranks(); r++) {
                char *rows = new_input(c, r);
                copy_elements(c, expected, out + r * c->in[v], rows, in, c->in[v]);
                free(rows);
            }
            break;
        }
    }
    free(from);
    return expected;
}

/* ---- On the GPU ---- */

static const tu_device_api *api(void) {
    return run.devices[0]->api;
}

static void wait_for_queue(void) {
    for (bool done = false; !done;) {
        must(api()->synchronize(run.queue, TU_ALL_EVENTS, 0, &done));
        must(check(run.group));
    }
}

/* Connects the buffers of the local ranks, as the engine does. */
static void connect_ranks(const collective_case *c, char *const *in, char *const *out, tu__communicator *to) {
    tu_type types[VALUES];
    size_t size = tu_dtype_size(c->dtype), first_in = 0, first_out = 0;
    for (uint32_t v = 0; v < c->values; v++) types[v] = (tu_type){c->dtype, TU_SHAPE((int64_t)c->in[v])};
    must(tu__communicator_new(to, c->kind, c->root, run.local, c->values, types));
    tu__communicator_span(to, run.processes.rank * run.local, all_ranks());
    for (uint32_t v = 0; v < c->values; first_in += c->in[v], first_out += c->out[v], v++)
        for (uint32_t r = 0; r < run.local; r++)
            tu__communicator_register(to, r, v, in[r] + first_in * size, out[r] + first_out * size);
    must(tu__communicator_connect(to));
}

/* Builds the collective, and launches it `times` times. Returns the milliseconds of the last launch. */
static double launch(const collective_case *c, char *const *in, char *const *out, int times) {
    tu__communicator communicator;
    tu_route routes[MAX_RANKS];
    struct timespec start = {0}, end = {0};
    connect_ranks(c, in, out, &communicator);
    uint32_t portions = tu__communicator_portion_count(&communicator);
    for (uint32_t i = 0; i < portions; i++) {
        uint32_t root = tu__communicator_rank_of_portion(&communicator, i) / run.local;
        routes[i] =
            (tu_route){is_sum(c->kind) ? TU_ALL_PROCESSES : root, is_sum(c->kind) ? root : TU_ALL_PROCESSES};
    }
    const tu_collective what = {.struct_size = sizeof what,
                                .count = portions * communicator.combination_count,
                                .combinations = communicator.combinations,
                                .processes = &run.processes,
                                .routes = c->kind == TU__ALL_REDUCE ? NULL : routes};
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
    tu__communicator_free(&communicator);
    return 1e3 * (double)(end.tv_sec - start.tv_sec) + 1e-6 * (double)(end.tv_nsec - start.tv_nsec);
}

static char *new_buffer(uint32_t device, size_t bytes, int fill) {
    void *address, *host = malloc(bytes + 64);
    must(api()->allocate(run.devices[device]->instance, false, bytes + 64, &address));
    memset(host, fill, bytes + 64);
    if (bytes) must(tu__upload(run.devices[device], address, host, bytes));
    free(host);
    return address;
}

/* A rank without a result: in place, it keeps what it had. */
static bool keeps_input(const collective_case *c, uint32_t rank) {
    return c->is_in_place && c->kind == TU__REDUCE && rank != c->root;
}

static void check_rank(const collective_case *c, uint32_t device, const char *out, const char *sum) {
    uint32_t rank = run.processes.rank * run.local + device;
    size_t bytes = total(c, c->out) * tu_dtype_size(c->dtype);
    char *expected = keeps_input(c, rank) ? new_input(c, rank) : new_expected(c, rank, sum),
         *got = malloc(bytes + 64);
    if (bytes) must(tu__download(run.devices[device], got, out, bytes));
    for (size_t i = 0; i < bytes; i++) run.differences += got[i] != expected[i];
    free(got);
    free(expected);
}

static double run_case(const collective_case *c, int times) {
    size_t in_bytes = total(c, c->in) * tu_dtype_size(c->dtype),
           out_bytes = total(c, c->out) * tu_dtype_size(c->dtype);
    char *in[MAX_LOCAL] = {NULL}, *out[MAX_LOCAL] = {NULL};
    for (uint32_t k = 0; k < run.local; k++) {
        char *values = new_input(c, run.processes.rank * run.local + k);
        in[k] = out[k] = new_buffer(k, in_bytes, UNTOUCHED);
        if (!c->is_in_place) out[k] = new_buffer(k, out_bytes, UNTOUCHED);
        if (in_bytes) must(tu__upload(run.devices[k], in[k], values, in_bytes));
        free(values);
    }
    double ms = launch(c, in, out, c->is_in_place ? 1 : times);
    char *sum = is_sum(c->kind) ? new_sum(c) : NULL;
    for (uint32_t k = 0; k < run.local; k++) {
        check_rank(c, k, out[k], sum);
        api()->release(run.devices[k]->instance, in[k]);
        if (!c->is_in_place) api()->release(run.devices[k]->instance, out[k]);
    }
    free(sum);
    return ms;
}

/* ---- Cases ---- */

static const tu_dtype types[] = {TU_F64, TU_F32, TU_BF16, TU_F16, TU_I64, TU_I32, TU_U8, TU_BOOL, TU_I8};

static const tu__collective_kind kinds[] = {TU__ALL_REDUCE, TU__REDUCE_SCATTER, TU__ALL_GATHER, TU__BROADCAST,
                                            TU__REDUCE};

/* Returns the number of bytes that differ in any process, for one kind, type and size. */
static uint64_t run_cases(tu__collective_kind kind, tu_dtype dtype, size_t bytes, double *ms) {
    size_t elements = bytes / tu_dtype_size(dtype);
    bool is_large = bytes > 4 << 20;
    collective_case c = {.kind = kind,
                         .dtype = dtype,
                         .root = (uint32_t)(bytes / 8 % all_ranks()),
                         .node_size = run.processes.node_size};
    uint64_t all[MAX_RANKS], sum = 0;
    run.differences = 0;
    divide(&c, elements, 1);
    *ms = run_case(&c, 3);
    divide(&c, elements, VALUES);
    c.is_random = true;
    c.is_in_place = !has_rows(kind);
    run_case(&c, 1);
    if (!is_large && is_sum(kind) && run.processes.size % 2 == 0) { /* as if each host had two processes */
        run.processes.node_size = c.node_size = run.processes.size > 2 ? 2 : 1;
        run_case(&c, 1);
        run.processes.node_size = run.group->node_size;
    }
    must(tu_process_group_gather(run.group, &run.differences, sizeof run.differences, all));
    for (uint32_t r = 0; r < run.processes.size; r++) sum += all[r];
    return sum;
}

static bool is_selected(tu__collective_kind kind, tu_dtype dtype) {
    if (run.only_type && strcmp(run.only_type, tu_dtype_name(dtype)) != 0) return false;
    return !is_sum(kind) || tu_dtype_is_float(dtype);
}

static uint64_t run_size(tu__collective_kind kind, size_t bytes) {
    uint64_t failures = 0;
    bool prints = run.processes.rank == 0;
    if (prints) printf("%10zu", bytes);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        double ms;
        if (!is_selected(kind, types[t])) continue;
        uint64_t differences = run_cases(kind, types[t], bytes, &ms);
        if (prints && differences) printf("  %llu DIFFER", (unsigned long long)differences);
        if (prints && !differences) printf("  %6.2f ms", ms);
        failures += differences > 0;
    }
    if (prints) printf("\n");
    fflush(stdout);
    return failures;
}

static void print_title(tu__collective_kind kind) {
    printf("%s, milliseconds\n     bytes", tu__collective_name(kind));
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        if (is_selected(kind, types[t])) printf("  %9s", tu_dtype_name(types[t]));
    printf("\n");
}

/* ---- The program ---- */

static uint64_t run_sizes(tu__collective_kind kind, size_t max_bytes) {
    const size_t sizes[] = {0,      8,       24,      1000,         65528,    65536,   65544,
                            100008, 1 << 20, 4 << 20, 4 << 20 | 72, 40 << 20, 64 << 20};
    uint64_t failures = 0;
    if (run.processes.rank == 0) print_title(kind);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] <= max_bytes) failures += run_size(kind, sizes[i]);
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
    uint64_t failures = 0;
    if (run.processes.rank == 0)
        printf("%u processes with %u part%s of the GPU each\n", run.processes.size, local,
               local > 1 ? "s" : "");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) failures += run_sizes(kinds[k], max_bytes);
    api()->queue_free(run.devices[0]->instance, run.queue);
    api()->executable_free(run.devices[0]->instance, connection);
    tu__devices_close(count, run.devices);
    return failures;
}

int main(int argc, char **argv) {
    size_t max_bytes = (size_t)((argc > 1 ? atof(argv[1]) : 64) * (1 << 20));
    if (argc > 2 && strcmp(argv[2], "emulated") == 0) use_emulated_gpu();
    if (argc > 3) run.only_type = argv[3];
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
    if (failures && g->info.rank == 0)
        printf("FAILED: %llu collectives differ\n", (unsigned long long)failures);
    tu_process_group_close(run.group);
    return failures > 0;
}
