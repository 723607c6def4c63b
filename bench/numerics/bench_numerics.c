/* Measures the errors of losses and gradients of networks against f64, on any device and in any precision.
 *
 *     bench_numerics [--only NAME] [--draws N] [--out FOLDER] [--most ERROR] RUN...
 *     bench_numerics cpu/f32 cpu/bf16 gpu:0/f32 gpu:0/tf32 gpu:0/bf16
 *
 * A RUN is a device and a precision. Its results are compared with those of the reference device in f64. For each
 * network and run the program prints the relative error of the loss and the largest relative error of a gradient,
 * each as |difference| / |expected| in the Euclidean norm. With --draws N, N sets of random weights and data are
 * used (default 1) and medians are printed: if the input of a ReLU is close to zero, rounding may change its sign, so
 * a single set may not be typical.
 *
 * --out saves inputs and results for bench/compare/numerics.py. With --most the exit status is 1 if any error
 * exceeds ERROR. */
#include <math.h>
#include <string.h>

#include "../measure.h"
#include "networks.h"
#include "tensor_file.h"

enum { MAX_RUNS = 16, MAX_SETS = 99, MAX_RESULTS = MAX_TENSORS + 1, PATH = 512 };

typedef struct run {
    char device[32], precision[8];
} run;

typedef struct results {
    int count;
    char name[MAX_RESULTS][TENSOR_NAME]; /* "loss", then the inputs whose gradients follow */
    tu_shape shape[MAX_RESULTS];
    double *numbers[MAX_RESULTS];
} results;

typedef struct options {
    const char *only, *out;
    double max_error; /* of --most; 0: no limit */
    int set_count;    /* of --draws */
    int run_count;
    run runs[MAX_RUNS];
} options;

static void fail(const char *what, const char *which) {
    fprintf(stderr, "bench_numerics: %s '%s'\n", what, which);
    exit(2);
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) fail("out of memory in", "allocate");
    return memory;
}

/* ---- Data ---- */

/* Returns number `index` of the random sequence of a tensor (splitmix64). */
static uint64_t random_bits(uint64_t sequence, uint64_t index) {
    uint64_t x = (sequence << 40) + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Returns an element that f32 represents exactly, so that all precisions get the same inputs. */
static float element_of(const tensor *t, uint64_t bits) {
    double uniform = (double)(bits >> 11) * 0x1p-53;
    return (float)(t->mean + t->stddev * sqrt(3) * (2 * uniform - 1));
}

static void *fill_tensor(const tensor *t, uint64_t sequence, tu_dtype dtype) {
    int64_t count = tu_shape_elements(tu_value_shape(t->value));
    void *data = allocate((size_t)count * sizeof(double));
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = random_bits(sequence, (uint64_t)i);
        if (t->classes)
            ((int32_t *)data)[i] = (int32_t)(bits % (uint64_t)t->classes);
        else if (dtype == TU_F64)
            ((double *)data)[i] = element_of(t, bits);
        else
            ((float *)data)[i] = element_of(t, bits);
    }
    return data;
}

/* A network with one set of random weights and data. */
typedef struct problem {
    int network, set;
} problem;

static uint64_t sequence_of(problem p, int index) {
    return ((uint64_t)p.set * NETWORKS + (uint64_t)p.network) * MAX_TENSORS + (uint64_t)index + 1;
}

/* ---- Running a network ---- */

static int list_differentiated(const network *n, tu_value differentiated[MAX_TENSORS], results *r) {
    int count = 0;
    for (int i = 0; i < n->tensor_count; i++) {
        if (!n->tensors[i].differentiated) continue;
        differentiated[count++] = n->tensors[i].value;
        snprintf(r->name[count], sizeof r->name[count], "%s", n->tensors[i].name);
    }
    return count;
}

static void store_result(results *r, int i, tu_value value, const void *out) {
    r->shape[i] = tu_value_shape(value);
    int64_t count = tu_shape_elements(r->shape[i]);
    r->numbers[i] = allocate((size_t)count * sizeof(double));
    for (int64_t e = 0; e < count; e++)
        r->numbers[i][e] =
            tu_value_dtype(value) == TU_F64 ? ((const double *)out)[e] : ((const float *)out)[e];
}

/* Builds the network in `dtype`, with its gradients, and lists the values to fetch. */
static void build(int index, tu_dtype dtype, network *n, tu_value fetch[MAX_RESULTS], results *r) {
    tu_value differentiated[MAX_TENSORS];
    *n = (network){.dtype = dtype};
    must(tu_graph_new(&n->graph));
    fetch[0] = networks[index].build(n);
    must(tu_graph_status(n->graph));
    snprintf(r->name[0], sizeof r->name[0], "loss");
    r->count = 1 + list_differentiated(n, differentiated, r);
    must(tu_gradients(fetch[0], (size_t)r->count - 1, differentiated, &fetch[1]));
}

static results compute(problem p, const run *config) {
    network n;
    tu_value fetch[MAX_RESULTS];
    tu_program *program;
    tu_state *state;
    tu_feed feeds[MAX_TENSORS];
    void *fed[MAX_TENSORS], *out[MAX_RESULTS];
    results r = {0};
    bool is_f64 = strcmp(config->precision, "f64") == 0;
    build(p.network, is_f64 ? TU_F64 : TU_F32, &n, fetch, &r);
    must(tu_compile(n.graph, &program, .devices = config->device, .fetch = fetch,
                    .fetch_count = (size_t)r.count, .precision = is_f64 ? NULL : config->precision));
    must(tu_state_new(n.graph, &state));
    for (int i = 0; i < n.tensor_count; i++) {
        fed[i] = fill_tensor(&n.tensors[i], sequence_of(p, i), n.dtype);
        feeds[i] = (tu_feed){n.tensors[i].value, fed[i]};
    }
    for (int i = 0; i < r.count; i++) out[i] = allocate(tu_type_bytes(tu_value_type(fetch[i])));
    must(tu_run(program, state, (size_t)n.tensor_count, feeds, out));
    for (int i = 0; i < r.count; i++) {
        store_result(&r, i, fetch[i], out[i]);
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

/* Returns |found - expected| / |expected|; infinity instead of NaN. */
static double relative_error(const results *found, const results *expected, int i) {
    double difference = 0, size = 0;
    for (int64_t e = 0; e < tu_shape_elements(expected->shape[i]); e++) {
        double w = expected->numbers[i][e], d = found->numbers[i][e] - w;
        difference += d * d, size += w * w;
    }
    double error = sqrt(difference / size);
    return isnan(error) ? INFINITY : error;
}

/* The errors of a run, per set. */
typedef struct errors {
    double loss[MAX_SETS], gradient[MAX_SETS];
    double largest;          /* gradient error over all sets */
    char worst[TENSOR_NAME]; /* the name of that gradient's input */
    bool exceeded;           /* an error exceeds --most */
} errors;

static void add_errors(errors *e, const options *o, int set, const results *found, const results *expected) {
    e->loss[set] = relative_error(found, expected, 0);
    e->gradient[set] = 0;
    for (int i = 1; i < expected->count; i++) {
        double error = relative_error(found, expected, i);
        if (error > e->gradient[set]) e->gradient[set] = error;
        if (error <= e->largest) continue;
        e->largest = error;
        snprintf(e->worst, sizeof e->worst, "%s", expected->name[i]);
    }
    if (o->max_error > 0 && (e->loss[set] > o->max_error || e->gradient[set] > o->max_error))
        e->exceeded = true;
}

static void print_errors(const options *o, int index, const run *config, errors *e) {
    printf("%-20s %-10s %-5s %9.2e %9.2e  %s\n", networks[index].name, config->device, config->precision,
           median(e->loss, (size_t)o->set_count), median(e->gradient, (size_t)o->set_count), e->worst);
    fflush(stdout);
}

/* ---- Files ---- */

static void write_file(const options *o, problem p, const char *what, size_t count,
                       const named_tensor *tensors) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s.%d.%s.safetensors", o->out, networks[p.network].name, p.set, what);
    if (!write_tensors(path, count, tensors)) fail("cannot write", path);
}

static void save_inputs(const options *o, problem p) {
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

static void save_results(const options *o, problem p, const run *config, const results *r) {
    named_tensor tensors[MAX_RESULTS];
    char what[64];
    for (int i = 0; i < r->count; i++)
        tensors[i] = (named_tensor){r->name[i], {TU_F64, r->shape[i]}, r->numbers[i]};
    snprintf(what, sizeof what, "%s-%s", config->device, config->precision);
    write_file(o, p, what, (size_t)r->count, tensors);
}

/* ---- Command line ---- */

static void measure_set(const options *o, problem p, errors *list) {
    static const run reference = {"ref", "f64"};
    results expected = compute(p, &reference);
    if (o->out) {
        save_inputs(o, p);
        save_results(o, p, &reference, &expected);
    }
    for (int i = 0; i < o->run_count; i++) {
        results found = compute(p, &o->runs[i]);
        add_errors(&list[i], o, p.set, &found, &expected);
        if (o->out) save_results(o, p, &o->runs[i], &found);
        free_results(&found);
    }
    free_results(&expected);
}

/* Returns the number of runs with errors above --most. */
static int measure(const options *o, int index) {
    static errors list[MAX_RUNS];
    int exceeded = 0;
    memset(list, 0, sizeof list);
    for (int set = 0; set < o->set_count; set++)
        measure_set(o, (problem){.network = index, .set = set}, list);
    for (int i = 0; i < o->run_count; i++) {
        print_errors(o, index, &o->runs[i], &list[i]);
        exceeded += list[i].exceeded;
    }
    return exceeded;
}

static int parse_draws(const char *word) {
    char *end;
    long draws = strtol(word, &end, 10);
    if (end == word || *end || draws < 1 || draws > MAX_SETS)
        fail("--draws: expected a number from 1 to 99, not", word);
    return (int)draws;
}

static double parse_error(const char *word) {
    char *end;
    double error = strtod(word, &end);
    if (end == word || *end || !(error > 0)) fail("--most: expected a number above 0, not", word);
    return error;
}

/* Parses "gpu:0/bf16". */
static run parse_run(const char *word) {
    static const char *const precisions[] = {"f64", "f32", "tf32", "bf16", "f16"};
    run r;
    const char *slash = strrchr(word, '/');
    if (!slash || (size_t)(slash - word) >= sizeof r.device || strlen(slash + 1) >= sizeof r.precision)
        fail("expected a device and a precision, such as cpu/bf16, not", word);
    snprintf(r.device, sizeof r.device, "%.*s", (int)(slash - word), word);
    snprintf(r.precision, sizeof r.precision, "%s", slash + 1);
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        if (strcmp(r.precision, precisions[i]) == 0) return r;
    fail("expected the precision f64, f32, tf32, bf16 or f16, not that of", word);
    return r;
}

static options parse_options(int argc, char **argv) {
    options o = {.set_count = 1};
    for (int i = 1; i < argc; i++) {
        bool only = strcmp(argv[i], "--only") == 0, out = strcmp(argv[i], "--out") == 0;
        bool max_error = strcmp(argv[i], "--most") == 0, draws = strcmp(argv[i], "--draws") == 0;
        if ((only || out || max_error || draws) && ++i == argc) fail("a value is missing after", argv[i - 1]);
        if (only)
            o.only = argv[i];
        else if (out)
            o.out = argv[i];
        else if (max_error)
            o.max_error = parse_error(argv[i]);
        else if (draws)
            o.set_count = parse_draws(argv[i]);
        else if (o.run_count == MAX_RUNS)
            fail("too many runs (at most 16):", argv[i]);
        else
            o.runs[o.run_count++] = parse_run(argv[i]);
    }
    return o;
}

int main(int argc, char **argv) {
    options o = parse_options(argc, argv);
    int selected = 0, exceeded = 0;
    printf("%-20s %-10s %-5s %9s %9s  %s\n", "network", "device", "dtype", "loss", "gradient",
           "worst gradient");
    for (int i = 0; i < NETWORKS; i++) {
        if (o.only && strcmp(o.only, networks[i].name) != 0) continue;
        exceeded += measure(&o, i);
        selected++;
    }
    if (!selected) fail("unknown network", o.only);
    if (exceeded) fprintf(stderr, "bench_numerics: %d runs have errors above %g\n", exceeded, o.max_error);
    return exceeded ? 1 : 0;
}
