/* Linear algebra keeps f32 precision: under .precision bf16, f16 and tf32 its first- and second-order gradients are
 * those of f32. The user's own matmuls are computed in the lower precision.
 *
 *     test_exact_linalg [DEVICE ...]     default: ref cpu; on a GPU or the fake GPU: gpu:0
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/number.h"
#include "test.h"

enum { BATCH = 2, N = 7, K = 5, MAX_DEVICES = 4 };

static const char *devices[MAX_DEVICES] = {"ref", "cpu"};
static int device_count = 2;

typedef struct problem {
    tu_graph *graph;
    tu_value a, b; /* [BATCH, N, N], [BATCH, N, K]: inputs */
} problem;

static tu_value solve(const problem *s) {
    return tu_solve(s->a, s->b);
}

static tu_value inverse(const problem *s) {
    return tu_inverse(s->a);
}

/* Also contains the operations of the log-determinant of a Gaussian process. */
static tu_value cholesky_and_log(const problem *s) {
    tu_value l = tu_cholesky(s->a);
    return tu_add(l, tu_log(tu_shift(tu_square(tu_band(l, 0, 0)), 1)));
}

static tu_value solve_lower(const problem *s) {
    return tu_triangular_solve(s->a, s->b);
}

static tu_value solve_upper_transposed(const problem *s) {
    return tu_triangular_solve(s->a, s->b, .upper = true, .transpose = true);
}

/* Matmuls with .exact, and their gradients. */
static tu_value exact_matmuls(const problem *s) {
    return tu_matmul(s->a, tu_matmul(s->a, s->b, .exact = true), .transpose_a = true, .exact = true);
}

static const struct {
    const char *name;
    tu_value (*build)(const problem *s);
} operations[] = {
    {"solve", solve},
    {"inverse", inverse},
    {"cholesky", cholesky_and_log},
    {"triangular_solve", solve_lower},
    {"triangular_solve, upper and transposed", solve_upper_transposed},
    {"matmul", exact_matmuls},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* Returns weights for the loss, so that no two elements of the gradient are equal. */
static tu_value loss_weights(tu_value x) {
    tu_shape shape = tu_value_shape(x);
    int64_t count = tu_shape_elements(shape);
    double *numbers = malloc((size_t)count * sizeof *numbers);
    void *data = malloc((size_t)count * sizeof(double));
    assert_true(numbers && data);
    for (int64_t i = 0; i < count; i++) numbers[i] = 0.3 + (double)(i * 37 % 29) / 29;
    tu__store_array(tu_value_dtype(x), numbers, count, data);
    tu_value constant = tu_constant(x.graph, tu_value_dtype(x), shape, data);
    free(numbers);
    free(data);
    return constant;
}

/* Returns element i of input 0 (a) or 1 (b): a is symmetric with a large diagonal, so that every operation is well
 * conditioned. */
static double element(int input, int64_t i) {
    int64_t matrix = i / (N * N), row = i / N % N, column = i % N;
    int64_t low = row < column ? row : column, high = row + column - low;
    if (input) return sin(1.7 * (double)i + 0.2);
    return (row == column ? 3 : 0) + 0.4 * cos(2.3 * (double)(7 * high + low) + (double)matrix);
}

/* The loss, both gradients, and the gradient of |da|^2 with respect to a. */
enum { RESULTS = 4 };

typedef struct results {
    int64_t count[RESULTS];
    double *numbers[RESULTS];
} results;

static void build_problem(problem *s, int operation, tu_dtype dtype, tu_value fetch[RESULTS]) {
    assert_int_equal(tu_graph_new(&s->graph), TU_OK);
    s->a = tu_input(s->graph, "a", dtype, TU_SHAPE(BATCH, N, N));
    s->b = tu_input(s->graph, "b", dtype, TU_SHAPE(BATCH, N, K));
    tu_value y = operations[operation].build(s);
    fetch[0] = tu_add(tu_sum(tu_mul(y, loss_weights(y))), tu_scale(tu_sum(tu_square(s->b)), 0.1));
    assert_int_equal(tu_gradients(fetch[0], 2, (tu_value[]){s->a, s->b}, &fetch[1]), TU_OK);
    assert_int_equal(tu_gradients(tu_sum(tu_mul(fetch[1], fetch[1])), 1, &s->a, &fetch[3]), TU_OK);
}

static results compute(int operation, tu_dtype dtype, const char *device, const char *precision) {
    problem s;
    tu_value fetch[RESULTS];
    tu_program *program;
    tu_state *state;
    double a[BATCH * N * N], b[BATCH * N * K];
    void *out[RESULTS];
    results r;
    build_problem(&s, operation, dtype, fetch);
    for (int64_t i = 0; i < BATCH * N * N; i++) tu__store(dtype, a, i, tu__round_to(TU_F32, element(0, i)));
    for (int64_t i = 0; i < BATCH * N * K; i++) tu__store(dtype, b, i, tu__round_to(TU_F32, element(1, i)));
    if (tu_compile(s.graph, &program, .devices = device, .precision = precision, .fetch = fetch,
                   .fetch_count = RESULTS) != TU_OK)
        fail_msg("%s: %s", device, tu_message());
    assert_int_equal(tu_state_new(s.graph, &state), TU_OK);
    for (int i = 0; i < RESULTS; i++)
        assert_non_null(out[i] = malloc(tu_type_bytes(tu_value_type(fetch[i]))));
    if (tu_run(program, state, 2, (tu_feed[]){{s.a, a}, {s.b, b}}, out) != TU_OK)
        fail_msg("%s: %s", device, tu_message());
    for (int i = 0; i < RESULTS; i++) {
        r.count[i] = tu_shape_elements(tu_value_type(fetch[i]).shape);
        assert_non_null(r.numbers[i] = malloc((size_t)r.count[i] * sizeof(double)));
        tu__load_array(dtype, out[i], r.count[i], r.numbers[i]);
        free(out[i]);
    }
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(s.graph);
    return r;
}

static void free_results(results *r) {
    for (int i = 0; i < RESULTS; i++) free(r->numbers[i]);
}

static double relative_error(const results *actual, const results *expected, int result) {
    double squared_error = 0, squared_norm = 0;
    for (int64_t i = 0; i < expected->count[result]; i++) {
        double w = expected->numbers[result][i], d = actual->numbers[result][i] - w;
        squared_error += d * d, squared_norm += w * w;
    }
    return sqrt(squared_error / squared_norm);
}

static void check_precision(const char *precision) {
    static const char *const names[RESULTS] = {"result", "gradient by a", "gradient by b",
                                               "second-order gradient"};
    int failures = 0;
    for (int d = 0; d < device_count; d++)
        for (int operation = 0; operation < OPERATIONS; operation++) {
            results expected = compute(operation, TU_F64, "ref", NULL);
            results actual = compute(operation, TU_F32, devices[d], precision);
            for (int i = 0; i < RESULTS; i++) {
                double error = relative_error(&actual, &expected, i);
                if (error <= 1e-5) continue;
                print_error("%s as %s on %s: the %s is off by %.2g, expected at most 1e-5\n",
                            operations[operation].name, precision, devices[d], names[i], error);
                failures++;
            }
            free_results(&expected);
            free_results(&actual);
        }
    if (failures) fail_msg("%d results are too far from f64", failures);
}

static void bf16_precision_keeps_linear_algebra_in_f32(void **state) {
    (void)state;
    check_precision("bf16");
}

static void f16_precision_keeps_linear_algebra_in_f32(void **state) {
    (void)state;
    check_precision("f16");
}

static void tf32_precision_keeps_linear_algebra_in_f32(void **state) {
    (void)state;
    check_precision("tf32");
}

/* The attribute .exact changes what is computed, so it is part of the digest and of graph files. */
static void the_exact_attribute_is_part_of_the_graph(void **state) {
    (void)state;
    tu_graph *plain, *exact, *read;
    char first[TU_DIGEST_TEXT], second[TU_DIGEST_TEXT];
    void *bytes;
    size_t squared_norm;
    for (int i = 0; i < 2; i++) {
        tu_graph **g = i ? &exact : &plain;
        assert_int_equal(tu_graph_new(g), TU_OK);
        tu_value a = tu_input(*g, "a", TU_F32, TU_SHAPE(3, 3));
        tu_matmul(a, a, .exact = i);
    }
    assert_int_equal(tu_graph_digest(plain, first), TU_OK);
    assert_int_equal(tu_graph_digest(exact, second), TU_OK);
    assert_string_not_equal(first, second);
    assert_int_equal(tu_graph_write(exact, &bytes, &squared_norm), TU_OK);
    assert_int_equal(tu_graph_read(bytes, squared_norm, &read), TU_OK);
    assert_int_equal(tu_graph_digest(read, first), TU_OK);
    assert_string_equal(first, second);
    free(bytes);
    tu_graph_free(plain);
    tu_graph_free(exact);
    tu_graph_free(read);
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_precision_keeps_linear_algebra_in_f32),
        cmocka_unit_test(f16_precision_keeps_linear_algebra_in_f32),
        cmocka_unit_test(tf32_precision_keeps_linear_algebra_in_f32),
        cmocka_unit_test(the_exact_attribute_is_part_of_the_graph),
    };
    if (count > 1) device_count = 0;
    for (int i = 1; i < count && device_count < MAX_DEVICES; i++) devices[device_count++] = arguments[i];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
