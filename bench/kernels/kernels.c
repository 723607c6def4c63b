/* Measures single kernels of the CPU device, with the shapes of tutorial-cnn, resnet20, mlp and GPT-2, and
 * compares them with the machine's ceilings. `tutti bench MODEL --kernels` measures the kernels of a training step
 * instead.
 *
 *     bench_kernels [--threads N] [--bf16] [WORD]        WORD: only cases whose name contains it
 *
 * A case is a graph with one operation (or one operation and its gradient), compiled through the public API and
 * run many times. Each row is one kernel, with the median of the times that the device reports. FLOPs and bytes
 * are those of the kernel report, with each value read or written once. The lower bound of a kernel's time is the
 * longer of FLOPs and bytes divided by the ceilings; the column "fraction" is lower bound / time. A fraction above
 * 100 % means that values were still in a cache from the previous run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "ceilings.h"

enum { MAX_INPUTS = 8, MAX_KERNELS = 32, MAX_RUNS = 50, MIN_RUNS = 5 };

static const double seconds_per_case = 0.5;

/* ---- Building a case ---- */

typedef struct bench {
    tu_graph *graph;
    tu_dtype dtype;
    int input_count;
    tu_value inputs[MAX_INPUTS];
    tu_value result;
} bench;

static tu_value add_input(bench *b, tu_dtype dtype, tu_shape shape) {
    char name[16];
    snprintf(name, sizeof name, "x%d", b->input_count);
    return b->inputs[b->input_count++] = tu_input(b->graph, name, dtype, shape);
}

static tu_value input(bench *b, tu_shape shape) {
    return add_input(b, b->dtype, shape);
}

/* Returns the gradient of `x` for a given gradient of `y`. The forward kernels run only if the gradient needs
 * them. */
static tu_value backward(bench *b, tu_value y, tu_value x) {
    tu_value gradient = {0}, weighted = tu_mul(y, input(b, tu_value_shape(y)));
    tu_gradients(tu_sum(weighted), 1, &x, &gradient);
    return gradient;
}

/* ---- The cases ---- */

static void conv1(bench *b) {
    b->result = tu_convolve(input(b, TU_SHAPE(128, 24, 24, 3)), input(b, TU_SHAPE(64, 5, 5, 3)));
}
static void conv2(bench *b) {
    b->result = tu_convolve(input(b, TU_SHAPE(128, 12, 12, 64)), input(b, TU_SHAPE(64, 5, 5, 64)));
}
static void conv2_dx(bench *b) {
    tu_value x = input(b, TU_SHAPE(128, 12, 12, 64)), w = input(b, TU_SHAPE(64, 5, 5, 64));
    b->result = backward(b, tu_convolve(x, w), x);
}
static void conv2_dw(bench *b) {
    tu_value x = input(b, TU_SHAPE(128, 12, 12, 64)), w = input(b, TU_SHAPE(64, 5, 5, 64));
    b->result = backward(b, tu_convolve(x, w), w);
}
static void conv_resnet(bench *b) {
    b->result = tu_convolve(input(b, TU_SHAPE(128, 32, 32, 16)), input(b, TU_SHAPE(16, 3, 3, 16)));
}
static void matmul_mlp(bench *b) {
    b->result = tu_matmul(input(b, TU_SHAPE(128, 784)), input(b, TU_SHAPE(512, 784)), .transpose_b = true);
}
static void matmul_dense1(bench *b) {
    b->result = tu_matmul(input(b, TU_SHAPE(128, 2304)), input(b, TU_SHAPE(384, 2304)), .transpose_b = true);
}
static void matmul_square(bench *b) {
    b->result = tu_matmul(input(b, TU_SHAPE(1024, 1024)), input(b, TU_SHAPE(1024, 1024)));
}
static void max_pool(bench *b) {
    b->result = tu_max_pool(input(b, TU_SHAPE(128, 24, 24, 64)), .window = {3, 3}, .stride = {2, 2});
}
static void max_pool_gradient(bench *b) {
    tu_value x = input(b, TU_SHAPE(128, 24, 24, 64));
    b->result = backward(b, tu_max_pool(x, .window = {3, 3}, .stride = {2, 2}), x);
}
static void avg_pool(bench *b) {
    b->result = tu_avg_pool(input(b, TU_SHAPE(128, 24, 24, 64)), .window = {2, 2});
}
static void avg_pool_gradient(bench *b) {
    tu_value x = input(b, TU_SHAPE(128, 24, 24, 64));
    b->result = backward(b, tu_avg_pool(x, .window = {2, 2}), x);
}
static tu_value lrn_of(tu_value x) {
    return tu_lrn(x, .radius = 4, .bias = 1, .alpha = 0.001 / 9, .beta = 0.75);
}
static void lrn(bench *b) {
    b->result = lrn_of(input(b, TU_SHAPE(128, 12, 12, 64)));
}
static void lrn_gradient(bench *b) {
    tu_value x = input(b, TU_SHAPE(128, 12, 12, 64));
    b->result = backward(b, lrn_of(x), x);
}
static tu_value batch_norm_of(bench *b, tu_value x, int64_t channels) {
    return tu_batch_normalize(x, add_input(b, TU_F32, TU_SHAPE(channels)),
                              add_input(b, TU_F32, TU_SHAPE(channels)));
}
static void batch_norm(bench *b) {
    b->result = batch_norm_of(b, input(b, TU_SHAPE(128, 32, 32, 16)), 16);
}
static void batch_norm_gradient(bench *b) {
    tu_value x = input(b, TU_SHAPE(128, 32, 32, 16));
    b->result = backward(b, batch_norm_of(b, x, 16), x);
}
static void batch_norm_add_relu(bench *b) {
    tu_value x = input(b, TU_SHAPE(128, 32, 32, 16)), shortcut = input(b, TU_SHAPE(128, 32, 32, 16));
    b->result = tu_relu(tu_add(batch_norm_of(b, x, 16), shortcut));
}
static void batch_norm_relu_gradient(bench *b) {
    tu_value x = input(b, TU_SHAPE(128, 32, 32, 16));
    b->result = backward(b, tu_relu(batch_norm_of(b, x, 16)), x);
}
static tu_value layer_norm_of(bench *b, tu_value x, int64_t width) {
    return tu_layer_normalize(x, add_input(b, TU_F32, TU_SHAPE(width)),
                              add_input(b, TU_F32, TU_SHAPE(width)));
}
static void layer_norm(bench *b) {
    b->result = layer_norm_of(b, input(b, TU_SHAPE(4096, 768)), 768);
}
static void layer_norm_gradient(bench *b) {
    tu_value x = input(b, TU_SHAPE(4096, 768));
    b->result = backward(b, layer_norm_of(b, x, 768), x);
}
static void softmax(bench *b) {
    b->result = tu_softmax(input(b, TU_SHAPE(4096, 1024)), -1);
}
static void cross_entropy(bench *b) {
    b->result = tu_cross_entropy(input(b, TU_SHAPE(4096, 1000)), add_input(b, TU_I32, TU_SHAPE(4096)));
}
static void sum_all(bench *b) {
    b->result = tu_sum(input(b, TU_SHAPE(128, 24, 24, 64)));
}
static void sum_over_rows(bench *b) {
    b->result = tu_sum(input(b, TU_SHAPE(128, 24, 24, 64)), .axes = TU_AXES(0, 1, 2));
}
static void mean_pixels(bench *b) {
    b->result = tu_mean(input(b, TU_SHAPE(128, 8, 8, 64)), .axes = TU_AXES(1, 2));
}
static void argmax(bench *b) {
    b->result = tu_argmax(input(b, TU_SHAPE(4096, 1000)), -1);
}
static void gather(bench *b) {
    b->result = tu_gather(input(b, TU_SHAPE(50304, 768)), add_input(b, TU_I32, TU_SHAPE(4096)), 0);
}
static void scatter_add(bench *b) {
    tu_value table = input(b, TU_SHAPE(50304, 768)), tokens = add_input(b, TU_I32, TU_SHAPE(4096));
    b->result = tu_scatter_add(table, tokens, input(b, TU_SHAPE(4096, 768)), 0);
}
static void uniform(bench *b) {
    b->result = tu_random_uniform(b->graph, b->dtype, TU_SHAPE(128, 9216), 0, 1, .per_sample = true);
}
static void normal(bench *b) {
    b->result = tu_random_normal(b->graph, b->dtype, TU_SHAPE(1024, 1024), 0, 1);
}
static void bias_relu(bench *b) {
    tu_value x = input(b, TU_SHAPE(128, 24, 24, 64)), bias = input(b, TU_SHAPE(64));
    b->result = tu_relu(tu_add(x, bias));
}
static void gelu(bench *b) {
    b->result = tu_gelu(input(b, TU_SHAPE(4096, 3072)));
}
static void transpose(bench *b) {
    b->result = tu_transpose(input(b, TU_SHAPE(128, 24, 24, 64)), 0, 3, 1, 2);
}
static void solve(bench *b) {
    b->result = tu_solve(input(b, TU_SHAPE(16, 128, 128)), input(b, TU_SHAPE(16, 128, 16)));
}

static const struct bench_case {
    const char *name;
    void (*build)(bench *b);
    bool f32_only;
} cases[] = {
    {"conv 5x5, 128x24x24x3 -> 64", conv1, false},
    {"conv 5x5, 128x12x12x64 -> 64", conv2, false},
    {"conv 5x5, 128x12x12x64, dx", conv2_dx, false},
    {"conv 5x5, 128x12x12x64, dw", conv2_dw, false},
    {"conv 3x3, 128x32x32x16 -> 16", conv_resnet, false},
    {"matmul 128x784x512", matmul_mlp, false},
    {"matmul 128x2304x384", matmul_dense1, false},
    {"matmul 1024x1024x1024", matmul_square, false},
    {"max_pool 3x3/2, 128x24x24x64", max_pool, false},
    {"max_pool gradient", max_pool_gradient, false},
    {"avg_pool 2x2, 128x24x24x64", avg_pool, false},
    {"avg_pool gradient", avg_pool_gradient, false},
    {"lrn radius 4, 128x12x12x64", lrn, false},
    {"lrn gradient", lrn_gradient, false},
    {"batch_norm 128x32x32x16", batch_norm, false},
    {"batch_norm gradient", batch_norm_gradient, false},
    {"batch_norm + shortcut, ReLU", batch_norm_add_relu, false},
    {"batch_norm + ReLU gradient", batch_norm_relu_gradient, false},
    {"layer_norm 4096x768", layer_norm, false},
    {"layer_norm gradient", layer_norm_gradient, false},
    {"softmax 4096x1024", softmax, false},
    {"cross_entropy 4096x1000", cross_entropy, false},
    {"sum of 128x24x24x64", sum_all, false},
    {"sum over rows, 73728x64", sum_over_rows, false},
    {"mean over pixels, 128x8x8x64", mean_pixels, false},
    {"argmax 4096x1000", argmax, false},
    {"gather 4096 of 50304x768", gather, false},
    {"scatter_add 4096 to 50304x768", scatter_add, true},
    {"random uniform 128x9216", uniform, false},
    {"random normal 1024x1024", normal, false},
    {"bias and relu 128x24x24x64", bias_relu, false},
    {"gelu 4096x3072", gelu, false},
    {"transpose to NCHW", transpose, false},
    {"solve 16 of 128x128", solve, true},
};

/* ---- Running a case ---- */

/* Fills floats with random numbers in (-1, 1), and integers with 0 … 999. */
static void fill_random(tu_type type, void *data) {
    int64_t count = tu_shape_elements(type.shape);
    uint32_t random = 1;
    for (int64_t i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        float x = (float)(random >> 8) * 0x1p-23f - 1;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        switch (type.dtype) {
        case TU_F32: ((float *)data)[i] = x; break;
        case TU_BF16: ((uint16_t *)data)[i] = (uint16_t)(bits >> 16); break;
        case TU_I32: ((int32_t *)data)[i] = (int32_t)(random >> 8) % 1000; break;
        default: ((char *)data)[i] = 0; break;
        }
    }
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_row(const char *name, const tu_kernel_report *k, double *times, int runs, ceilings top) {
    qsort(times, (size_t)runs, sizeof *times, compare_doubles);
    double t = times[runs / 2];
    double by_flops = (double)k->flops / top.flops_per_s, by_bytes = (double)k->bytes / top.bytes_per_s;
    double fraction = t > 0 ? 100 * (by_flops > by_bytes ? by_flops : by_bytes) / t : 0;
    printf("%-30s %-26.26s %9.3f %9.1f %8.1f %6.0f %% %s\n", name, k->kernel, 1e3 * t,
           t > 0 ? 1e-9 * (double)k->flops / t : 0, t > 0 ? 1e-9 * (double)k->bytes / t : 0, fraction,
           by_flops > by_bytes ? "of arithmetic" : "of bandwidth");
}

/* Runs the program for seconds_per_case and prints the median time of each kernel. */
static tu_status measure(const char *name, tu_program *program, tu_state *state, const bench *b,
                         void *const *data, void *result, ceilings top) {
    static double times[MAX_KERNELS][MAX_RUNS];
    tu_feed feeds[MAX_INPUTS];
    int runs = 0;
    for (int i = 0; i < b->input_count; i++) feeds[i] = (tu_feed){b->inputs[i], data[i]};
    TU_TRY(tu_run(program, state, (size_t)b->input_count, feeds, &result)); /* warms up */
    double begin = now();
    for (; runs < MAX_RUNS && (runs < MIN_RUNS || now() - begin < seconds_per_case); runs++) {
        TU_TRY(tu_run(program, state, (size_t)b->input_count, feeds, &result));
        tu_kernel_report k = TU_SIZED(tu_kernel_report);
        for (size_t i = 0; i < MAX_KERNELS && i < tu_program_kernel_count(program) &&
                           tu_program_kernel(program, i, &k) == TU_OK;
             i++)
            times[i][runs] = k.seconds;
    }
    tu_kernel_report k = TU_SIZED(tu_kernel_report);
    for (size_t i = 0; i < MAX_KERNELS && i < tu_program_kernel_count(program) &&
                       tu_program_kernel(program, i, &k) == TU_OK;
         i++)
        print_row(i == 0 ? name : "", &k, times[i], runs, top);
    return TU_OK;
}

static tu_status run_graph(const char *name, const bench *b, int threads, ceilings top) {
    void *data[MAX_INPUTS] = {0}, *result = malloc(tu_type_bytes(tu_value_type(b->result)));
    tu_program *program = NULL;
    tu_state *state = NULL;
    for (int i = 0; i < b->input_count; i++) {
        data[i] = malloc(tu_type_bytes(tu_value_type(b->inputs[i])));
        if (data[i]) fill_random(tu_value_type(b->inputs[i]), data[i]);
    }
    tu_status status = tu_compile(b->graph, &program, .devices = "cpu:0", .threads = threads,
                                  .fetch = &b->result, .fetch_count = 1);
    if (status == TU_OK) status = tu_state_new(b->graph, &state, .seed = 1);
    if (status == TU_OK) status = measure(name, program, state, b, data, result, top);
    tu_program_free(program);
    tu_state_free(state);
    for (int i = 0; i < MAX_INPUTS; i++) free(data[i]);
    free(result);
    return status;
}

static tu_status run_case(const struct bench_case *c, tu_dtype dtype, int threads, ceilings top) {
    bench b = {.dtype = dtype};
    TU_TRY(tu_graph_new(&b.graph));
    c->build(&b);
    tu_status status = tu_graph_status(b.graph);
    if (status == TU_OK) status = run_graph(c->name, &b, threads, top);
    tu_graph_free(b.graph);
    return status;
}

/* ---- Command line ---- */

int main(int argc, char **argv) {
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN), failed = 0;
    tu_dtype dtype = TU_F32;
    const char *word = "";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0)
            threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--bf16") == 0)
            dtype = TU_BF16;
        else if (argv[i][0] != '-')
            word = argv[i];
        else
            return fprintf(stderr, "usage: bench_kernels [--threads N] [--bf16] [WORD]\n"), 2;
    }
    ceilings top = measure_ceilings(threads);
    printf("%d threads, %s; ceilings: %.1f GFLOP/s in f32, %.1f GB/s copied (read plus written)\n\n", threads,
           tu_dtype_name(dtype), 1e-9 * top.flops_per_s, 1e-9 * top.bytes_per_s);
    printf("%-30s %-26s %9s %9s %8s %8s\n", "case", "kernel", "ms", "GFLOP/s", "GB/s", "fraction");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!strstr(cases[i].name, word) || (dtype != TU_F32 && cases[i].f32_only)) continue;
        if (run_case(&cases[i], dtype, threads, top) == TU_OK) continue;
        printf("%-30s failed: %s\n", cases[i].name, tu_message());
        failed = 1;
    }
    return failed;
}
