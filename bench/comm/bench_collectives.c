/* Compares collectives between logical devices of one CPU or GPU with a plain copy.
 *
 *     bench_collectives [LIST [MEGABYTES [ROUNDS]]]      defaults: cpu:0/2, 25, 100
 *
 * The longer one of a rank's input and result is a vector of MEGABYTES: the input of a reduce_scatter, the result of an
 * all_gather, both of the others. The first GB/s column is its size divided by the time until all ranks have the
 * result. The next column compares it with one copy of such a vector, made by the same cores together (each copies
 * its chunk with memcpy) or by the GPU. The ranks share one memory, however: an all-reduce of R ranks reads and writes
 * R vectors, the copy only one. The last two columns therefore count all bytes read and written, which shows how well
 * the memory bandwidth is used. "in place" is an all-reduce that overwrites its operands, as nearly all collectives of
 * the engine do.
 *
 * All kinds run alternately, ROUNDS times; the table has the minimum times, which other load on the machine
 * affects least. Caches are not cleared between rounds: vectors stay in the caches if they fit, like gradients
 * after a backward pass. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../measure.h"

#include "base/parallel.h"
#include "comm/comm.h"
#include "comm/communicator.h"
#include "device/device.h"

enum { MAX_RANKS = 16, MAX_ROUNDS = 1000, IN_PLACE = 4, COPY = 5, KINDS = 6 };

static const char *const titles[KINDS] = {"all_reduce", "reduce_scatter", "all_gather",
                                          "broadcast",  "in place",       "copy"};

static struct {
    size_t ranks;
    tu__device *devices[MAX_RANKS];
    const void *in[MAX_RANKS];
    void *out[MAX_RANKS];
    size_t bytes;
    int rounds;
    tu__communicator communicators[COPY];        /* per kind */
    tu_queue *queues[MAX_RANKS];                 /* of GPUs */
    tu_executable *executables[COPY][MAX_RANKS]; /* of GPUs, per kind */
    double seconds[KINDS][MAX_ROUNDS];
    atomic_uint arrived; /* of the spinning barrier */
} bench;

/* ---- Communicators ---- */

static void connect_kind(int kind) {
    tu__communicator *c = &bench.communicators[kind];
    tu__collective_kind collective = kind == IN_PLACE ? TU__ALL_REDUCE : (tu__collective_kind)kind;
    size_t elements = bench.bytes / sizeof(float);
    if (collective == TU__ALL_GATHER) elements /= bench.ranks;
    const tu_type type = {TU_F32, TU_SHAPE((int64_t)elements)};
    must(tu__communicator_new(c, collective, 0, (uint32_t)bench.ranks, 1, &type));
    for (uint32_t r = 0; r < bench.ranks; r++)
        tu__communicator_register(c, r, 0, kind == IN_PLACE ? bench.out[r] : bench.in[r], bench.out[r]);
    must(tu__communicator_connect(c));
}

/* ---- CPU: one thread per device ---- */

/* Waits until all ranks have called it; spins. */
static void wait_for_all_ranks(unsigned *generation) {
    unsigned target = ++*generation * (unsigned)bench.ranks;
    atomic_fetch_add(&bench.arrived, 1);
    while (atomic_load(&bench.arrived) < target)
        ;
}

/* Copies the rank's chunk of one vector. */
static void copy_chunk(uint32_t rank) {
    size_t first = bench.bytes / bench.ranks * rank, last = bench.bytes / bench.ranks * (rank + 1);
    memcpy((char *)bench.out[0] + first, (const char *)bench.in[0] + first, last - first);
}

static void run_rank(int kind, uint32_t rank) {
    if (kind == COPY)
        copy_chunk(rank);
    else
        tu__local_combine(tu__communicator_of_rank(&bench.communicators[kind], rank));
}

static void *rank_thread(void *argument) {
    uint32_t rank = *(const uint32_t *)argument;
    const tu__device *d = bench.devices[rank];
    unsigned generation = 0;
    must(tu__device_pin_thread(d));
    tu__parallel_set_threads(d->threads);
    for (int round = -2; round < bench.rounds; round++) /* the first two warm up */
        for (int kind = 0; kind < KINDS; kind++) {
            wait_for_all_ranks(&generation);
            double start = seconds_now();
            run_rank(kind, rank);
            wait_for_all_ranks(&generation);
            if (rank == 0 && round >= 0) bench.seconds[kind][round] = seconds_now() - start;
        }
    return NULL;
}

static void run_on_host(void) {
    pthread_t threads[MAX_RANKS];
    uint32_t rank_indices[MAX_RANKS];
    for (uint32_t r = 0; r < bench.ranks; r++) {
        rank_indices[r] = r;
        if (pthread_create(&threads[r], NULL, rank_thread, &rank_indices[r]) != 0) exit(2);
    }
    for (uint32_t r = 0; r < bench.ranks; r++) pthread_join(threads[r], NULL);
}

/* ---- GPU: one thread launches all ranks ---- */

static void build_kind(int kind) {
    for (uint32_t r = 0; r < bench.ranks; r++) {
        const tu__device *d = bench.devices[r];
        if (!bench.queues[r]) must(d->api->queue_new(d->instance, 0, &bench.queues[r]));
        const tu_collective what = {.struct_size = sizeof what,
                                    .count = 1,
                                    .combinations = tu__communicator_of_rank(&bench.communicators[kind], r)};
        must(d->api->build_collective(d->instance, bench.queues[r], &what, &bench.executables[kind][r]));
    }
}

static void run_kind_on_gpu(int kind) {
    tu__device *first = bench.devices[0];
    bool done;
    if (kind == COPY) {
        must(tu__device_copy(first, bench.out[0], first, bench.in[0], bench.bytes));
        return;
    }
    for (uint32_t r = 0; r < bench.ranks; r++)
        must(bench.devices[r]->api->launch(bench.devices[r]->instance, bench.executables[kind][r], 0, 1));
    for (uint32_t r = 0; r < bench.ranks; r++)
        must(bench.devices[r]->api->synchronize(bench.queues[r], TU_ALL_EVENTS, -1, &done));
}

static void run_on_gpu(void) {
    for (int kind = 0; kind < COPY; kind++) build_kind(kind);
    for (int round = -2; round < bench.rounds; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            double start = seconds_now();
            run_kind_on_gpu(kind);
            if (round >= 0) bench.seconds[kind][round] = seconds_now() - start;
        }
}

/* ---- Results ---- */

static double minimum(const double *values) {
    double found = values[0];
    for (int i = 1; i < bench.rounds; i++) found = values[i] < found ? values[i] : found;
    return found;
}

/* Returns the number of vectors that all ranks together read and write. */
static double vectors_moved(int kind) {
    double ranks = (double)bench.ranks;
    switch (kind) {
    case COPY: return 2;
    case TU__REDUCE_SCATTER: /* reads a whole vector per rank, writes one in all; an all_gather the reverse */
    case TU__ALL_GATHER:
    case TU__BROADCAST: return ranks + 1;
    default: return 2 * ranks;
    }
}

static void print_kind(int kind) {
    double seconds = minimum(bench.seconds[kind]), copy = minimum(bench.seconds[COPY]);
    double moved = vectors_moved(kind);
    printf("%-16s %10.3f %10.2f %12.1f %12.2f %12.1f\n", titles[kind], 1e3 * seconds,
           1e-9 * (double)bench.bytes / seconds, 100 * copy / seconds,
           1e-9 * moved * (double)bench.bytes / seconds, 100 * moved / 2 * copy / seconds);
}

static void print_table(const char *list) {
    printf("%zu ranks of %s, %.1f MB each, f32, minimum of %d rounds\n", bench.ranks, list,
           1e-6 * (double)bench.bytes, bench.rounds);
    printf("%-16s %10s %10s %12s %12s %12s\n", "", "ms", "GB/s", "% of copy", "total GB/s", "% of copy");
    for (int kind = 0; kind < KINDS; kind++) print_kind(kind);
}

static void allocate_vectors(void) {
    float *zeros = calloc(bench.bytes, 1);
    for (size_t r = 0; zeros && r < bench.ranks; r++) {
        const tu__device *d = bench.devices[r];
        void *in;
        must(d->api->allocate(d->instance, false, bench.bytes, &in));
        must(d->api->allocate(d->instance, false, bench.bytes, &bench.out[r]));
        must(tu__upload(d, in, zeros, bench.bytes));
        must(tu__upload(d, bench.out[r], zeros, bench.bytes));
        bench.in[r] = in;
    }
    free(zeros);
}

int main(int argc, char **argv) {
    const char *list = argc > 1 ? argv[1] : "cpu:0/2";
    double megabytes = argc > 2 ? atof(argv[2]) : 25;
    bench.rounds = argc > 3 ? atoi(argv[3]) : 100;
    if (!(megabytes > 0 && megabytes < 65536) || bench.rounds < 1 || bench.rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: bench_collectives [LIST [MEGABYTES [ROUNDS]]] (ROUNDS: at most %d)\n",
                MAX_ROUNDS);
        return 2;
    }
    must(tu__devices_open(list, NULL, MAX_RANKS, bench.devices, &bench.ranks));
    bench.bytes = (size_t)(megabytes * 1e6) & ~(size_t)1023;
    bench.bytes -= bench.bytes % (1024 * bench.ranks); /* the ranks have equally many rows */
    bool host = bench.devices[0]->api->host_memory;
    if (!host && !bench.devices[0]->api->build_collective) {
        fprintf(stderr, "bench_collectives: device %s has no collectives\n", list);
        return 2;
    }
    allocate_vectors();
    for (int kind = 0; kind < COPY; kind++) connect_kind(kind);
    if (host)
        run_on_host();
    else
        run_on_gpu();
    print_table(list);
    return 0;
}
