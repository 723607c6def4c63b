/* The CPU device's kernels, for cases that the small shapes of tests/ops do not cover: shapes that are divided among
 * threads, channels that do not fill a vector, ties and NaN, and the message for an unusable matrix. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/number.h"
#include "test.h"

enum { MAX_INPUTS = 8 };

/* ---- A graph of inputs and one result ---- */

typedef struct kernel_case {
    tu_graph *graph;
    tu_dtype dtype;
    int input_count;
    tu_value inputs[MAX_INPUTS];
    double *numbers[MAX_INPUTS];
    tu_value result;
    uint32_t random;
} kernel_case;

static double random_double(kernel_case *t) {
    t->random = t->random * 1664525u + 1013904223u;
    return (double)(t->random >> 8) * 0x1p-24;
}

/* Adds an input with multiples of 1/8 in [low, high): every float type represents them exactly, and many are
 * equal. */
static tu_value add_input(kernel_case *t, tu_dtype dtype, tu_shape shape, double low, double high) {
    int i = t->input_count++;
    int64_t count = tu_shape_elements(shape);
    char name[16];
    snprintf(name, sizeof name, "x%d", i);
    t->numbers[i] = malloc((size_t)count * sizeof(double));
    assert_non_null(t->numbers[i]);
    for (int64_t k = 0; k < count; k++) {
        double x = low + (high - low) * random_double(t);
        t->numbers[i][k] = tu_dtype_is_float(dtype) ? floor(8 * x) / 8 : floor(x);
    }
    return t->inputs[i] = tu_input(t->graph, name, dtype, shape);
}

static tu_value add_default_input(kernel_case *t, tu_shape shape) {
    return add_input(t, t->dtype, shape, -2, 2);
}

/* Runs the graph and returns the result, which the caller must free; NULL if the run fails. */
static void *run_on(const kernel_case *t, const char *devices, int threads) {
    void *data[MAX_INPUTS], *result = malloc(tu_type_bytes(tu_value_type(t->result)));
    tu_feed feeds[MAX_INPUTS];
    tu_program *program = NULL;
    tu_state *state = NULL;
    assert_non_null(result);
    for (int i = 0; i < t->input_count; i++) {
        tu_type type = tu_value_type(t->inputs[i]);
        data[i] = malloc(tu_type_bytes(type));
        assert_non_null(data[i]);
        tu__store_array(type.dtype, t->numbers[i], tu_shape_elements(type.shape), data[i]);
        feeds[i] = (tu_feed){t->inputs[i], data[i]};
    }
    if (tu_compile(t->graph, &program, .devices = devices, .threads = threads, .fetch = &t->result,
                   .fetch_count = 1) != TU_OK ||
        tu_state_new(t->graph, &state, .seed = 3) != TU_OK)
        fail_msg("%s", tu_message());
    if (tu_run(program, state, (size_t)t->input_count, feeds, &result) != TU_OK) {
        free(result);
        result = NULL;
    }
    for (int i = 0; i < t->input_count; i++) free(data[i]);
    tu_program_free(program);
    tu_state_free(state);
    return result;
}

static void start_case(kernel_case *t, tu_dtype dtype) {
    *t = (kernel_case){.dtype = dtype, .random = 7};
    assert_int_equal(tu_graph_new(&t->graph), TU_OK);
}

static void free_case(kernel_case *t) {
    for (int i = 0; i < t->input_count; i++) free(t->numbers[i]);
    tu_graph_free(t->graph);
}

/* ---- Comparison with the reference device, for several numbers of threads, and with a second run ---- */

static void assert_agree(const kernel_case *t, const void *expected, const void *got, double tolerance,
                         int threads) {
    tu_type type = tu_value_type(t->result);
    int64_t count = tu_shape_elements(type.shape);
    double max_magnitude = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = fabs(tu__load(type.dtype, expected, i));
        if (x > max_magnitude && isfinite(x)) max_magnitude = x;
    }
    for (int64_t i = 0; i < count; i++) {
        double expected_number = tu__load(type.dtype, expected, i), actual = tu__load(type.dtype, got, i);
        if (isnan(expected_number) && isnan(actual)) continue;
        if (expected_number != actual && !(fabs(expected_number - actual) <= tolerance * max_magnitude))
            fail_msg("'%s' %s with %d threads: element %lld is %.9g, expected %.9g", tu_value_name(t->result),
                     tu_dtype_name(t->dtype), threads, (long long)i, actual, expected_number);
    }
}

static void compare_with_reference(kernel_case *t) {
    assert_int_equal(tu_graph_status(t->graph), TU_OK);
    double tolerance = t->dtype == TU_BF16 ? 0x1p-7 : 4e-6;
    size_t bytes = tu_type_bytes(tu_value_type(t->result));
    void *expected = run_on(t, "ref", 1);
    for (int threads = 1; threads <= 7; threads += 3) {
        void *got = run_on(t, "cpu:0", threads), *again = run_on(t, "cpu:0", threads);
        assert_true(got && again);
        assert_agree(t, expected, got, tolerance, threads);
        assert_memory_equal(got, again, bytes);
        free(got);
        free(again);
    }
    free(expected);
    free_case(t);
}

#define FOR_BOTH_TYPES(t)                                                                                    \
    for (int type_ = 0; type_ < 2 && (start_case(t, type_ ? TU_BF16 : TU_F32), true); type_++)

static tu_value gradient(kernel_case *t, tu_value y, tu_value x) {
    tu_value dx = {0};
    tu_gradients(tu_sum(tu_mul(y, add_default_input(t, tu_value_shape(y)))), 1, &x, &dx);
    return dx;
}

/* ---- Matrix products ---- */

static tu_value add_matrix(kernel_case *t, int64_t batch, int64_t rows, int64_t columns, bool transposed) {
    int i = t->input_count;
    tu_value x =
        add_default_input(t, transposed ? TU_SHAPE(batch, columns, rows) : TU_SHAPE(batch, rows, columns));
    for (int64_t k = 0; k < batch * rows * columns; k++) t->numbers[i][k] /= 3; /* so that sums are rounded */
    return x;
}

/* Packed rows that need several blocks, k of several chunks, columns that do not fill a vector; and batches of fewer
 * and more matrices than threads. */
static void matmuls_have_the_same_bits_for_any_number_of_threads(void **state) {
    (void)state;
    static const int64_t sizes[][4] = {
        {1, 300, 77, 520}, {1, 70, 150, 600}, {3, 40, 90, 30}, {20, 9, 33, 17}};
    for (int i = 0; i < 32; i++) {
        kernel_case t;
        const int64_t *size = sizes[i % 4];
        bool transpose_a = i & 4, transpose_b = i & 8;
        start_case(&t, i & 16 ? TU_F64 : TU_F32);
        tu_value a = add_matrix(&t, size[0], size[1], size[3], transpose_a);
        tu_value b = add_matrix(&t, size[0], size[3], size[2], transpose_b);
        t.result = tu_matmul(a, b, .transpose_a = transpose_a, .transpose_b = transpose_b);
        void *expected = run_on(&t, "ref", 1), *single_thread = run_on(&t, "cpu:0", 1);
        assert_true(expected && single_thread);
        assert_agree(&t, expected, single_thread, 1e-5, 1);
        for (int threads = 2; threads <= 16; threads = 2 * threads + 1) {
            void *multi_thread = run_on(&t, "cpu:0", threads);
            assert_non_null(multi_thread);
            assert_memory_equal(multi_thread, single_thread, tu_type_bytes(tu_value_type(t.result)));
            free(multi_thread);
        }
        free(expected);
        free(single_thread);
        free_case(&t);
    }
}

/* ---- Pooling ---- */

static const int64_t channel_counts[] = {1, 3, 16, 37, 64};

static tu_value pool_of(tu_value x, int kind) {
    return kind == 0   ? tu_max_pool(x, .window = {3, 3}, .stride = {2, 2})
           : kind == 1 ? tu_max_pool(x, .window = {2, 3}, .stride = {3, 1}, .padding = TU_VALID)
           : kind == 2 ? tu_avg_pool(x, .window = {3, 2}, .stride = {2, 1})
                       : tu_avg_pool(x, .window = {3, 3}, .stride = {1, 4}, .count_padding = true);
}

static void pooling_agrees_for_any_number_of_channels(void **state) {
    (void)state;
    kernel_case t;
    for (int kind = 0; kind < 4; kind++)
        for (size_t c = 0; c < sizeof channel_counts / sizeof *channel_counts; c++) FOR_BOTH_TYPES(&t) {
                t.result = pool_of(add_default_input(&t, TU_SHAPE(9, 13, 14, channel_counts[c])), kind);
                compare_with_reference(&t);
            }
}

static void gradients_of_pooling_agree_with_ties(void **state) {
    (void)state;
    kernel_case t;
    for (int kind = 0; kind < 4; kind++)
        for (size_t c = 0; c < sizeof channel_counts / sizeof *channel_counts; c++) FOR_BOTH_TYPES(&t) {
                tu_value x = add_default_input(&t, TU_SHAPE(9, 13, 14, channel_counts[c]));
                t.result = gradient(&t, pool_of(x, kind), x);
                compare_with_reference(&t);
            }
}

static void a_nan_is_the_maximum_of_its_windows(void **state) {
    (void)state;
    kernel_case t;
    for (int backward = 0; backward < 2; backward++) FOR_BOTH_TYPES(&t) {
            tu_value x = add_default_input(&t, TU_SHAPE(3, 12, 12, 20));
            for (int i = 0; i < 3 * 12 * 12 * 20; i += 97) t.numbers[0][i] = NAN;
            tu_value y = tu_max_pool(x, .window = {3, 3}, .stride = {2, 2});
            t.result = backward ? gradient(&t, y, x) : y;
            compare_with_reference(&t);
        }
}

/* ---- Normalisation ---- */

static void lrn_agrees_for_every_exponent_and_radius(void **state) {
    (void)state;
    static const double exponents[] = {0.75, 0.5, 1, 0.3};
    static const int64_t radii[] = {1, 4, 100};
    kernel_case t;
    for (int e = 0; e < 4; e++)
        for (int r = 0; r < 3; r++) FOR_BOTH_TYPES(&t) {
                tu_value x = add_default_input(&t, TU_SHAPE(2000, r == 1 ? 64 : 21));
                tu_value y = tu_lrn(x, .radius = radii[r], .bias = 1, .alpha = 0.05, .beta = exponents[e]);
                t.result = tu_concat((tu_value[]){y, gradient(&t, y, x)}, 2, 0);
                compare_with_reference(&t);
            }
}

static void batch_norm_merges_the_statistics_of_threads(void **state) {
    (void)state;
    kernel_case t;
    for (int output = 0; output < 3; output++) FOR_BOTH_TYPES(&t) {
            tu_value x = add_default_input(&t, TU_SHAPE(50, 9, 9, 21));
            /* a large mean, with a variance that a sum of squares in f32 would lose */
            for (int i = 0; i < 50 * 81 * 21; i++) t.numbers[0][i] += t.dtype == TU_F32 ? 1000 : 8;
            tu_value gamma = add_input(&t, TU_F32, TU_SHAPE(21), 1, 2),
                     beta = add_input(&t, TU_F32, TU_SHAPE(21), -1, 1);
            t.result = tu_output_of(tu_batch_normalize(x, gamma, beta), (uint32_t)output);
            compare_with_reference(&t);
        }
}

static void gradients_of_batch_norm_agree_with_the_reference(void **state) {
    (void)state;
    kernel_case t;
    for (int wrt = 0; wrt < 3; wrt++) FOR_BOTH_TYPES(&t) {
            tu_value x = add_default_input(&t, TU_SHAPE(50, 9, 9, 21));
            tu_value gamma = add_input(&t, TU_F32, TU_SHAPE(21), 1, 2),
                     beta = add_input(&t, TU_F32, TU_SHAPE(21), -1, 1);
            t.result = gradient(&t, tu_batch_normalize(x, gamma, beta),
                                wrt == 0   ? x
                                : wrt == 1 ? gamma
                                           : beta);
            compare_with_reference(&t);
        }
}

static void layer_norm_and_its_gradients_agree_with_the_reference(void **state) {
    (void)state;
    kernel_case t;
    for (int wrt = 0; wrt < 4; wrt++) FOR_BOTH_TYPES(&t) {
            tu_value x = add_default_input(&t, TU_SHAPE(700, 75));
            tu_value gamma = add_input(&t, TU_F32, TU_SHAPE(75), 1, 2),
                     beta = add_input(&t, TU_F32, TU_SHAPE(75), -1, 1);
            tu_value y = tu_layer_normalize(x, gamma, beta);
            t.result = wrt == 3 ? y : gradient(&t, y, wrt == 0 ? x : wrt == 1 ? gamma : beta);
            compare_with_reference(&t);
        }
}

/* ---- Softmax and reductions ---- */

static void softmax_and_losses_agree_on_many_rows(void **state) {
    (void)state;
    kernel_case t;
    for (int kind = 0; kind < 4; kind++) FOR_BOTH_TYPES(&t) {
            tu_value x = add_default_input(&t, TU_SHAPE(3000, 37));
            t.numbers[0][5] = -INFINITY;
            if (kind == 0) t.result = tu_softmax(x, -1);
            if (kind == 1) t.result = tu_log_softmax(x, -1);
            if (kind == 2)
                t.result =
                    tu_cross_entropy(x, add_input(&t, TU_I64, TU_SHAPE(3000), -1, 39), .smoothing = 0.1);
            if (kind == 3) t.result = tu_cross_entropy(x, add_input(&t, t.dtype, TU_SHAPE(3000, 37), 0, 1));
            compare_with_reference(&t);
        }
}

static tu_value reduce(tu_value x, int kind, tu_axes axes) {
    const tu_reduce_options options = {.struct_size = sizeof options, .axes = axes};
    return kind == 0   ? tu_sum_with(x, &options)
           : kind == 1 ? tu_mean_with(x, &options)
           : kind == 2 ? tu_max_with(x, &options)
                       : tu_min_with(x, &options);
}

static void reductions_agree_for_all_divisions_of_the_work(void **state) {
    (void)state;
    static const tu_axes axis_sets[] = {TU_AXES(0, 1, 2, 3), TU_AXES(0, 1, 2), TU_AXES(1, 2), TU_AXES(3),
                                        TU_AXES(0)};
    kernel_case t;
    for (int kind = 0; kind < 4; kind++)
        for (size_t s = 0; s < sizeof axis_sets / sizeof *axis_sets; s++) FOR_BOTH_TYPES(&t) {
                tu_value x = add_default_input(&t, TU_SHAPE(40, 20, 5, 19));
                t.result = reduce(x, kind, axis_sets[s]);
                compare_with_reference(&t);
            }
}

static void max_min_argmax_and_argmin_return_nan(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 10, 32, 33, 45};
    kernel_case t;
    for (int w = 0; w < 5; w++)
        for (int kind = 0; kind < 4; kind++) FOR_BOTH_TYPES(&t) {
                tu_value x = add_default_input(&t, TU_SHAPE(50, widths[w]));
                for (int64_t i = 0; i < 50 * widths[w]; i += 7) t.numbers[0][i] = NAN;
                t.result = kind == 0   ? tu_max(x, .axes = TU_AXES(1))
                           : kind == 1 ? tu_min(x, .axes = TU_AXES(0))
                           : kind == 2 ? tu_argmax(x, 1)
                                       : tu_argmin(x, 1);
                compare_with_reference(&t);
            }
}

/* ---- Indexing and random numbers ---- */

static void repeated_indices_are_added_in_order(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 5, 300};
    kernel_case t;
    for (int w = 0; w < 3; w++) {
        start_case(&t, TU_F32);
        tu_value table = add_default_input(&t, TU_SHAPE(70, widths[w])),
                 indices = add_input(&t, TU_I32, TU_SHAPE(5000), -3, 73);
        t.result = tu_scatter_add(table, indices, add_default_input(&t, TU_SHAPE(5000, widths[w])), 0);
        compare_with_reference(&t);
    }
}

static void random_numbers_are_bit_identical_to_the_reference(void **state) {
    (void)state;
    static const tu_dtype types[] = {TU_F32, TU_BF16, TU_F16, TU_F64};
    kernel_case t;
    for (int kind = 0; kind < 3; kind++)
        for (int type = 0; type < 4; type++) {
            start_case(&t, types[type]);
            tu_shape shape = TU_SHAPE(5, 3001);
            t.result = kind == 0   ? tu_random_uniform(t.graph, t.dtype, shape, -0.1, 0.7, .per_sample = true)
                       : kind == 1 ? tu_random_bernoulli(t.graph, t.dtype, shape, 0.3)
                                   : tu_random_normal(t.graph, t.dtype, shape, 1, 2);
            size_t bytes = tu_type_bytes(tu_value_type(t.result));
            void *expected = run_on(&t, "ref", 1), *got = run_on(&t, "cpu:0", 3);
            assert_true(expected && got);
            assert_memory_equal(expected, got, bytes);
            free(expected);
            free(got);
            free_case(&t);
        }
}

/* ---- Linear algebra ---- */

static void large_linear_systems_agree_with_the_reference(void **state) {
    (void)state;
    kernel_case t;
    for (int kind = 0; kind < 2; kind++) {
        start_case(&t, TU_F32);
        tu_value a = add_default_input(&t, TU_SHAPE(5, 70, 70));
        for (int i = 0; i < 5 * 70; i++) t.numbers[0][i / 70 * 4900 + i % 70 * 71] += 90;
        t.result = kind ? tu_inverse(a) : tu_solve(a, add_default_input(&t, TU_SHAPE(5, 70, 9)));
        compare_with_reference(&t);
    }
}

static void singular_matrices_are_reported_like_on_the_reference(void **state) {
    (void)state;
    kernel_case t;
    for (int kind = 0; kind < 4; kind++) {
        start_case(&t, TU_F64);
        tu_value a = add_default_input(&t, TU_SHAPE(3, 2, 2)), b = add_default_input(&t, TU_SHAPE(3, 2, 1));
        const double invertible[] = {4, 1, 1, 3}, singular[] = {1, 2, 2, kind == 3 ? 0 : 4};
        for (int i = 0; i < 12; i++) t.numbers[0][i] = i < 4 ? invertible[i] : singular[i % 4];
        tu_scope(t.graph, "layer") t.result = kind == 0   ? tu_inverse(a)
                                              : kind == 1 ? tu_solve(a, b)
                                              : kind == 2 ? tu_cholesky(a)
                                                          : tu_triangular_solve(a, b);
        assert_null(run_on(&t, "cpu:0", 2));
        const char *expected_text = kind == 2
                                        ? "matrix 1 of the batch is not positive definite (pivot 1 is 0)"
                                        : "matrix 1 of the batch is singular (pivot 1 is 0)";
        if (!strstr(tu_message(), expected_text) || !strstr(tu_message(), "'layer/"))
            fail_msg("%s", tu_message());
        free_case(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmuls_have_the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(pooling_agrees_for_any_number_of_channels),
        cmocka_unit_test(gradients_of_pooling_agree_with_ties),
        cmocka_unit_test(a_nan_is_the_maximum_of_its_windows),
        cmocka_unit_test(lrn_agrees_for_every_exponent_and_radius),
        cmocka_unit_test(batch_norm_merges_the_statistics_of_threads),
        cmocka_unit_test(gradients_of_batch_norm_agree_with_the_reference),
        cmocka_unit_test(layer_norm_and_its_gradients_agree_with_the_reference),
        cmocka_unit_test(softmax_and_losses_agree_on_many_rows),
        cmocka_unit_test(reductions_agree_for_all_divisions_of_the_work),
        cmocka_unit_test(max_min_argmax_and_argmin_return_nan),
        cmocka_unit_test(repeated_indices_are_added_in_order),
        cmocka_unit_test(random_numbers_are_bit_identical_to_the_reference),
        cmocka_unit_test(large_linear_systems_agree_with_the_reference),
        cmocka_unit_test(singular_matrices_are_reported_like_on_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
