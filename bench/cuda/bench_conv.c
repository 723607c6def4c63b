/* Measures convolutions on a CUDA GPU with the shapes of tutorial-cnn and resnet50: forward and both gradients, with
 * the chosen engine.
 *
 *     bench_conv [--device NAME] [--batch N] [--precision bf16|f16|tf32|f32] [--tune] [TEXT]
 *
 * A case is a graph of one convolution whose operands are generated on the GPU and whose result is summed, so that
 * nothing large is copied. Rows show only the convolution's kernels, with the median of their times on the GPU.
 * Between two runs generating the operands replaces the contents of the cache, as other layers of a network would. "y"
 * includes a bias and a relu, as in the networks. TEXT: only cases whose name contains it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "../measure.h"

enum { MAX_KERNELS = 16, MAX_RUNS = 41 };

typedef struct settings {
    const char *device, *precision, *filter_text;
    int64_t batch; /* 0: the default of each case */
    bool tune;
} settings;

typedef struct shape {
    const char *name;
    int64_t batch, size, in, out, filter, stride;
    bool is_first; /* first layer of a network: the gradient of its input is not needed */
} shape;

static const shape shapes[] = {
    {"cnn conv1 128", 128, 24, 3, 64, 5, 1, true},
    {"cnn conv2 128", 128, 12, 64, 64, 5, 1, false},
    {"cnn conv1 1024", 1024, 24, 3, 64, 5, 1, true},
    {"cnn conv2 1024", 1024, 12, 64, 64, 5, 1, false},
    {"resnet20 16", 128, 32, 16, 16, 3, 1, false},
    {"resnet50 stem", 128, 224, 3, 64, 7, 2, true},
    {"resnet50 56 64-64 1x1", 128, 56, 64, 64, 1, 1, false},
    {"resnet50 56 64-64", 128, 56, 64, 64, 3, 1, false},
    {"resnet50 56 64-256 1x1", 128, 56, 64, 256, 1, 1, false},
    {"resnet50 56 256-64 1x1", 128, 56, 256, 64, 1, 1, false},
    {"resnet50 56 256-512 1x1/2", 128, 56, 256, 512, 1, 2, false},
    {"resnet50 56 128-128 /2", 128, 56, 128, 128, 3, 2, false},
    {"resnet50 28 128-128", 128, 28, 128, 128, 3, 1, false},
    {"resnet50 28 128-512 1x1", 128, 28, 128, 512, 1, 1, false},
    {"resnet50 14 256-256", 128, 14, 256, 256, 3, 1, false},
    {"resnet50 14 1024-256 1x1", 128, 14, 1024, 256, 1, 1, false},
    {"resnet50 7 512-512", 128, 7, 512, 512, 3, 1, false},
    {"resnet50 7 512-2048 1x1", 128, 7, 512, 2048, 1, 1, false},
};

/* y, gradient of x, gradient of the filter */
typedef enum conv_result { FORWARD, DGRAD, WGRAD, RESULTS } conv_result;
static const char *const result_names[RESULTS] = {"y", "dx", "dw"};

/* ---- The graph of a case ---- */

static tu_value random_tensor(tu_graph *graph, tu_dtype dtype, tu_shape s) {
    return tu_random_uniform(graph, dtype, s, -1, 1);
}

static tu_value build(tu_graph *graph, const shape *s, int64_t batch, conv_result which, tu_dtype dtype) {
    tu_value x = random_tensor(graph, dtype, TU_SHAPE(batch, s->size, s->size, s->in));
    tu_value w = random_tensor(graph, dtype, TU_SHAPE(s->out, s->filter, s->filter, s->in));
    tu_value y = tu_convolve(x, w, .stride = {s->stride, s->stride});
    if (which == FORWARD) return tu_sum(tu_relu(tu_add(y, random_tensor(graph, dtype, TU_SHAPE(s->out)))));
    tu_value gradient = {0}, wrt = which == DGRAD ? x : w;
    tu_gradients(tu_sum(tu_mul(y, random_tensor(graph, dtype, tu_value_shape(y)))), 1, &wrt, &gradient);
    return tu_sum(gradient);
}

/* ---- Running one ---- */

static void print_kernel(const shape *s, conv_result which, const tu_kernel_report *k, double *times,
                         double compile_seconds) {
    double t = median(times, MAX_RUNS);
    printf("%-26s %-3s %9.4f %8.1f %8.0f %8.1f %10.0f  %s\n", s->name, result_names[which], 1e3 * t,
           t > 0 ? 1e-12 * (double)k->flops / t : 0, t > 0 ? 1e-9 * (double)k->bytes / t : 0,
           1e-6 * (double)k->workspace_bytes, 1e3 * compile_seconds, k->kernel);
    fflush(stdout);
}

/* Reads the times of all kernels; sets *count to their number. */
static tu_status read_times(const tu_program *program, int run, double times[][MAX_RUNS], size_t *count) {
    tu_kernel_report k = TU_SIZED(tu_kernel_report);
    for (*count = 0; *count < MAX_KERNELS; ++*count) {
        tu_status status = tu_program_kernel(program, *count, &k);
        if (status == TU_NOT_FOUND) break;
        TU_TRY(status);
        if (run >= 0) times[*count][run] = k.seconds;
    }
    return TU_OK;
}

static tu_status measure(tu_program *program, tu_state *state, const shape *s, conv_result which,
                         double compile_seconds) {
    static double times[MAX_KERNELS][MAX_RUNS];
    size_t count = 0;
    for (int run = -3; run < MAX_RUNS; run++) { /* the first ones are warm-up */
        TU_TRY(tu_run(program, state, 0, NULL, (void *[]){NULL}));
        TU_TRY(read_times(program, run, times, &count));
    }
    for (size_t i = 0; i < count; i++) {
        tu_kernel_report k = TU_SIZED(tu_kernel_report);
        TU_TRY(tu_program_kernel(program, i, &k));
        if (strncmp(k.kernel, "conv2d", strlen("conv2d")) == 0)
            print_kernel(s, which, &k, times[i], compile_seconds);
    }
    return TU_OK;
}

static tu_dtype dtype_of(const char *precision) {
    return strcmp(precision, "bf16") == 0 ? TU_BF16 : strcmp(precision, "f16") == 0 ? TU_F16 : TU_F32;
}

static tu_status run_graph(tu_graph *graph, tu_value result, const shape *s, conv_result which,
                           const settings *o) {
    tu_program *program = NULL;
    tu_state *state = NULL;
    double begin = seconds_now();
    const char *precision =
        strcmp(o->precision, "tf32") == 0 ? "tf32" : NULL; /* other precisions follow from the types */
    tu_status status = tu_compile(graph, &program, .devices = o->device, .fetch = &result, .fetch_count = 1,
                                  .precision = precision, .tune_kernels = o->tune);
    double compile_seconds = seconds_now() - begin;
    if (status == TU_OK) status = tu_state_new(graph, &state, .seed = 1);
    if (status == TU_OK) status = measure(program, state, s, which, compile_seconds);
    tu_program_free(program);
    tu_state_free(state);
    return status;
}

static tu_status run_case(const shape *s, conv_result which, const settings *o) {
    tu_graph *graph;
    TU_TRY(tu_graph_new(&graph));
    tu_value result = build(graph, s, o->batch ? o->batch : s->batch, which, dtype_of(o->precision));
    tu_status status = tu_graph_status(graph);
    if (status == TU_OK) status = run_graph(graph, result, s, which, o);
    tu_graph_free(graph);
    return status;
}

/* ---- The command ---- */

static bool is_precision(const char *text) {
    static const char *const known[] = {"bf16", "f16", "tf32", "f32"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i]) == 0) return true;
    return false;
}

static bool read_settings(int argc, char **argv, settings *o) {
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--tune") == 0)
            o->tune = true;
        else if (strcmp(argv[i], "--device") == 0 && *value)
            o->device = argv[++i];
        else if (strcmp(argv[i], "--batch") == 0 && atoll(value) > 0)
            o->batch = atoll(argv[++i]);
        else if (strcmp(argv[i], "--precision") == 0 && is_precision(value))
            o->precision = argv[++i];
        else if (argv[i][0] != '-')
            o->filter_text = argv[i];
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv) {
    settings o = {.device = "gpu:0", .precision = "bf16", .filter_text = ""};
    int failed = 0;
    if (!read_settings(argc, argv, &o))
        return fprintf(stderr,
                       "usage: bench_conv [--device NAME] [--batch N] [--precision bf16|f16|tf32|f32] "
                       "[--tune] [TEXT]\n"),
               2;
    printf("%s, %s%s\n%-26s %-3s %9s %8s %8s %8s %10s  %s\n", o.device, o.precision, o.tune ? ", tuned" : "",
           "case", "", "ms", "TFLOP/s", "GB/s", "work MB", "compile ms", "kernel");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (conv_result which = FORWARD; which < RESULTS; which++) {
            if (!strstr(shapes[i].name, o.filter_text) || (which == DGRAD && shapes[i].is_first)) continue;
            if (run_case(&shapes[i], which, &o) == TU_OK) continue;
            printf("%-26s %-3s failed: %s\n", shapes[i].name, result_names[which], tu_message());
            failed = 1;
        }
    return failed;
}
