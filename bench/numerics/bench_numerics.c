/* How far losses and gradients of whole networks are from f64, on any device and in any precision.
 *
 *     bench_numerics [--only NAME] [--draws N] [--out FOLDER] [--most ERROR] RUN...
 *     bench_numerics cpu/f32 cpu/bf16 gpu:0/f32 gpu:0/tf32 gpu:0/bf16
 *
 * A RUN is a device and a precision. What it is compared with is the reference device in f64. A line for each network and run:
 * the relative error of the loss, and the largest of a gradient, each as the norm of the difference over the norm of what it
 * should be. Weights and data are drawn N times (once); errors are the medians: a rectifier whose input is close to zero is
 * the other way round after rounding, which makes a single draw a matter of luck.
 *
 * With --out what went in and what came out are kept, for bench/compare/numerics.py; with --most the status is 1 where an
 * error of any draw is larger. */
#include <math.h>
#include <string.h>

#include "../measure.h"
#include "networks.h"
#include "tensor_file.h"

enum { MAX_RUNS = 16, MAX_DRAWS = 99, MAX_RESULTS = MAX_TENSORS + 1, PATH = 512 };

typedef struct run {
    char device[32], precision[8];
} run;

typedef struct results {
    int count;
    char name[MAX_RESULTS][TENSOR_NAME]; /* "loss", then what it was differentiated by */
    tu_shape shape[MAX_RESULTS];
    double *numbers[MAX_RESULTS];
} results;

typedef struct options {
    const char *only, *out;
    double most; /* 0: any error will do */
    int draws;
    int run_count;
    run runs[MAX_RUNS];
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

/* Which network, and which draw of its weights and data. */
typedef struct problem {
    int network, draw;
} problem;

static uint64_t sequence_of(problem p, int place) {
    return ((uint64_t)p.draw * NETWORKS + (uint64_t)p.network) * MAX_TENSORS + (uint64_t)place + 1;
}

/* ---- A run ---- */

static int list_wanted(const network *n, tu_value wanted[MAX_TENSORS], results *r) {
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
static void build(int which, tu_dtype dtype, network *n, tu_value fetch[MAX_RESULTS], results *r) {
    tu_value wanted[MAX_TENSORS];
    *n = (network){.dtype = dtype};
    must(tu_graph_new(&n->graph));
    fetch[0] = networks[which].build(n);
    must(tu_graph_status(n->graph));
    snprintf(r->name[0], sizeof r->name[0], "loss");
    r->count = 1 + list_wanted(n, wanted, r);
    must(tu_gradients(fetch[0], (size_t)r->count - 1, wanted, &fetch[1]));
}

static results compute(problem p, const run *how) {
    network n;
    tu_value fetch[MAX_RESULTS];
    tu_program *program;
    tu_state *state;
    tu_feed feeds[MAX_TENSORS];
    void *fed[MAX_TENSORS], *out[MAX_RESULTS];
    results r = {0};
    bool wide = strcmp(how->precision, "f64") == 0;
    build(p.network, wide ? TU_F64 : TU_F32, &n, fetch, &r);
    must(tu_compile(n.graph, &program, .devices = how->device, .fetch = fetch, .fetch_count = (size_t)r.count,
                    .precision = wide ? NULL : how->precision));
    must(tu_state_new(n.graph, &state));
    for (int i = 0; i < n.tensor_count; i++) {
        fed[i] = fill_tensor(&n.tensors[i], sequence_of(p, i), n.dtype);
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

/* One that is not a number is endless. */
static double relative_error(const results *found, const results *wanted, int i) {
    double off = 0, size = 0;
    for (int64_t e = 0; e < tu_shape_elements(wanted->shape[i]); e++) {
        double w = wanted->numbers[i][e], d = found->numbers[i][e] - w;
        off += d * d, size += w * w;
    }
    double error = sqrt(off / size);
    return isnan(error) ? INFINITY : error;
}

/* Errors of a run, draw by draw. */
typedef struct errors {
    double loss[MAX_DRAWS], gradient[MAX_DRAWS];
    double largest; /* of a gradient, of all draws, */
    char worst[TENSOR_NAME];
    bool wrong; /* one is larger than asked for */
} errors;

static void add_errors(errors *e, const options *o, int draw, const results *found, const results *wanted) {
    e->loss[draw] = relative_error(found, wanted, 0);
    e->gradient[draw] = 0;
    for (int i = 1; i < wanted->count; i++) {
        double error = relative_error(found, wanted, i);
        if (error > e->gradient[draw]) e->gradient[draw] = error;
        if (error <= e->largest) continue;
        e->largest = error;
        snprintf(e->worst, sizeof e->worst, "%s", wanted->name[i]);
    }
    if (o->most > 0 && (e->loss[draw] > o->most || e->gradient[draw] > o->most)) e->wrong = true;
}

static void print_errors(const options *o, int which, const run *how, errors *e) {
    printf("%-20s %-10s %-5s %9.2e %9.2e  %s\n", networks[which].name, how->device, how->precision,
           median(e->loss, (size_t)o->draws), median(e->gradient, (size_t)o->draws), e->worst);
    fflush(stdout);
}

/* ---- Files ---- */

static void write_file(const options *o, problem p, const char *what, size_t count,
                       const named_tensor *tensors) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s.%d.%s.safetensors", o->out, networks[p.network].name, p.draw, what);
    if (!write_tensors(path, count, tensors)) give_up("cannot write", path);
}

static void keep_inputs(const options *o, problem p) {
    network n;
    tu_value fetch[MAX_RESULTS];
    results r;
    named_tensor tensors[MAX_TENSORS];
    build(p.network, TU_F32, &n, fetch, &r);
    for (int i = 0; i < n.tensor_count; i++)
        tensors[i] = (named_tensor){n.tensors[i].name, tu_value_type(n.tensors[i].value),
                                    fill_tensor(&n.tensors[i], sequence_of(p, i), TU_F32)};
    write_file(o, p, "inputs", (size_t)n.tensor_count, tensors);
    for (int i = 0; i < n.tensor_count; i++) free((void *)tensors[i].data);
    tu_graph_free(n.graph);
}

static void keep_results(const options *o, problem p, const run *how, const results *r) {
    named_tensor tensors[MAX_RESULTS];
    char what[64];
    for (int i = 0; i < r->count; i++)
        tensors[i] = (named_tensor){r->name[i], {TU_F64, r->shape[i]}, r->numbers[i]};
    snprintf(what, sizeof what, "%s-%s", how->device, how->precision);
    write_file(o, p, what, (size_t)r->count, tensors);
}

/* ---- The command line ---- */

static void measure_draw(const options *o, problem p, errors *list) {
    static const run oracle = {"ref", "f64"};
    results wanted = compute(p, &oracle);
    if (o->out) {
        keep_inputs(o, p);
        keep_results(o, p, &oracle, &wanted);
    }
    for (int i = 0; i < o->run_count; i++) {
        results found = compute(p, &o->runs[i]);
        add_errors(&list[i], o, p.draw, &found, &wanted);
        if (o->out) keep_results(o, p, &o->runs[i], &found);
        free_results(&found);
    }
    free_results(&wanted);
}

/* How many runs were off by more than is asked for. */
static int measure(const options *o, int which) {
    static errors list[MAX_RUNS];
    int wrong = 0;
    memset(list, 0, sizeof list);
    for (int draw = 0; draw < o->draws; draw++)
        measure_draw(o, (problem){.network = which, .draw = draw}, list);
    for (int i = 0; i < o->run_count; i++) {
        print_errors(o, which, &o->runs[i], &list[i]);
        wrong += list[i].wrong;
    }
    return wrong;
}

static int read_draws(const char *word) {
    char *end;
    long draws = strtol(word, &end, 10);
    if (end == word || *end || draws < 1 || draws > MAX_DRAWS)
        give_up("--draws is followed by a number from 1 to 99, not", word);
    return (int)draws;
}

static double read_error(const char *word) {
    char *end;
    double error = strtod(word, &end);
    if (end == word || *end || !(error > 0)) give_up("--most is followed by a number above 0, not", word);
    return error;
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
    options o = {.draws = 1};
    for (int i = 1; i < count; i++) {
        bool only = strcmp(words[i], "--only") == 0, out = strcmp(words[i], "--out") == 0;
        bool most = strcmp(words[i], "--most") == 0, draws = strcmp(words[i], "--draws") == 0;
        if ((only || out || most || draws) && ++i == count)
            give_up("what follows is missing behind", words[i - 1]);
        if (only)
            o.only = words[i];
        else if (out)
            o.out = words[i];
        else if (most)
            o.most = read_error(words[i]);
        else if (draws)
            o.draws = read_draws(words[i]);
        else if (o.run_count == MAX_RUNS)
            give_up("there are too many runs, the first too many is", words[i]);
        else
            o.runs[o.run_count++] = read_run(words[i]);
    }
    return o;
}

int main(int count, char **words) {
    options o = read_words(count, words);
    int known = 0, wrong = 0;
    printf("%-20s %-10s %-5s %9s %9s  %s\n", "network", "device", "in", "loss", "gradient", "the worst");
    for (int i = 0; i < NETWORKS; i++) {
        if (o.only && strcmp(o.only, networks[i].name) != 0) continue;
        wrong += measure(&o, i);
        known++;
    }
    if (!known) give_up("there is no network", o.only);
    if (wrong) fprintf(stderr, "bench_numerics: %d results are off by more than %g\n", wrong, o.most);
    return wrong ? 1 : 0;
}
