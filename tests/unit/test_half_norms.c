/* Batch and layer normalisation, variances and standardised images in bf16 and f16: statistics are computed in f32
 * whatever the type of the parameters, so that a mean far from zero does not reduce the precision of y, its
 * gradients, or their gradients.
 *
 *     test_half_norms [DEVICE ...]     default: ref, cpu, and two logical devices of a cpu; on a GPU or the fake GPU:
 *                                      gpu:0
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/number.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "test.h"

enum { MAX_DEVICES = 4, INPUTS = 4, RESULTS = 8 };

static const char *devices[MAX_DEVICES] = {"ref", "cpu", "cpu:0/2"};
static int device_count = 3;

typedef struct problem {
    bool layer;
    tu_dtype dtype;
    int64_t rows, width;
    bool old_format; /* as in graph files of an earlier version: parameters and statistics are 16-bit */
} problem;

/* Fetched: y, both statistics, the loss, its three gradients, and the gradient of |dx|^2 with respect to x. */
enum { Y, MEAN, VARIANCE_OR_RSTD, LOSS, DX, DGAMMA, DBETA, SECOND };
static const char *const names[RESULTS] = {"y",
                                           "mean",
                                           "variance or inverse standard deviation",
                                           "loss",
                                           "gradient of x",
                                           "gradient of gamma",
                                           "gradient of beta",
                                           "second-order gradient"};

typedef struct results {
    int64_t count[RESULTS];
    tu_dtype dtype[RESULTS];
    double *numbers[RESULTS];
} results;

static tu_value normalized(const problem *p, tu_value x, tu_value gamma, tu_value beta) {
    const struct tu__layer_norm_attrs layer = {.epsilon = 1e-5, .axes = 1};
    const struct tu__batch_norm_attrs batch = {.epsilon = 1e-5};
    if (p->old_format)
        return p->layer ? tu__apply(LAYER_NORM, &layer, x, gamma, beta)
                        : tu__apply(BATCH_NORM, &batch, x, gamma, beta);
    return p->layer ? tu_layer_normalize(x, gamma, beta) : tu_batch_normalize(x, gamma, beta);
}

static void build_problem(const problem *p, tu_graph *g, tu_value in[INPUTS], tu_value fetch[RESULTS]) {
    in[0] = tu_batch_input(g, "x", p->dtype, TU_SHAPE(p->rows, p->width));
    in[1] = tu_batch_input(g, "weights", p->dtype, TU_SHAPE(p->rows, p->width));
    in[2] = tu_input(g, "gamma", p->dtype, TU_SHAPE(p->width));
    in[3] = tu_input(g, "beta", p->dtype, TU_SHAPE(p->width));
    tu_value y = normalized(p, in[0], in[2], in[3]);
    tu_dtype wide = p->dtype == TU_F64 ? TU_F64 : TU_F32;
    fetch[Y] = y, fetch[MEAN] = tu_output_of(y, 1), fetch[VARIANCE_OR_RSTD] = tu_output_of(y, 2);
    tu_value weights = tu_cast(in[1], wide);
    fetch[LOSS] = tu_mean(tu_mul(weights, tu_add(weights, tu_cast(y, wide))));
    assert_int_equal(tu_gradients(fetch[LOSS], 3, (tu_value[]){in[0], in[2], in[3]}, &fetch[DX]), TU_OK);
    tu_value dx = tu_scale(tu_cast(fetch[DX], wide), (double)(p->rows * p->width));
    assert_int_equal(tu_gradients(tu_mean(tu_square(dx)), 1, in, &fetch[SECOND]), TU_OK);
}

/* Returns numbers that are exact in 16-bit types, so that the f64 run has the same input: x has mean 20 and standard
 * deviation 1. */
static double element(int input, int64_t i) {
    static const double centers[INPUTS] = {20, 0.5, 1, 0};
    uint32_t bits = (uint32_t)i * 2654435761u + (uint32_t)input * 40503u;
    double random = (double)((bits >> 9) % 4001) / 1000 - 2;
    return tu__round_to(TU_BF16, centers[input] + (input == 0 ? random : random / 2));
}

static results compute(const problem *p, const char *device) {
    tu_graph *g;
    tu_value in[INPUTS], fetch[RESULTS];
    tu_program *program;
    tu_state *state;
    tu_feed feeds[INPUTS];
    void *data[INPUTS], *out[RESULTS];
    results r;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    build_problem(p, g, in, fetch);
    if (tu_compile(g, &program, .devices = device, .strategy = strchr(device, '/') ? "mirrored" : NULL,
                   .fetch = fetch, .fetch_count = RESULTS) != TU_OK)
        fail_msg("%s: %s", device, tu_message());
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    for (int i = 0; i < INPUTS; i++) {
        tu_type type = tu_value_type(in[i]);
        assert_non_null(data[i] = malloc(tu_type_bytes(type)));
        for (int64_t e = 0; e < tu_shape_elements(type.shape); e++)
            tu__store(type.dtype, data[i], e, element(i, e));
        feeds[i] = (tu_feed){in[i], data[i]};
    }
    for (int i = 0; i < RESULTS; i++)
        assert_non_null(out[i] = malloc(tu_type_bytes(tu_value_type(fetch[i]))));
    if (tu_run(program, state, INPUTS, feeds, out) != TU_OK) fail_msg("%s: %s", device, tu_message());
    for (int i = 0; i < RESULTS; i++) {
        tu_type type = tu_value_type(fetch[i]);
        r.count[i] = tu_shape_elements(type.shape);
        r.dtype[i] = type.dtype;
        assert_non_null(r.numbers[i] = malloc((size_t)r.count[i] * sizeof(double)));
        tu__load_array(type.dtype, out[i], r.count[i], r.numbers[i]);
        free(out[i]);
    }
    for (int i = 0; i < INPUTS; i++) free(data[i]);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    return r;
}

static double relative_error(const results *actual, const results *expected, int result) {
    double squared_error = 0, size = 0;
    for (int64_t i = 0; i < expected->count[result]; i++) {
        double w = expected->numbers[result][i], d = actual->numbers[result][i] - w;
        squared_error += d * d, size += w * w;
    }
    return sqrt(squared_error / size);
}

/* Returns the error bound: 2e-5 for results in f32, two units in the last place for 16-bit types, and four if they
 * are computed from another rounded result. */
static double bound(const results *r, int result) {
    static const double units[] = {[TU_F32] = 1e-5, [TU_BF16] = 0x1p-8, [TU_F16] = 0x1p-11};
    bool from_rounded = result >= LOSS;
    tu_dtype worst = from_rounded ? r->dtype[Y] : r->dtype[result];
    return units[worst] * (from_rounded ? 4 : 2);
}

static int count_failures(const problem *p, const char *device) {
    int failures = 0;
    problem in_f64 = *p;
    in_f64.dtype = TU_F64;
    results expected = compute(&in_f64, "ref"), actual = compute(p, device);
    for (int i = 0; i < RESULTS; i++) {
        double error = relative_error(&actual, &expected, i);
        if (!(error <= bound(&actual, i))) {
            print_error("%s of [%d,%d] in %s%s on %s: the %s is off by %.2g, expected at most %.2g\n",
                        p->layer ? "layer_norm" : "batch_norm", (int)p->rows, (int)p->width,
                        tu_dtype_name(p->dtype), p->old_format ? ", statistics too," : "", device, names[i],
                        error, bound(&actual, i));
            failures++;
        }
        free(expected.numbers[i]);
        free(actual.numbers[i]);
    }
    return failures;
}

static const int64_t shapes[][2] = {{4, 64}, {6, 4099}, {64, 5}, {2050, 3}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void check_all(bool old_format) {
    static const tu_dtype types[] = {TU_BF16, TU_F16};
    int failures = 0;
    for (int d = 0; d < device_count; d++)
        for (int s = 0; s < SHAPES; s++)
            for (int t = 0; t < 2; t++) {
                bool layer = shapes[s][0] < shapes[s][1];
                failures += count_failures(
                    &(problem){layer, types[t], shapes[s][0], shapes[s][1], old_format}, devices[d]);
            }
    if (failures) fail_msg("%d results are wrong", failures);
}

static void statistics_of_16_bit_types_are_f32(void **state) {
    (void)state;
    check_all(false);
}

/* Operations from old files: on devices other than GPUs everything except the stored statistics is as accurate. */
static void statistics_stored_in_16_bit_types_do_not_affect_other_results(void **state) {
    (void)state;
    if (strncmp(devices[0], "gpu", 3) == 0) skip();
    check_all(true);
}

/* Returns the variance, or the mean square of the standardised image, of an x with two different numbers that are
 * adjacent in bf16, so that their mean is not representable. */
static double mean_of_result(tu_dtype dtype, bool standardized, const char *device) {
    enum { COUNT = 128 };
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    double data[COUNT], out, actual;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", dtype, TU_SHAPE(2, 2, COUNT / 4, 1));
    tu_value y = standardized ? tu_square(tu_standardize(x)) : tu_variance(x, .axes = TU_AXES(1, 2, 3));
    tu_value mean = tu_mean(tu_cast(y, dtype == TU_F64 ? TU_F64 : TU_F32));
    for (int i = 0; i < COUNT; i++) tu__store(dtype, data, i, i * 37 % 5 < 2 ? 10.0625 : 10);
    assert_int_equal(tu_compile(g, &program, .devices = device, .fetch = &mean, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    assert_int_equal(tu_run(program, state, 1, &(tu_feed){x, data}, (void *[]){&out}), TU_OK);
    tu__load_array(tu_value_dtype(mean), &out, 1, &actual);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    return actual;
}

static void variances_of_16_bit_types_are_computed_in_f32(void **state) {
    (void)state;
    for (int d = 0; d < device_count; d++)
        for (int standardized = 0; standardized < 2; standardized++) {
            if (strchr(devices[d], '/')) continue;
            double expected = mean_of_result(TU_F64, standardized, "ref");
            double actual = mean_of_result(TU_BF16, standardized, devices[d]);
            if (fabs(actual - expected) > 0x1p-8 * expected)
                fail_msg("%s on %s gives %g, expected %g", standardized ? "standardize" : "variance",
                         devices[d], actual, expected);
        }
}

static void builders_return_f32_statistics(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_BF16, TU_SHAPE(4, 6)),
             gamma = tu_input(g, "gamma", TU_BF16, TU_SHAPE(6));
    for (int i = 0; i < 2; i++) {
        tu_value y = i ? tu_layer_normalize(x, gamma, gamma) : tu_batch_normalize(x, gamma, gamma);
        assert_int_equal(tu_value_dtype(y), TU_BF16);
        assert_int_equal(tu_value_dtype(tu_output_of(y, 1)), TU_F32);
        assert_int_equal(tu_value_dtype(tu_output_of(y, 2)), TU_F32);
    }
    tu_graph_free(g);
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_of_16_bit_types_are_f32),
        cmocka_unit_test(statistics_stored_in_16_bit_types_do_not_affect_other_results),
        cmocka_unit_test(variances_of_16_bit_types_are_computed_in_f32),
        cmocka_unit_test(builders_return_f32_statistics),
    };
    if (count > 1) device_count = 0;
    for (int i = 1; i < count && device_count < MAX_DEVICES; i++) devices[device_count++] = arguments[i];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
