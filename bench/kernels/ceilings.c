/* Measures the machine's ceilings with two loops.
 *
 * Memory: each thread copies the halves of its own 64 MB block onto each other. Arithmetic: each thread runs 12
 * independent chains of multiply-adds on registers, which hides their latency. Both report the best of five
 * rounds. The instruction set is chosen at run time, as in the library; other machines than x86 use vectors of 16
 * bytes in plain C.
 */
#include "ceilings.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { BLOCK = 64 << 20, ROUNDS = 5, MAX_THREADS = 256, CHAINS = 12, STEPS = 2000000 };

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Running a function on several threads at the same time ---- */

typedef struct member {
    pthread_t thread;
    double (*work)(void *block); /* returns the number of bytes or operations */
    void *block;
    pthread_barrier_t *start;
    double units, begin, end;
} member;

static void *run_member(void *argument) {
    member *m = argument;
    pthread_barrier_wait(m->start);
    m->begin = now();
    m->units = m->work(m->block);
    m->end = now();
    return NULL;
}

/* Returns the total units per second of all threads, from the first start to the last end. */
static double rate_of_team(int threads, double (*work)(void *block), void *const *blocks) {
    member team[MAX_THREADS];
    pthread_barrier_t start;
    double units = 0, begin = 0, end = 0;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        team[i] = (member){.work = work, .block = blocks ? blocks[i] : NULL, .start = &start};
        if (pthread_create(&team[i].thread, NULL, run_member, &team[i]) != 0) exit(1);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(team[i].thread, NULL);
        units += team[i].units;
        begin = i == 0 || team[i].begin < begin ? team[i].begin : begin;
        end = team[i].end > end ? team[i].end : end;
    }
    pthread_barrier_destroy(&start);
    return units / (end - begin);
}

/* ---- Copying ---- */

static double copy_block(void *block) {
    char *half = (char *)block + BLOCK / 2;
    memcpy(block, half, BLOCK / 2);
    memcpy(half, block, BLOCK / 2);
    return 2.0 * BLOCK;
}

static double copy_rate(int threads) {
    void *blocks[MAX_THREADS];
    double best = 0;
    for (int i = 0; i < threads; i++) {
        blocks[i] = malloc(BLOCK);
        if (!blocks[i]) exit(1);
        memset(blocks[i], i, BLOCK);
    }
    for (int round = 0; round < ROUNDS; round++) {
        double rate = rate_of_team(threads, copy_block, blocks);
        best = rate > best ? rate : best;
    }
    for (int i = 0; i < threads; i++) free(blocks[i]);
    return best;
}

/* ---- Arithmetic ---- */

static volatile float sink; /* keeps the compiler from removing the loops */

#ifdef __x86_64__

__attribute__((target("avx512f"))) static double multiply_avx512(void *block) {
    __m512 chain[CHAINS], factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(0.001f);
    (void)block;
    for (int c = 0; c < CHAINS; c++) chain[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < STEPS; i++)
        for (int c = 0; c < CHAINS; c++) chain[c] = _mm512_fmadd_ps(chain[c], factor, term);
    for (int c = 0; c < CHAINS; c++) sink = _mm512_cvtss_f32(chain[c]);
    return 2.0 * 16 * CHAINS * STEPS;
}

__attribute__((target("avx2,fma"))) static double multiply_avx2(void *block) {
    __m256 chain[CHAINS], factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(0.001f);
    (void)block;
    for (int c = 0; c < CHAINS; c++) chain[c] = _mm256_set1_ps((float)c);
    for (int i = 0; i < STEPS; i++)
        for (int c = 0; c < CHAINS; c++) chain[c] = _mm256_fmadd_ps(chain[c], factor, term);
    for (int c = 0; c < CHAINS; c++) sink = _mm256_cvtss_f32(chain[c]);
    return 2.0 * 8 * CHAINS * STEPS;
}

#endif

static double multiply_plain(void *block) {
    typedef float vector __attribute__((vector_size(16)));
    vector chain[CHAINS];
    (void)block;
    for (int c = 0; c < CHAINS; c++) chain[c] = (vector){0} + (float)c;
    for (int i = 0; i < STEPS; i++)
        for (int c = 0; c < CHAINS; c++) chain[c] = chain[c] * 0.999f + 0.001f;
    for (int c = 0; c < CHAINS; c++) sink = chain[c][0];
    return 2.0 * 4 * CHAINS * STEPS;
}

static double multiply_rate(int threads) {
    double (*work)(void *block) = multiply_plain;
    double best = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) work = multiply_avx2;
    if (__builtin_cpu_supports("avx512f")) work = multiply_avx512;
#endif
    for (int round = 0; round < ROUNDS; round++) {
        double rate = rate_of_team(threads, work, NULL);
        best = rate > best ? rate : best;
    }
    return best;
}

ceilings measure_ceilings(int threads) {
    int team = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    return (ceilings){.bytes_per_s = copy_rate(team), .flops_per_s = multiply_rate(team)};
}
