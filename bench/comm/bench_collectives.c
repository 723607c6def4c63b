/* Collectives between the logical devices of one processor or one card, beside plain copies.
 *
 *     bench_collectives [LIST [MEGABYTES [ROUNDS]]]      cpu:0/2, 25 and 100 unless told
 *
 * A collective's GB/s are the bytes of one rank's vector by the time from when all ranks have it until all have the
 * result; they stand beside the bytes of one copy of the same vector by its time, made by the same cores together
 * (each copies its part with memcpy), or by the card's own copy. That is what a user waits for. Ranks on one memory
 * share its bandwidth, though: an all-reduce of R ranks reads and writes R vectors where the copy reads and writes
 * one. What was read and written by the time stands beside the same of the copy in the second pair of columns: how
 * well memory is used. "in place" is an all-reduce whose sums take the place of the shares, as nearly all of the
 * engine's do.
 *
 * All of them in turn, ROUNDS times, and the least time of each: what a machine that others use too can do. Between
 * rounds nothing is cleared: vectors lie in the caches as far as they fit, as gradients do behind a backward pass. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../measure.h"

#include "base/parallel.h"
#include "comm/comm.h"
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
    double seconds[KINDS][MAX_ROUNDS];
    atomic_uint arrived; /* of the spinning barrier */
} bench;

/* ---- The processor: a thread a device ---- */

static void meet(unsigned *turn) {
    unsigned target = ++*turn * (unsigned)bench.ranks;
    atomic_fetch_add(&bench.arrived, 1);
    while (atomic_load(&bench.arrived) < target)
        ;
}

/* The rank's part of one vector that all copy together. */
static void copy_part(uint32_t rank) {
    size_t first = bench.bytes / bench.ranks * rank, last = bench.bytes / bench.ranks * (rank + 1);
    memcpy((char *)bench.out[0] + first, (const char *)bench.in[0] + first, last - first);
}

static void do_part(int kind, uint32_t rank) {
    const tu_combine_segment segment = {kind == IN_PLACE ? (const void *const *)bench.out : bench.in,
                                        bench.out, bench.bytes / sizeof(float)};
    const tu_combination what = {.struct_size = sizeof what,
                                 .dtype = TU_F32,
                                 .ranks = (uint32_t)bench.ranks,
                                 .rank = rank,
                                 .segment_count = 1,
                                 .segments = &segment};
    if (kind == COPY)
        copy_part(rank);
    else
        tu__local_collective(kind == IN_PLACE ? TU__ALL_REDUCE : (tu__collective_kind)kind, 0, &what);
}

static void *play_rank(void *argument) {
    uint32_t rank = *(const uint32_t *)argument;
    const tu__device *d = bench.devices[rank];
    unsigned turn = 0;
    if (d->api->attach) must(d->api->attach(d->instance));
    int threads = 1;
    const char *notice;
    if (d->api->inspect) must(d->api->inspect(d->instance, &threads, &notice));
    tu__parallel_set_width(threads);
    for (int round = -2; round < bench.rounds; round++) /* the first two warm up */
        for (int kind = 0; kind < KINDS; kind++) {
            meet(&turn);
            double began = seconds_now();
            do_part(kind, rank);
            meet(&turn);
            if (rank == 0 && round >= 0) bench.seconds[kind][round] = seconds_now() - began;
        }
    return NULL;
}

static void run_on_host(void) {
    pthread_t threads[MAX_RANKS];
    uint32_t numbers[MAX_RANKS];
    for (uint32_t r = 0; r < bench.ranks; r++) {
        numbers[r] = r;
        if (pthread_create(&threads[r], NULL, play_rank, &numbers[r]) != 0) exit(2);
    }
    for (uint32_t r = 0; r < bench.ranks; r++) pthread_join(threads[r], NULL);
}

/* ---- A card: all ranks from one thread ---- */

static void combine_on_card(bool in_place) {
    const tu_combine_segment segment = {in_place ? (const void *const *)bench.out : bench.in, bench.out,
                                        bench.bytes / sizeof(float)};
    for (uint32_t r = 0; r < bench.ranks; r++) {
        const tu_combination what = {.struct_size = sizeof what,
                                     .dtype = TU_F32,
                                     .ranks = (uint32_t)bench.ranks,
                                     .rank = r,
                                     .segment_count = 1,
                                     .segments = &segment};
        must(bench.devices[r]->api->combine(bench.devices[r]->instance, &what));
    }
    for (uint32_t r = 0; r < bench.ranks; r++)
        must(bench.devices[r]->api->synchronize(bench.devices[r]->instance));
}

static void run_on_card(void) {
    tu__device *first = bench.devices[0];
    for (int round = -2; round < bench.rounds; round++) {
        double times[4];
        times[0] = seconds_now();
        combine_on_card(false);
        times[1] = seconds_now();
        combine_on_card(true);
        times[2] = seconds_now();
        must(first->api->copy(first->instance, bench.out[0], first->instance, first->api, bench.in[0],
                              bench.bytes));
        times[3] = seconds_now();
        if (round < 0) continue;
        bench.seconds[TU__ALL_REDUCE][round] = times[1] - times[0];
        bench.seconds[IN_PLACE][round] = times[2] - times[1];
        bench.seconds[COPY][round] = times[3] - times[2];
    }
}

/* ---- Results ---- */

static double least(const double *values) {
    double found = values[0];
    for (int i = 1; i < bench.rounds; i++) found = values[i] < found ? values[i] : found;
    return found;
}

/* Vectors read and written, by all ranks together. */
static double vectors_moved(int kind) {
    double ranks = (double)bench.ranks;
    switch (kind) {
    case COPY: return 2;
    case TU__REDUCE_SCATTER:
    case TU__ALL_GATHER:
    case TU__BROADCAST: return ranks + 1;
    default: return 2 * ranks;
    }
}

static void print_kind(int kind) {
    double seconds = least(bench.seconds[kind]), copy = least(bench.seconds[COPY]);
    double moved = vectors_moved(kind);
    printf("%-16s %10.3f %10.2f %12.1f %12.2f %12.1f\n", titles[kind], 1e3 * seconds,
           1e-9 * (double)bench.bytes / seconds, 100 * copy / seconds,
           1e-9 * moved * (double)bench.bytes / seconds, 100 * moved / 2 * copy / seconds);
}

static void print_all(const char *list, bool host) {
    printf("%zu ranks of %s, %.1f MB each, f32, the best of %d rounds\n", bench.ranks, list,
           1e-6 * (double)bench.bytes, bench.rounds);
    printf("%-16s %10s %10s %12s %12s %12s\n", "", "ms", "GB/s", "of a copy %", "moved GB/s", "of a copy %");
    for (int kind = 0; kind < KINDS; kind++)
        if (host || kind == TU__ALL_REDUCE || kind >= IN_PLACE) print_kind(kind);
}

static void reserve(void) {
    float *zeros = calloc(bench.bytes, 1);
    for (size_t r = 0; zeros && r < bench.ranks; r++) {
        const tu__device *d = bench.devices[r];
        void *in;
        must(d->api->allocate(d->instance, bench.bytes, &in));
        must(d->api->allocate(d->instance, bench.bytes, &bench.out[r]));
        must(d->api->upload(d->instance, in, zeros, bench.bytes));
        must(d->api->upload(d->instance, bench.out[r], zeros, bench.bytes));
        bench.in[r] = in;
    }
    free(zeros);
}

int main(int argc, char **argv) {
    const char *list = argc > 1 ? argv[1] : "cpu:0/2";
    double megabytes = argc > 2 ? atof(argv[2]) : 25;
    bench.rounds = argc > 3 ? atoi(argv[3]) : 100;
    if (!(megabytes > 0 && megabytes < 65536) || bench.rounds < 1 || bench.rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: bench_collectives [LIST [MEGABYTES [ROUNDS, at most %d]]]\n", MAX_ROUNDS);
        return 2;
    }
    bench.bytes = (size_t)(megabytes * 1e6) & ~(size_t)1023;
    must(tu__devices_open(list, NULL, MAX_RANKS, bench.devices, &bench.ranks));
    bool host = bench.devices[0]->api->host_memory;
    if (!host && !bench.devices[0]->api->combine) {
        fprintf(stderr, "bench_collectives: %s does not add up by itself\n", list);
        return 2;
    }
    reserve();
    if (host)
        run_on_host();
    else
        run_on_card();
    print_all(list, host);
    return 0;
}
