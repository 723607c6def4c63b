/* Randomised differential tests ("sweep"): a device's kernels against the reference device, with error bounds from
 * rounding analysis.
 *
 * A case is determined by its seed: family, element type, threads, all sizes and all elements. The function of a
 * family builds the case. It is called twice with the same random numbers: once in the case's type for the device
 * under test, once in f64 for the reference device (the oracle), which also computes the bound:
 *
 *     |got - ref|  <=  4 eps(out) |ref|  +  2 (K + 8) eps(acc) M  +  smallest(out)
 *
 * for sums of K terms, where M is the sum of the terms' absolute values, eps the distance from 1 to the next number,
 * `acc` f32 for 16-bit float types (bf16, f16) and otherwise the type itself, and `smallest` the smallest number
 * above zero. With tf32 the operands of matrix products and convolutions are rounded too, which adds 2 eps(tf32) M.
 * Solutions of linear systems are tested by their residual. For Winograd's convolution M is computed by the same transforms with
 * absolute values (frozen.c).
 *
 *     static void sum_rows(sweep *s) {
 *         int64_t rows = sweep_size(s, 64), columns = sweep_size(s, 64);
 *         tu_value x = sweep_input(s, TU_SHAPE(rows, columns));
 *         tu_value y = tu_sum(x, .axes = TU_AXES(1));
 *         tu_value magnitude = {0};
 *         if (sweep_is_oracle(s)) magnitude = tu_sum(tu_abs(x), .axes = TU_AXES(1));
 *         sweep_expect(s, "sum", y, columns, &magnitude);
 *     }
 * / */
#ifndef TESTS_SWEEP_SWEEP_H
#define TESTS_SWEEP_SWEEP_H

#include <tutti/tutti.h>

typedef struct sweep sweep;

/* ---- Random numbers; code that only the oracle executes must not use them ---- */

/* Returns an integer in [low, high]. */
int64_t sweep_random_int(sweep *s, int64_t low, int64_t high);
/* Returns a uniformly distributed number in [low, high). */
double sweep_random_double(sweep *s, double low, double high);
/* True with probability 1 / n. */
bool sweep_one_in(sweep *s, int64_t n);
/* Returns a size between 1 and `max`: often 1, a prime, or a multiple of vector and tile widths. */
int64_t sweep_size(sweep *s, int64_t max);
tu_shape sweep_shape(sweep *s, int64_t rank, int64_t max);

/* ---- Building ---- */

tu_graph *sweep_graph(sweep *s);
tu_dtype sweep_dtype(const sweep *s); /* of the graph being built: f64 in the oracle */
bool sweep_is_oracle(const sweep *s);
bool sweep_is_16_bit(
    const sweep *s); /* the type of the case is bf16 or f16, also while the oracle is built */
/* Appends to the description that is printed for a failed case. */
void sweep_note(sweep *s, const char *format, ...) TU_PRINTF(2, 3);

/* Adds an input with random numbers in [low, high], rounded to the case's type. */
tu_value sweep_input(sweep *s, tu_shape shape);
tu_value sweep_input_between(sweep *s, tu_shape shape, double low, double high);
/* Like sweep_input, but `fill` computes the numbers before they are rounded. */
tu_value sweep_input_filled(sweep *s, tu_shape shape, void (*fill)(sweep *s, double *data, tu_shape shape));
/* Adds an input of random integers in [low, high). */
tu_value sweep_input_integers(sweep *s, tu_shape shape, int64_t low, int64_t high);
/* The same of another type than i32; `extreme`: low or high - 1 only. */
tu_value sweep_input_bytes(sweep *s, tu_dtype dtype, tu_shape shape, int64_t low, int64_t high, bool extreme);

/* Like sweep_input, but a constant with shared data, as the weights of a frozen graph are. */
tu_value sweep_frozen_input(sweep *s, tu_shape shape);

/* ---- Expectations ---- */

/* Checks `value` with the bound for `terms` and `magnitude` (NULL: only the first and last term of the bound). */
void sweep_expect(sweep *s, const char *what, tu_value value, int64_t terms, const tu_value *magnitude);
/* The same for sums of products, whose operands tf32 may round. `rounded`: the terms were stored in the case's type
 * before they were added, so that their rounding, eps(out) M, is added to the bound. */
void sweep_expect_dot_products(sweep *s, const char *what, tu_value value, int64_t terms, bool rounded,
                               const tu_value *magnitude);

/* In the oracle only: true if the name of a kernel of the device contains `name`. */
bool sweep_device_used(const sweep *s, const char *name);

/* Computes `value` on the device; in the oracle, returns an input with the device's result. */
tu_value sweep_device_result(sweep *s, tu_value value);
/* In the oracle only: checks that `left` is within 2 (terms + 8) eps(acc) magnitude of `right`. */
void sweep_expect_equal(sweep *s, const char *what, tu_value left, tu_value right, int64_t terms,
                        tu_value magnitude);

/* Computes the gradients of sum(y * dy), with a new input dy, with respect to each operand. In the oracle,
 * `magnitudes` are the same with absolute values of all operands (y must be linear in each). `y_of` computes y from
 * the operands. */
typedef tu_value (*sweep_bilinear)(const void *context, const tu_value *operands);
void sweep_differentiate(sweep *s, sweep_bilinear y_of, const void *context, size_t count,
                         const tu_value *operands, tu_value *y, tu_value *y_magnitude, tu_value *gradients,
                         tu_value *magnitudes);

/* ---- Families ---- */

typedef struct sweep_family {
    const char *name;
    int weight; /* relative frequency */
    bool supports_16_bit;
    void (*build)(sweep *s);
} sweep_family;

/* The list of families: name, weight, supports_16_bit. "network" families use sizes that networks use. */
#define SWEEP_FAMILIES(X)                                                                                    \
    X(convolution, 22, true)                                                                                 \
    X(network_convolution, 10, true)                                                                         \
    X(transposed_convolution, 7, true)                                                                       \
    X(pointwise_convolution, 6, true)                                                                        \
    X(frozen_convolution, 10, true)                                                                          \
    X(frozen_matmul, 5, true)                                                                                \
    X(matmul, 12, true)                                                                                      \
    X(network_matmul, 5, true)                                                                               \
    X(average_pool, 3, true)                                                                                 \
    X(max_pool, 4, true)                                                                                     \
    X(batch_norm, 4, true)                                                                                   \
    X(layer_norm, 4, true)                                                                                   \
    X(attention, 4, true)                                                                                    \
    X(lrn, 3, true)                                                                                          \
    X(softmax, 3, true)                                                                                      \
    X(cross_entropy, 3, true)                                                                                \
    X(reduction, 5, true)                                                                                    \
    X(cumsum, 1, true)                                                                                       \
    X(top_k, 1, true)                                                                                        \
    X(scatter, 3, true)                                                                                      \
    X(gather, 2, true)                                                                                       \
    X(data_movement, 3, true)                                                                                \
    X(resize, 2, true)                                                                                       \
    X(pointwise, 3, true)                                                                                    \
    X(linear_algebra, 4, false)                                                                              \
    X(int8_convolution, 9, true)                                                                             \
    X(int8_product, 4, true)                                                                                 \
    X(int8_values, 3, true)
#define SWEEP_DECLARE(name, weight, supports_16_bit) void sweep_##name(sweep *s);
SWEEP_FAMILIES(SWEEP_DECLARE)
#undef SWEEP_DECLARE

/* Regression cases, by name: known.c. They run before the random cases. */
typedef struct sweep_regression {
    const char *name;
    tu_dtype dtype;
    bool tf32; /* computed in tf32, if the device has it */
    void (*build)(sweep *s);
} sweep_regression;
extern const sweep_regression sweep_regressions[];
extern const int sweep_regression_count;

#endif
