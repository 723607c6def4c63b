/* How far losses and gradients of whole networks are from f64, on any device and in any precision.
 *
 *     bench_numerics [--only NAME] [--out FOLDER] RUN...
 *     bench_numerics cpu/f32 cpu/bf16 gpu:0/f32 gpu:0/tf32 gpu:0/bf16
 *
 * A RUN is a device and a precision. What it is compared with is the reference device in f64. A line for each network and run:
 * the relative error of the loss, and the largest of a gradient, each as the norm of the difference over the norm of what it
 * should be. With --out what went in and what came out are kept, for bench/compare/numerics.py. */
#include <math.h>
#include <string.h>

#include "../measure.h"
#include "networks.h"
#include "tensor_file.h"

enum { MOST_RUNS = 16, MOST_RESULTS = MOST_TENSORS + 1, PATH = 512 };

typedef struct run {
    char device[32], precision[8];
} run;

typedef struct results {
    int count;
    char name[MOST_RESULTS][TENSOR_NAME]; /* "loss", then what it was differentiated by */
    tu_shape shape[MOST_RESULTS];
    double *numbers[MOST_RESULTS];
} results;

typedef struct options {
    const char *only, *out;
    int run_count;
    run runs[MOST_RUNS];
} options;

static void give_up(const char *what, const char *which) {
    fprintf(stderr, "bench_numerics: %s '%s'\n", what, which);
    exit(2);
}

static void *take(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) give_up("out of memory in", "an allocation");
    return memory;
}

/* ---- Data ---- */

/* splitmix64: number `index` of the sequence of a tensor. */
static uint64_t draw(uint64_t sequence, uint64_t index) {
    uint64_t x = (sequence << 40) + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* What f32 holds exactly, whatever the type: all precisions begin with the same numbers. */
static float number_of(const tensor *t, uint64_t bits) {
    double uniform = (double)(bits >> 11) * 0x1p-53;
    return (float)(t->mean + t->deviation * sqrt(3) * (2 * uniform - 1));
}

static void *fill_tensor(const tensor *t, uint64_t sequence, tu_dtype dtype) {
    int64_t count = tu_shape_elements(tu_value_shape(t->value));
    void *data = take((size_t)count * sizeof(double));
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = draw(sequence, (uint64_t)i);
        if (t->classes)
            ((int32_t *)data)[i] = (int32_t)(bits % (uint64_t)t->classes);
        else if (dtype == TU_F64)
            ((double *)data)[i] = number_of(t, bits);
        else
            ((float *)data)[i] = number_of(t, bits);
    }
    return data;
}

static uint64_t sequence_of(int which, int place) {
    return (uint64_t)(which * MOST_TENSORS + place + 1);
}

/* ---- A run ---- */

static int list_wanted(const network *n, tu_value wanted[MOST_TENSORS], results *r) {
    int count = 0;
    for (int i = 0; i < n->tensor_count; i++) {
        if (!n->tensors[i].wanted) continue;
        wanted[count++] = n->tensors[i].value;
        snprintf(r->name[count], sizeof r->name[count], "%s", n->tensors[i].name);
    }
    return count;
}

static void keep_result(results *r, int i, tu_value value, const void *out) {
    r->shape[i] = tu_value_shape(value);
    int64_t count = tu_shape_elements(r->shape[i]);
    r->numbers[i] = take((size_t)count * sizeof(double));
    for (int64_t e = 0; e < count; e++)
        r->numbers[i][e] =
            tu_value_dtype(value) == TU_F64 ? ((const double *)out)[e] : ((const float *)out)[e];
}

/* Builds the network in the type, with everything that is fetched of it. */
static void build(int which, tu_dtype dtype, network *n, tu_value fetch[MOST_RESULTS], results *r) {
    tu_value wanted[MOST_TENSORS];
    *n = (network){.dtype = dtype};
    must(tu_graph_new(&n->graph));
    fetch[0] = networks[which].build(n);
    must(tu_graph_status(n->graph));
    snprintf(r->name[0], sizeof r->name[0], "loss");
    r->count = 1 + list_wanted(n, wanted, r);
    must(tu_gradients(fetch[0], (size_t)r->count - 1, wanted, &fetch[1]));
}

static results compute(int which, const run *how) {
    network n;
    tu_value fetch[MOST_RESULTS];
    tu_program *program;
    tu_state *state;
    tu_feed feeds[MOST_TENSORS];
    void *fed[MOST_TENSORS], *out[MOST_RESULTS];
    results r = {0};
    bool wide = strcmp(how->precision, "f64") == 0;
    build(which, wide ? TU_F64 : TU_F32, &n, fetch, &r);
    must(tu_compile(n.graph, &program, .devices = how->device, .fetch = fetch, .fetch_count = (size_t)r.count,
                    .precision = wide ? NULL : how->precision));
    must(tu_state_new(n.graph, &state));
    for (int i = 0; i < n.tensor_count; i++) {
        fed[i] = fill_tensor(&n.tensors[i], sequence_of(which, i), n.dtype);
        feeds[i] = (tu_feed){n.tensors[i].value, fed[i]};
    }
    for (int i = 0; i < r.count; i++) out[i] = take(tu_type_bytes(tu_value_type(fetch[i])));
    must(tu_run(program, state, (size_t)n.tensor_count, feeds, out));
    for (int i = 0; i < r.count; i++) {
        keep_result(&r, i, fetch[i], out[i]);
        free(out[i]);
    }
    for (int i = 0; i < n.tensor_count; i++) free(fed[i]);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(n.graph);
    return r;
}

static void free_results(results *r) {
    for (int i = 0; i < r->count; i++) free(r->numbers[i]);
}

/* ---- Errors ---- */

static double relative_error(const results *found, const results *wanted, int i) {
    double off = 0, size = 0;
    for (int64_t e = 0; e < tu_shape_elements(wanted->shape[i]); e++) {
        double w = wanted->numbers[i][e], d = found->numbers[i][e] - w;
        off += d * d, size += w * w;
    }
    return sqrt(off / size);
}

static void print_errors(const char *name, const run *how, const results *found, const results *wanted) {
    int worst = 1;
    double largest = 0;
    for (int i = 1; i < wanted->count; i++) {
        double error = relative_error(found, wanted, i);
        if (error <= largest) continue;
        largest = error, worst = i;
    }
    printf("%-20s %-10s %-5s %9.2e %9.2e  %s\n", name, how->device, how->precision,
           relative_error(found, wanted, 0), largest, wanted->name[worst]);
}

/* ---- Files ---- */

static void write_file(const options *o, const char *name, const char *what, size_t count,
                       const named_tensor *tensors) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s.%s.safetensors", o->out, name, what);
    if (!write_tensors(path, count, tensors)) give_up("cannot write", path);
}

static void keep_inputs(const options *o, int which) {
    network n;
    tu_value fetch[MOST_RESULTS];
    results r;
    named_tensor tensors[MOST_TENSORS];
    build(which, TU_F32, &n, fetch, &r);
    for (int i = 0; i < n.tensor_count; i++)
        tensors[i] = (named_tensor){n.tensors[i].name, tu_value_type(n.tensors[i].value),
                                    fill_tensor(&n.tensors[i], sequence_of(which, i), TU_F32)};
    write_file(o, networks[which].name, "inputs", (size_t)n.tensor_count, tensors);
    for (int i = 0; i < n.tensor_count; i++) free((void *)tensors[i].data);
    tu_graph_free(n.graph);
}

static void keep_results(const options *o, int which, const run *how, const results *r) {
    named_tensor tensors[MOST_RESULTS];
    char what[64];
    for (int i = 0; i < r->count; i++)
        tensors[i] = (named_tensor){r->name[i], {TU_F64, r->shape[i]}, r->numbers[i]};
    snprintf(what, sizeof what, "%s-%s", how->device, how->precision);
    write_file(o, networks[which].name, what, (size_t)r->count, tensors);
}

/* ---- The command line ---- */

static void measure(const options *o, int which) {
    static const run oracle = {"ref", "f64"};
    results wanted = compute(which, &oracle);
    if (o->out) {
        keep_inputs(o, which);
        keep_results(o, which, &oracle, &wanted);
    }
    for (int i = 0; i < o->run_count; i++) {
        results found = compute(which, &o->runs[i]);
        print_errors(networks[which].name, &o->runs[i], &found, &wanted);
        fflush(stdout);
        if (o->out) keep_results(o, which, &o->runs[i], &found);
        free_results(&found);
    }
    free_results(&wanted);
}

/* "gpu:0/bf16" */
static run read_run(const char *word) {
    static const char *const precisions[] = {"f64", "f32", "tf32", "bf16", "f16"};
    run r;
    const char *slash = strrchr(word, '/');
    if (!slash || (size_t)(slash - word) >= sizeof r.device || strlen(slash + 1) >= sizeof r.precision)
        give_up("expected a device and a precision, such as cpu/bf16, not", word);
    snprintf(r.device, sizeof r.device, "%.*s", (int)(slash - word), word);
    snprintf(r.precision, sizeof r.precision, "%s", slash + 1);
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        if (strcmp(r.precision, precisions[i]) == 0) return r;
    give_up("the precision is f64, f32, tf32, bf16 or f16, not that of", word);
    return r;
}

static options read_words(int count, char **words) {
    options o = {0};
    for (int i = 1; i < count; i++) {
        bool only = strcmp(words[i], "--only") == 0, out = strcmp(words[i], "--out") == 0;
        if ((only || out) && ++i == count) give_up("what follows is missing behind", words[i - 1]);
        if (only)
            o.only = words[i];
        else if (out)
            o.out = words[i];
        else if (o.run_count == MOST_RUNS)
            give_up("there are too many runs, the first too many is", words[i]);
        else
            o.runs[o.run_count++] = read_run(words[i]);
    }
    return o;
}

int main(int count, char **words) {
    options o = read_words(count, words);
    int known = 0;
    printf("%-20s %-10s %-5s %9s %9s  %s\n", "network", "device", "in", "loss", "gradient", "the worst");
    for (int i = 0; i < NETWORKS; i++) {
        if (o.only && strcmp(o.only, networks[i].name) != 0) continue;
        measure(&o, i);
        known++;
    }
    if (!known) give_up("there is no network", o.only);
    return 0;
}
