/* Runs randomised kernel tests: see sweep.h.
 *
 *     test_sweep DEVICE COUNT [FIRST [TYPES [FAMILIES]]]
 *     test_sweep cpu 2000                    runs the regression cases, then seeds 0 … 1,999
 *     test_sweep cpu 1 12345                 repeats one case
 *     test_sweep gpu:0 1000 0 tf32,bf16 convolution,matmul
 *
 * TYPES (f32 f64 bf16 f16 tf32, separated by commas; "all") restricts the random choice, so a seed gives the same
 * case only with the same types. For a failed case, the command that repeats it is printed. */
#include "sweep/sweep.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/number.h"
#include "graph/graph.h"

enum { MAX_INPUTS = 16, MAX_RESULTS = 16, GUARD = 64, PATTERN = 0xa5 };

typedef struct expectation {
    const char *what;
    tu_value value, expected, magnitude; /* expected: only for sweep_expect_equal */
    bool is_device_result;               /* the device computes the value; else only the oracle does */
    bool is_dot_product;                 /* tf32 may round its operands */
    bool terms_rounded;                  /* see sweep_expect_dot_products */
    bool has_magnitude;
    bool is_equality; /* of sweep_expect_equal */
    int64_t terms;
} expectation;

struct sweep {
    uint64_t random_state;
    tu_dtype dtype; /* of the case */
    bool tf32, oracle, failed;
    int threads;
    tu_graph *graph;
    int input_count, result_count;
    tu_value inputs[MAX_INPUTS];
    double *data[MAX_INPUTS];
    expectation results[MAX_RESULTS];
    double *device_numbers[MAX_RESULTS]; /* results of the device, as doubles */
    tu_value device_results[MAX_RESULTS];
    char note[400], kernels[400]; /* the case's sizes, and the kernels that computed it */
    double max_error_ratio;       /* maximum of error / bound */
};

/* ---- Random numbers ---- */

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(sweep *s) {
    uint64_t x = s->random_state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

int64_t sweep_random_int(sweep *s, int64_t low, int64_t high) {
    return low + (int64_t)(next_random(s) % (uint64_t)(high - low + 1));
}

bool sweep_one_in(sweep *s, int64_t n) {
    return sweep_random_int(s, 1, n) == 1;
}

double sweep_random_double(sweep *s, double low, double high) {
    return low + (high - low) * ((double)(next_random(s) >> 11) * 0x1p-53);
}

int64_t sweep_size(sweep *s, int64_t max) {
    static const int64_t odd[] = {1,  1,  2,  3,  5,  7,  11, 13, 17, 19,  23,  29,  31,  37,  41,
                                  50, 53, 61, 65, 67, 70, 79, 93, 97, 101, 127, 129, 131, 193, 257};
    static const int64_t even[] = {4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
    for (;;) {
        int64_t size = sweep_one_in(s, 4)   ? sweep_random_int(s, 1, max)
                       : sweep_one_in(s, 3) ? even[sweep_random_int(s, 0, sizeof even / sizeof *even - 1)]
                                            : odd[sweep_random_int(s, 0, sizeof odd / sizeof *odd - 1)];
        if (size <= max) return size;
    }
}

tu_shape sweep_shape(sweep *s, int64_t rank, int64_t max) {
    int64_t dims[TU_MAX_RANK];
    for (int64_t i = 0; i < rank; i++) dims[i] = sweep_size(s, max);
    return tu_shape_of((size_t)rank, dims);
}

/* ---- Building ---- */

tu_graph *sweep_graph(sweep *s) {
    return s->graph;
}

tu_dtype sweep_dtype(const sweep *s) {
    return s->oracle ? TU_F64 : s->dtype;
}

bool sweep_is_oracle(const sweep *s) {
    return s->oracle;
}

bool sweep_is_16_bit(const sweep *s) {
    return s->dtype == TU_BF16 || s->dtype == TU_F16;
}

void sweep_note(sweep *s, const char *format, ...) {
    if (s->oracle) return; /* the case was described when it was built for the device */
    size_t length = strlen(s->note);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->note + length, sizeof s->note - length, format, arguments);
    va_end(arguments);
}

static tu_value add_input(sweep *s, tu_dtype dtype, tu_shape shape, double *data) {
    char name[16];
    snprintf(name, sizeof name, "x%d", s->input_count);
    s->data[s->input_count] = data;
    return s->inputs[s->input_count++] = tu_input(s->graph, name, dtype, shape);
}

static double *new_array(tu_shape shape) {
    return calloc((size_t)tu_shape_elements(shape), sizeof(double));
}

tu_value sweep_input_between(sweep *s, tu_shape shape, double low, double high) {
    int64_t count = tu_shape_elements(shape);
    double *data = new_array(shape);
    for (int64_t i = 0; i < count; i++) data[i] = sweep_random_double(s, low, high);
    tu__round_array(s->dtype, data, count);
    return add_input(s, sweep_dtype(s), shape, data);
}

tu_value sweep_input(sweep *s, tu_shape shape) {
    return sweep_input_between(s, shape, -1, 1);
}

tu_value sweep_frozen_input(sweep *s, tu_shape shape) {
    if (s->oracle) return sweep_input(s, shape);
    int64_t count = tu_shape_elements(shape);
    tu__shared_data *shared = tu__shared_data_new((size_t)count * tu_dtype_size(s->dtype), "weights");
    double *data = new_array(shape);
    for (int64_t i = 0; i < count; i++) data[i] = sweep_random_double(s, -1, 1);
    tu__round_array(s->dtype, data, count);
    tu__store_array(s->dtype, data, count, shared->data);
    free(data);
    struct tu__constant_attrs attrs = {.dtype = s->dtype, .shape = shape};
    tu_value constant =
        tu__make(s->graph, &(tu__node_request){.op = TU__OP_CONSTANT, .attrs = &attrs, .shared = shared});
    tu__shared_data_release(shared);
    s->graph->is_frozen = true;
    return constant;
}

tu_value sweep_input_filled(sweep *s, tu_shape shape, void (*fill)(sweep *s, double *data, tu_shape shape)) {
    double *data = new_array(shape);
    fill(s, data, shape);
    tu__round_array(s->dtype, data, tu_shape_elements(shape));
    return add_input(s, sweep_dtype(s), shape, data);
}

tu_value sweep_input_integers(sweep *s, tu_shape shape, int64_t low, int64_t high) {
    int64_t count = tu_shape_elements(shape);
    double *data = new_array(shape);
    for (int64_t i = 0; i < count; i++) data[i] = (double)sweep_random_int(s, low, high - 1);
    return add_input(s, TU_I32, shape, data);
}

tu_value sweep_input_bytes(sweep *s, tu_dtype dtype, tu_shape shape, int64_t low, int64_t high,
                           bool extreme) {
    int64_t count = tu_shape_elements(shape);
    double *data = new_array(shape);
    for (int64_t i = 0; i < count; i++) {
        const int64_t random =
            extreme ? (sweep_one_in(s, 2) ? low : high - 1) : sweep_random_int(s, low, high - 1);
        data[i] = (double)random;
    }
    return add_input(s, dtype, shape, data);
}

/* ---- Expectations ---- */

static expectation *add_result(sweep *s, const char *what, tu_value value, int64_t terms,
                               const tu_value *magnitude) {
    expectation *e = &s->results[s->result_count++];
    *e = (expectation){.what = what, .value = value, .terms = terms, .is_device_result = true};
    if (magnitude) e->magnitude = *magnitude;
    e->has_magnitude = magnitude != NULL;
    return e;
}

void sweep_expect(sweep *s, const char *what, tu_value value, int64_t terms, const tu_value *magnitude) {
    add_result(s, what, value, terms, magnitude);
}

void sweep_expect_dot_products(sweep *s, const char *what, tu_value value, int64_t terms, bool rounded,
                               const tu_value *magnitude) {
    expectation *e = add_result(s, what, value, terms, magnitude);
    e->is_dot_product = true;
    e->terms_rounded = rounded;
}

bool sweep_device_used(const sweep *s, const char *name) {
    return strstr(s->kernels, name) != NULL;
}

tu_value sweep_device_result(sweep *s, tu_value value) {
    int index = s->result_count;
    expectation *e = add_result(s, "device result", value, 0, NULL);
    if (!s->oracle) return value;
    tu_shape shape = tu_value_shape(value);
    double *data = new_array(shape);
    memcpy(data, s->device_numbers[index], (size_t)tu_shape_elements(shape) * sizeof *data);
    e->is_device_result = false; /* the value itself is not compared, only what is computed from it */
    s->device_results[index] = add_input(s, TU_F64, shape, data);
    return s->device_results[index];
}

void sweep_expect_equal(sweep *s, const char *what, tu_value left, tu_value right, int64_t terms,
                        tu_value magnitude) {
    if (!s->oracle) return;
    expectation *e = &s->results[s->result_count++];
    *e = (expectation){.what = what,
                       .value = left,
                       .expected = right,
                       .magnitude = magnitude,
                       .has_magnitude = true,
                       .is_equality = true,
                       .terms = terms};
}

void sweep_differentiate(sweep *s, sweep_bilinear y_of, const void *context, size_t count,
                         const tu_value *operands, tu_value *y, tu_value *y_magnitude, tu_value *gradients,
                         tu_value *magnitudes) {
    tu_value absolute[MAX_INPUTS];
    *y = y_of(context, operands);
    tu_value dy = sweep_input(s, tu_value_shape(*y));
    tu_gradients(tu_sum(tu_mul(*y, dy)), count, operands, gradients);
    if (!s->oracle) return;
    for (size_t i = 0; i < count; i++) absolute[i] = tu_abs(operands[i]);
    *y_magnitude = y_of(context, absolute);
    tu_gradients(tu_sum(tu_mul(*y_magnitude, tu_abs(dy))), count, absolute, magnitudes);
}

/* ---- Running ---- */

static double eps_of(tu_dtype dtype) {
    switch (dtype) {
    case TU_F32: return 0x1p-23;
    case TU_BF16: return 0x1p-7;
    case TU_F16: return 0x1p-10;
    default: return 0x1p-52;
    }
}

/* Returns the smallest number above zero; for f32, bf16 and f64 the smallest normal number, since processors may
 * flush subnormal numbers to zero. */
static double smallest_above_zero(tu_dtype dtype) {
    switch (dtype) {
    case TU_F16: return 0x1p-24;
    case TU_F64: return 0x1p-1022;
    default: return 0x1p-126;
    }
}

static void free_graph(sweep *s) {
    for (int i = 0; i < s->input_count; i++) free(s->data[i]);
    tu_graph_free(s->graph);
    s->graph = NULL;
    s->input_count = s->result_count = 0;
}

static void record_kernels(sweep *s, const tu_program *program) {
    tu_kernel_report report = TU_SIZED(tu_kernel_report);
    size_t length = 0;
    for (size_t i = 0; i < tu_program_kernel_count(program) &&
                       tu_program_kernel(program, i, &report) == TU_OK && length < sizeof s->kernels;
         i++)
        length += (size_t)snprintf(s->kernels + length, sizeof s->kernels - length, "%s%s", i ? ", " : "",
                                   report.kernel);
}

/* Runs the graph and fetches `count` values as doubles. Prints a line and returns false on failure. */
static bool fetch(sweep *s, const char *device, int threads, const char *precision, int count,
                  const tu_value *values, double **results) {
    tu_program *program = NULL;
    tu_state *state = NULL;
    tu_feed feeds[MAX_INPUTS];
    void *targets[3 * MAX_RESULTS];
    bool passed = tu_state_new(s->graph, &state, .seed = 3) == TU_OK &&
                  tu_compile(s->graph, &program, .devices = device, .threads = threads, .fetch = values,
                             .fetch_count = (size_t)count, .precision = precision) == TU_OK;
    for (int i = 0; i < s->input_count; i++) {
        tu_type type = tu_value_type(s->inputs[i]);
        void *typed = malloc(tu_type_bytes(type));
        tu__store_array(type.dtype, s->data[i], tu_shape_elements(type.shape), typed);
        feeds[i] = (tu_feed){s->inputs[i], typed};
    }
    for (int i = 0; i < count; i++) {
        size_t bytes = tu_type_bytes(tu_value_type(values[i]));
        targets[i] = (char *)memset(malloc(bytes + 2 * GUARD), PATTERN, bytes + 2 * GUARD) + GUARD;
    }
    passed = passed && tu_run(program, state, (size_t)s->input_count, feeds, targets) == TU_OK;
    if (!passed) printf("FAIL on %s: %s\n", device, tu_message());
    if (program && !s->oracle) record_kernels(s, program);
    for (int i = 0; i < count; i++) {
        tu_type type = tu_value_type(values[i]);
        unsigned char *start = (unsigned char *)targets[i] - GUARD;
        size_t bytes = tu_type_bytes(type);
        for (size_t k = 0; k < GUARD; k++) {
            if (start[k] == PATTERN && start[GUARD + bytes + k] == PATTERN) continue;
            if (passed) printf("FAIL on %s: result %d was written out of bounds\n", device, i);
            passed = false;
        }
        results[i] = new_array(type.shape);
        tu__load_array(type.dtype, targets[i], tu_shape_elements(type.shape), results[i]);
        free(start);
    }
    for (int i = 0; i < s->input_count; i++) free((void *)feeds[i].data);
    tu_program_free(program);
    tu_state_free(state);
    return passed;
}

static double bound_of(const sweep *s, const expectation *e, tu_dtype out, double ref, double magnitude) {
    tu_dtype acc = s->dtype == TU_F64 ? TU_F64 : TU_F32;
    double factor = 2 * (double)(e->terms + 8) * eps_of(acc);
    if (e->is_dot_product && s->tf32) factor += 2 * 0x1p-10;
    if (e->terms_rounded) factor += eps_of(out);
    if (e->is_equality) return factor * magnitude;
    double smallest = (e->terms_rounded ? 2 : 1) * smallest_above_zero(out);
    return 4 * eps_of(out) * fabs(ref) + (e->has_magnitude ? factor * magnitude : 0) + smallest;
}

static bool check_result(sweep *s, const expectation *e, tu_dtype out, const double *got, const double *ref,
                         const double *magnitude, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        bool exact = !tu_dtype_is_float(out);
        double bound = exact ? 0 : bound_of(s, e, out, ref[i], magnitude ? magnitude[i] : 0);
        double error = fabs(got[i] - ref[i]);
        if (error <= bound || (isnan(got[i]) && isnan(ref[i]))) {
            if (bound > 0 && error / bound > s->max_error_ratio) s->max_error_ratio = error / bound;
            continue;
        }
        printf("FAIL %s: element %lld of %lld is %.9g, expected %.9g within %.3g\n", e->what, (long long)i,
               (long long)count, got[i], ref[i], bound);
        return false;
    }
    return true;
}

static bool run_device(sweep *s, const char *device, tu_dtype *types) {
    tu_value values[MAX_RESULTS] = {0};
    for (int i = 0; i < s->result_count; i++) {
        values[i] = s->results[i].value;
        types[i] = tu_value_dtype(values[i]);
    }
    return fetch(s, device, s->threads, s->tf32 ? "tf32" : NULL, s->result_count, values, s->device_numbers);
}

/* Fetches three values per expectation: its value, the expected value and the magnitude, if it has them. */
static bool run_oracle(sweep *s, const tu_dtype *types) {
    tu_value values[3 * MAX_RESULTS] = {0};
    double *numbers[3 * MAX_RESULTS] = {0};
    int count = 0, results = s->result_count;
    for (int i = 0; i < results; i++) {
        const expectation *e = &s->results[i];
        values[count++] = e->value;
        values[count++] = e->is_equality ? e->expected : e->value;
        values[count++] = e->has_magnitude ? e->magnitude : e->value;
    }
    bool passed = fetch(s, "ref", 1, NULL, count, values, numbers);
    for (int i = 0; i < results && passed; i++) {
        const expectation *e = &s->results[i];
        int64_t elements = tu_shape_elements(tu_value_shape(e->value));
        const double *left = e->is_equality ? numbers[3 * i] : s->device_numbers[i];
        if (e->is_device_result || e->is_equality)
            passed = check_result(s, e, e->is_equality ? TU_F64 : types[i], left, numbers[3 * i + 1],
                                  e->has_magnitude ? numbers[3 * i + 2] : NULL, elements);
    }
    for (int i = 0; i < count; i++) free(numbers[i]);
    return passed;
}

static bool build(sweep *s, void (*family)(sweep *s), bool oracle, uint64_t random_state) {
    s->oracle = oracle;
    s->random_state = random_state;
    if (tu_graph_new(&s->graph) != TU_OK) return false;
    family(s);
    if (tu_graph_status(s->graph) == TU_OK) return true;
    printf("FAIL to build%s: %s\n", oracle ? " the oracle" : "", tu_message());
    return false;
}

static bool run_case(sweep *s, const char *device, void (*family)(sweep *s)) {
    tu_dtype types[MAX_RESULTS];
    uint64_t random_state = s->random_state;
    bool passed = build(s, family, false, random_state) && run_device(s, device, types);
    int results = s->result_count;
    free_graph(s);
    passed = passed && build(s, family, true, random_state) && run_oracle(s, types);
    if (s->graph) free_graph(s);
    for (int i = 0; i < results; i++) free(s->device_numbers[i]);
    return passed;
}

/* ---- Random choice of a case ---- */

static const sweep_family families[] = {
#define FAMILY(name, weight, supports_16_bit) {#name, weight, supports_16_bit, sweep_##name},
    SWEEP_FAMILIES(FAMILY)
#undef FAMILY
};
enum { FAMILIES = sizeof families / sizeof *families };

static const struct {
    const char *name;
    tu_dtype dtype;
    bool tf32;
} kinds[] = {
    {"f32", TU_F32, false}, {"bf16", TU_BF16, false}, {"f64", TU_F64, false},
    {"f16", TU_F16, false}, {"tf32", TU_F32, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct case_filter {               /* the device, and restrictions of the random choice */
    const char *device, *types, *families; /* families: "": all */
    bool has_kind[KINDS], has_family[FAMILIES];
} case_filter;

static bool is_listed(const char *list, const char *name) {
    for (size_t length = strlen(name); list; list = strchr(list, ',')) {
        list += *list == ',';
        if (strncmp(list, name, length) == 0 && (list[length] == ',' || !list[length])) return true;
    }
    return false;
}

static int random_kind(sweep *s, const case_filter *p) {
    for (;;) {
        int kind = (int)sweep_random_int(s, 0, KINDS - 1);
        if (p->has_kind[kind]) return kind;
    }
}

static int random_family(sweep *s, const case_filter *p, bool is_16_bit) {
    int total = 0;
    for (int i = 0; i < FAMILIES; i++) total += families[i].weight;
    for (;;) {
        int64_t rest = sweep_random_int(s, 0, total - 1);
        int i = 0;
        while (rest >= families[i].weight) rest -= families[i++].weight;
        if (p->has_family[i] && (families[i].supports_16_bit || !is_16_bit)) return i;
    }
}

typedef struct tally {
    int64_t passed, failed;
    double seconds, max_error_ratio;
} tally;

static double monotonic_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add_to_tally(tally *t, bool passed, double seconds, double error_ratio) {
    t->passed += passed;
    t->failed += !passed;
    t->seconds += seconds;
    if (error_ratio > t->max_error_ratio) t->max_error_ratio = error_ratio;
}

/* `always_print`: prints the case even if it passes. */
static void run_seed(const case_filter *p, uint64_t seed, bool always_print, tally *tallies) {
    sweep s = {.random_state = seed * 0x2545f4914f6cdd1du + 1};
    int kind = random_kind(&s, p);
    s.dtype = kinds[kind].dtype;
    s.tf32 = kinds[kind].tf32;
    s.threads = (int)sweep_random_int(&s, 1, 3);
    int family = random_family(&s, p, sweep_is_16_bit(&s));
    double start = monotonic_seconds();
    bool passed = run_case(&s, p->device, families[family].build);
    add_to_tally(&tallies[family], passed, monotonic_seconds() - start, s.max_error_ratio);
    if (!passed || always_print)
        printf("     %s %s,%s on %d threads, by %s; repeat: test_sweep %s 1 %llu %s %s\n",
               families[family].name, kinds[kind].name, s.note, s.threads, s.kernels, p->device,
               (unsigned long long)seed, p->types, p->families);
}

static void run_regressions(const case_filter *p, tally *t) {
    for (int i = 0; i < sweep_regression_count; i++)
        for (int threads = 1; threads <= 3; threads++) {
            const sweep_regression *regression = &sweep_regressions[i];
            sweep s = {
                .random_state = 1, .dtype = regression->dtype, .tf32 = regression->tf32, .threads = threads};
            double start = monotonic_seconds();
            bool passed = run_case(&s, p->device, regression->build);
            add_to_tally(t, passed, monotonic_seconds() - start, s.max_error_ratio);
            if (!passed)
                printf("     regression case \"%s\" on %d threads,%s, by %s\n", regression->name, threads,
                       s.note, s.kernels);
        }
}

static void print_tally(const char *name, const tally *t) {
    if (t->passed + t->failed)
        printf("%-24s %7lld passed %4lld failed  %7.1f s  maximum error %.2f of the bound\n", name,
               (long long)t->passed, (long long)t->failed, t->seconds, t->max_error_ratio);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: test_sweep DEVICE COUNT [FIRST [TYPES [FAMILIES]]]\n");
        return 2;
    }
    case_filter p = {.device = argv[1]};
    long long count = atoll(argv[2]), first = argc > 3 ? atoll(argv[3]) : 0;
    bool is_gpu = strncmp(p.device, "gpu", 3) == 0;
    const char *types = argc > 4 && strcmp(argv[4], "all") != 0 ? argv[4]
                        : is_gpu                                ? "f32,bf16,f64,f16,tf32"
                                                                : "f32,bf16,f64,f16";
    p.types = types;
    p.families = argc > 5 ? argv[5] : "";
    bool any_kind = false, any_family = false;
    for (int i = 0; i < KINDS; i++) any_kind |= p.has_kind[i] = is_listed(types, kinds[i].name);
    bool has_f32_or_f64 =
        p.has_kind[0] || p.has_kind[2] || p.has_kind[4]; /* families without 16-bit types need one of these */
    for (int i = 0; i < FAMILIES; i++)
        any_family |= p.has_family[i] = (!*p.families || is_listed(p.families, families[i].name)) &&
                                        (families[i].supports_16_bit || has_f32_or_f64);
    if (!any_kind || !any_family) {
        fprintf(stderr, "test_sweep: TYPES or FAMILIES match nothing: see the list in tests/sweep/sweep.h\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that the output is complete even if the process is killed */
    tally tallies[FAMILIES] = {0}, regressions = {0}, total = {0};
    printf("test_sweep %s: seeds %lld to %lld, %s\n", p.device, first, first + count - 1, types);
    if (first == 0 && argc <= 4) run_regressions(&p, &regressions);
    for (long long seed = first; seed < first + count; seed++)
        run_seed(&p, (uint64_t)seed, count == 1, tallies);
    print_tally("regressions", &regressions);
    for (int i = 0; i < FAMILIES; i++) {
        print_tally(families[i].name, &tallies[i]);
        total.passed += tallies[i].passed;
        total.failed += tallies[i].failed;
    }
    printf("%lld passed, %lld failed\n", (long long)total.passed + regressions.passed,
           (long long)total.failed + regressions.failed);
    return total.failed || regressions.failed || !total.passed;
}
