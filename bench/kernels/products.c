/* Compares Tutti's matrix multiplication (matmul) in f32 with oneDNN's, for the shapes of mlp and tutorial-cnn and a
 * few others. The choice between them in src/device/cpu/matmul.c is based on this benchmark.
 *
 *     bench_products [--threads N] [--rounds N] [WORD]        WORD: only matmuls whose name contains it
 *
 * Each round runs all matmuls with Tutti, then all with oneDNN. Before each matmul the program touches more
 * memory than fits in the L2 cache, because operands are not in L2 in a training step either. A row shows the
 * minimum time of each, which other load on the machine affects least, and the speedup of Tutti over oneDNN.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "ceilings.h"
#include "device/cpu/dnnl.h"
#include "device/cpu/gemm.h"
#include "device/cpu/isa/loops.h"

enum { EVICTION_FLOATS = 1 << 20 /* 4 MB */, TUTTI = 0, DNNL = 1, LIBRARIES = 2 };

static const struct shape {
    const char *name;
    int64_t m, n, k;
    bool transpose_a, transpose_b;
} shapes[] = {
    {"mlp hidden1", 128, 512, 784, false, true},
    {"mlp hidden2", 128, 512, 512, false, true},
    {"mlp logits", 128, 10, 512, false, true},
    {"mlp logits dx", 128, 512, 10, false, false},
    {"mlp logits dw", 10, 512, 128, true, false},
    {"mlp hidden2 dx", 128, 512, 512, false, false},
    {"mlp hidden2 dw", 512, 512, 128, true, false},
    {"mlp hidden1 dw", 512, 784, 128, true, false},
    {"cnn dense1", 128, 384, 2304, false, true},
    {"cnn dense1 dx", 128, 2304, 384, false, false},
    {"cnn dense1 dw", 384, 2304, 128, true, false},
    {"square 1024", 1024, 1024, 1024, false, false},
    {"32 rows", 32, 512, 784, false, true},
    {"8 rows", 8, 512, 784, false, true},
    {"1 row", 1, 512, 784, false, true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct trial {
    cpu_gemm gemm;
    cpu_dnnl *dnnl;
    float *a, *b, *c, *workspace[LIBRARIES];
    double min_seconds[LIBRARIES];
} trial;

static float *new_numbers(size_t count) {
    float *numbers = aligned_alloc(64, (count * sizeof *numbers + 127) / 64 * 64);
    if (!numbers) {
        fprintf(stderr, "bench_products: no memory for %zu numbers\n", count);
        exit(1);
    }
    for (size_t i = 0; i < count; i++) numbers[i] = (float)(i * 2654435761U >> 8 & 1023) / 512 - 1;
    return numbers;
}

static void prepare_trial(const struct shape *s, int threads, trial *t) {
    static const int64_t no_offset[1] = {0};
    t->gemm = (cpu_gemm){.loops = cpu_loops_for_this_machine()->gemm->f32,
                         .m = s->m,
                         .n = s->n,
                         .k = s->k,
                         .transpose_a = s->transpose_a,
                         .transpose_b = s->transpose_b,
                         .batch = 1,
                         .a_offsets = no_offset,
                         .b_offsets = no_offset,
                         .threads = threads};
    cpu_gemm_plan(&t->gemm);
    cpu_dnnl_product p = {.batch = 1, .m = s->m, .n = s->n, .k = s->k, .dtype = TU_F32};
    p.a_strides[s->transpose_a ? 1 : 2] = p.b_strides[s->transpose_b ? 1 : 2] = 1;
    p.a_strides[s->transpose_a ? 2 : 1] = s->transpose_a ? s->m : s->k;
    p.b_strides[s->transpose_b ? 2 : 1] = s->transpose_b ? s->k : s->n;
    if (cpu_dnnl_matmul(&p, threads, &t->dnnl) != TU_OK) t->dnnl = NULL;
    t->a = new_numbers((size_t)(s->m * s->k));
    t->b = new_numbers((size_t)(s->k * s->n));
    t->c = new_numbers((size_t)(s->m * s->n));
    t->workspace[TUTTI] = new_numbers(cpu_gemm_workspace(&t->gemm) / sizeof(float));
    t->workspace[DNNL] = new_numbers(t->dnnl ? cpu_dnnl_workspace(t->dnnl) / sizeof(float) : 0);
    t->min_seconds[TUTTI] = t->min_seconds[DNNL] = 1e9;
}

static void free_trial(trial *t) {
    cpu_dnnl_free(t->dnnl);
    free(t->a);
    free(t->b);
    free(t->c);
    free(t->workspace[TUTTI]);
    free(t->workspace[DNNL]);
}

static void run_once(trial *t, int library) {
    double begin = now();
    if (library == TUTTI) {
        cpu_gemm_run(&t->gemm, &(cpu_gemm_operands){t->a, t->b, NULL, t->c, t->workspace[TUTTI], false});
    } else {
        cpu_direct_operands o = {.first = t->a, .second = t->b, .out = t->c, .workspace = t->workspace[DNNL]};
        if (!t->dnnl || cpu_dnnl_run(t->dnnl, &o) != TU_OK) return;
    }
    double seconds = now() - begin;
    if (seconds < t->min_seconds[library]) t->min_seconds[library] = seconds;
}

static void print_row(const struct shape *s, const trial *t) {
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    printf("%-16s %5lld %5lld %5lld %9.1f %9.1f", s->name, (long long)s->m, (long long)s->n, (long long)s->k,
           1e6 * t->min_seconds[TUTTI], 1e-9 * flops / t->min_seconds[TUTTI]);
    if (t->dnnl)
        printf(" %11.1f %9.1f %7.2f\n", 1e6 * t->min_seconds[DNNL], 1e-9 * flops / t->min_seconds[DNNL],
               t->min_seconds[DNNL] / t->min_seconds[TUTTI]);
    else
        printf(" %11s %9s\n", "-", "-");
}

int main(int argc, char **argv) {
    int threads = 1, rounds = 100;
    const char *word = "";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0)
            threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0)
            rounds = atoi(argv[++i]);
        else if (argv[i][0] != '-')
            word = argv[i];
        else
            return fprintf(stderr, "usage: bench_products [--threads N] [--rounds N] [WORD]\n"), 2;
    }
    static trial trials[SHAPES];
    tu__parallel_set_threads(threads);
    for (int i = 0; i < SHAPES; i++) prepare_trial(&shapes[i], threads, &trials[i]);
    float *eviction_buffer = new_numbers(EVICTION_FLOATS);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < SHAPES * LIBRARIES; i++) {
            if (!strstr(shapes[i % SHAPES].name, word)) continue;
            for (int64_t j = 0; j < EVICTION_FLOATS; j += 16) eviction_buffer[j] += 1;
            run_once(&trials[i % SHAPES], i / SHAPES);
        }
    printf("%d threads, f32, minimum of %d rounds\n\n%-16s %5s %5s %5s %9s %9s %11s %9s %7s\n", threads,
           rounds, "matmul", "m", "n", "k", "Tutti, us", "GFLOP/s", "oneDNN, us", "GFLOP/s", "speedup");
    for (int i = 0; i < SHAPES; i++) {
        if (strstr(shapes[i].name, word)) print_row(&shapes[i], &trials[i]);
        free_trial(&trials[i]);
    }
    free(eviction_buffer);
    return 0;
}
