/* Measures the speed of large matrix operations through Tutti on a GPU, and of the same work on the CPU.
 *
 *     bench_ceilings [--gpu NAME] [--cpu NAME] [--no-cpu] [--tune]            gpu:0, cpu:0
 *
 * A matmul of 8192 x 8192 in bf16 gives the peak throughput that networks are compared with; matmuls and the inverse
 * of 4096 x 4096 give the speed-up over the CPU. The matrices of a case are random and generated on the device, and
 * the time is that of the kernel with the most arithmetic, by the device's clock: nothing is copied. To check the result, each case
 * multiplies it by a vector, and also multiplies that vector by the operands one after another: both must agree.
 * Without LAPACK the CPU's inverse is the reference kernel, which takes a minute or more and makes the ratio
 * meaningless: --no-cpu skips the CPU.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

#include "../measure.h"

enum { MAX_RUNS = 21, WARM_RUNS = 2 };
static const double MAX_SECONDS = 3; /* after this time one run suffices, even a warm-up run */
static const double MAX_ERROR =
    0.25; /* rounding of an inverse may cause that much; a wrong result gives more */

typedef struct settings {
    const char *gpu, *cpu;
    bool tune, no_cpu;
} settings;

typedef enum work { MATMUL, INVERSE } work;

typedef struct trial {
    const char *name;
    work kind;
    int64_t size;
    tu_dtype dtype;
    const char *precision; /* for tu_compile */
    bool on_cpu;
    int baseline; /* index of the trial to compare with; -1: none */
} trial;

/* CPU trials come before those that are compared with them. */
static const trial trials[] = {
    {"matmul 8192 bf16", MATMUL, 8192, TU_BF16, "f32", false, -1},
    {"matmul 4096 f32", MATMUL, 4096, TU_F32, "f32", true, -1},
    {"matmul 4096 f32", MATMUL, 4096, TU_F32, "f32", false, 1},
    {"matmul 4096 tf32", MATMUL, 4096, TU_F32, "tf32", false, 1},
    {"inverse 4096 f32", INVERSE, 4096, TU_F32, "f32", true, -1},
    {"inverse 4096 f32", INVERSE, 4096, TU_F32, "f32", false, 4},
};
enum { TRIALS = sizeof trials / sizeof *trials };

/* ---- The graph ---- */

/* The mean square of the difference of two results, and of one of them. */
typedef struct check {
    tu_value difference, size;
} check;

static check compare_results(tu_value one, tu_value other) {
    one = tu_cast(one, TU_F32);
    other = tu_cast(other, TU_F32);
    tu_value d = tu_sub(one, other);
    return (check){tu_mean(tu_mul(d, d)), tu_mean(tu_mul(one, one))};
}

/* Compares (a b) v with a (b v), or a (a^-1 v) with v. */
static check build(tu_graph *graph, const trial *t) {
    tu_shape square = TU_SHAPE(t->size, t->size);
    tu_value a = tu_random_uniform(graph, t->dtype, square, -1, 1);
    tu_value v = tu_random_uniform(graph, t->dtype, TU_SHAPE(t->size, 1), -1, 1);
    if (t->kind == INVERSE) return compare_results(tu_matmul(a, tu_matmul(tu_inverse(a), v)), v);
    tu_value b = tu_random_uniform(graph, t->dtype, square, -1, 1);
    return compare_results(tu_matmul(tu_matmul(a, b), v), tu_matmul(a, tu_matmul(b, v)));
}

/* ---- Running ---- */

typedef struct measurement {
    double seconds, error;
    int64_t flops;
    char kernel[96];
} measurement;

static tu_status find_heaviest(const tu_program *program, tu_kernel_report *heaviest) {
    tu_kernel_report k = TU_SIZED(tu_kernel_report);
    *heaviest = (tu_kernel_report){.struct_size = sizeof *heaviest, .flops = -1};
    for (size_t i = 0; i < tu_program_kernel_count(program) && tu_program_kernel(program, i, &k) == TU_OK;
         i++)
        if (k.flops > heaviest->flops) *heaviest = k;
    if (heaviest->flops > 0) return TU_OK;
    return tu_fail(TU_INTERNAL, "no kernel reports its flops");
}

/* The first query of a kernel (find_heaviest) enables timing on a GPU; times are available from the next run on. */
static tu_status time_program(tu_program *program, tu_state *state, measurement *m) {
    double times[MAX_RUNS], begin = seconds_now();
    tu_kernel_report k = TU_SIZED(tu_kernel_report);
    float squares[2];
    size_t count = 0;
    for (int run = -WARM_RUNS; run < MAX_RUNS; run++) {
        TU_TRY(tu_run(program, state, 0, NULL, (void *[]){&squares[0], &squares[1]}));
        TU_TRY(find_heaviest(program, &k));
        bool is_late = seconds_now() - begin > MAX_SECONDS;
        if (k.seconds > 0 && (run >= 0 || is_late)) times[count++] = k.seconds;
        if (is_late && count) break;
    }
    if (!count) return tu_fail(TU_INTERNAL, "the device reports no kernel times");
    *m = (measurement){median(times, count), sqrt((double)squares[0] / (double)squares[1]), k.flops, ""};
    snprintf(m->kernel, sizeof m->kernel, "%s", k.kernel);
    if (!(m->error < MAX_ERROR))
        return tu_fail(TU_NUMERIC, "the check has a relative error of %g: expected below %g", m->error,
                       MAX_ERROR);
    return TU_OK;
}

static tu_status run_graph(tu_graph *graph, const trial *t, const settings *o, measurement *m) {
    tu_program *program = NULL;
    tu_state *state = NULL;
    check c = build(graph, t);
    tu_value results[] = {c.difference, c.size};
    tu_status status =
        tu_compile(graph, &program, .devices = t->on_cpu ? o->cpu : o->gpu, .precision = t->precision,
                   .tune_kernels = o->tune, .fetch = results, .fetch_count = 2);
    if (status == TU_OK) status = tu_state_new(graph, &state, .seed = 1);
    if (status == TU_OK) status = time_program(program, state, m);
    tu_program_free(program);
    tu_state_free(state);
    return status;
}

static tu_status run_trial(const trial *t, const settings *o, measurement *m) {
    tu_graph *graph;
    TU_TRY(tu_graph_new(&graph));
    tu_status status = run_graph(graph, t, o, m);
    tu_graph_free(graph);
    return status;
}

/* ---- Printing ---- */

static void print_row(const trial *t, const settings *o, const measurement *m, const measurement *other) {
    printf("%-18s %-10s %10.3f %9.2f %9.1e", t->name, t->on_cpu ? o->cpu : o->gpu, 1e3 * m->seconds,
           1e-12 * (double)m->flops / m->seconds, m->error);
    if (other && other->seconds > 0)
        printf(" %9.1fx", other->seconds / m->seconds);
    else
        printf(" %10s", "");
    printf("  %s\n", m->kernel);
    fflush(stdout);
}

/* ---- The command ---- */

static bool read_settings(int argc, char **argv, settings *o) {
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--tune") == 0)
            o->tune = true;
        else if (strcmp(argv[i], "--no-cpu") == 0)
            o->no_cpu = true;
        else if (strcmp(argv[i], "--gpu") == 0 && *value)
            o->gpu = argv[++i];
        else if (strcmp(argv[i], "--cpu") == 0 && *value)
            o->cpu = argv[++i];
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv) {
    settings o = {.gpu = "gpu:0", .cpu = "cpu:0"};
    measurement measurements[TRIALS] = {0};
    int failed = 0;
    if (!read_settings(argc, argv, &o))
        return fprintf(stderr, "usage: bench_ceilings [--gpu NAME] [--cpu NAME] [--no-cpu] [--tune]\n"), 2;
    printf("%-18s %-10s %10s %9s %9s %10s  %s\n", "case", "device", "ms", "TFLOP/s", "error", "vs CPU",
           "kernel");
    for (int i = 0; i < TRIALS; i++) {
        const trial *t = &trials[i];
        if (o.no_cpu && t->on_cpu) continue;
        if (run_trial(t, &o, &measurements[i]) == TU_OK) {
            print_row(t, &o, &measurements[i], t->baseline < 0 ? NULL : &measurements[t->baseline]);
            continue;
        }
        measurements[i].seconds = 0;
        printf("%-18s %-10s failed: %s\n", t->name, t->on_cpu ? o.cpu : o.gpu, tu_message());
        failed = 1;
    }
    return failed;
}
