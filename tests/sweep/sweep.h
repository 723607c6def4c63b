/* A sweep: random cases of everything a device makes a kernel for, against the reference, with a bound from analysis.
 *
 * A case is a number, its seed: the seed gives the family, the element type, the threads, every size and every element.
 * A family's function builds the case, and is called twice with the same draws: once in the case's type for the device
 * under test, once in f64 for the reference (the oracle), which also computes the bound:
 *
 *     |got - ref|  <=  4 eps(out) |ref|  +  2 (K + 8) eps(acc) M  +  least(out)
 *
 * for sums of K terms, where M is the sum of the terms' absolute values, eps the distance from 1 to the next number,
 * `acc` f32 for half types and else the type itself, and `least` the smallest number above zero. With tf32 the operands
 * of products are rounded too, which adds 2 eps(tf32) M. Systems of equations are held to their residual.
 *
 *     static void sum_rows(sweep *s) {
 *         int64_t rows = sweep_size(s, 64), columns = sweep_size(s, 64);
 *         tu_value x = sweep_input(s, TU_SHAPE(rows, columns));
 *         tu_value y = tu_sum(x, .axes = TU_AXES(1));
 *         sweep_expect(s, "sum", y, columns, sweep_is_oracle(s) ? tu_sum(tu_abs(x), .axes = TU_AXES(1)) : y);
 *     }
 */
#ifndef TESTS_SWEEP_SWEEP_H
#define TESTS_SWEEP_SWEEP_H

#include <tutti/tutti.h>

typedef struct sweep sweep;

/* ---- Drawing; the magnitudes of the oracle must not draw ---- */

int64_t sweep_between(sweep *s, int64_t low, int64_t high);
bool sweep_one_in(sweep *s, int64_t n);
/* Between 1 and `most`: often 1, a prime, or a multiple of what vectors and tiles are wide. */
int64_t sweep_size(sweep *s, int64_t most);
tu_shape sweep_shape(sweep *s, int64_t rank, int64_t most);

/* ---- Building ---- */

tu_graph *sweep_graph(sweep *s);
tu_dtype sweep_dtype(const sweep *s); /* of the graph being built: f64 in the oracle */
bool sweep_is_oracle(const sweep *s);
bool sweep_is_half(const sweep *s); /* of the case: also while the oracle is built */
/* Adds to the line that tells a failed case. */
void sweep_note(sweep *s, const char *format, ...) TU_PRINTF(2, 3);

/* Numbers in [low, high], rounded to the case's type. */
tu_value sweep_input(sweep *s, tu_shape shape);
tu_value sweep_input_between(sweep *s, tu_shape shape, double low, double high);
/* As sweep_input; `fill` overwrites the numbers before they are rounded. */
tu_value sweep_input_filled(sweep *s, tu_shape shape, void (*fill)(sweep *s, double *data, tu_shape shape));
double sweep_uniform(sweep *s, double low, double high);
/* Whole numbers in [low, high). */
tu_value sweep_integers(sweep *s, tu_shape shape, int64_t low, int64_t high);

/* ---- What must hold ---- */

/* `value` is within the bound of `terms` and `magnitude` (NULL: none, the first part of the bound alone). */
void sweep_expect(sweep *s, const char *what, tu_value value, int64_t terms, const tu_value *magnitude);
/* The same of sums of products, whose operands tf32 may round. `rounded`: the sum is made of results that were stored
 * in between, in the case's type: their rounding, eps(out) M, is allowed for. */
void sweep_expect_product(sweep *s, const char *what, tu_value value, int64_t terms, bool rounded,
                          const tu_value *magnitude);

/* Has the device compute `value`; in the oracle it is an input with what the device computed. */
tu_value sweep_answer(sweep *s, tu_value value);
/* In the oracle: `left` is within 2 (terms + 8) eps(acc) magnitude of `right`. */
void sweep_expect_equal(sweep *s, const char *what, tu_value left, tu_value right, int64_t terms,
                        tu_value magnitude);

/* The gradients of sum(y * dy), dy a fresh input, by each of `wrt`; in the oracle `magnitudes` are those of the same with
 * absolute values throughout (y must be linear in each of wrt): `y_of` makes y from operands. */
typedef tu_value (*sweep_bilinear)(const void *context, const tu_value *operands);
void sweep_differentiate(sweep *s, sweep_bilinear y_of, const void *context, size_t count,
                         const tu_value *operands, tu_value *y, tu_value *y_magnitude, tu_value *gradients,
                         tu_value *magnitudes);

/* ---- Families ---- */

typedef struct sweep_family {
    const char *name;
    int weight; /* how often it is drawn */
    bool half;  /* offered in half types */
    void (*build)(sweep *s);
} sweep_family;

/* One list, in sweep.c. */
#define SWEEP_FAMILIES(X)                                                                                    \
    X(convolution, 22, true)                                                                                 \
    X(usual_convolution, 10, true)                                                                           \
    X(transposed_convolution, 7, true)                                                                       \
    X(pointwise_convolution, 6, true)                                                                        \
    X(product, 12, true)                                                                                     \
    X(usual_product, 5, true)                                                                                \
    X(average_pool, 3, true)                                                                                 \
    X(max_pool, 4, true)                                                                                     \
    X(batch_norm, 4, true)                                                                                   \
    X(layer_norm, 4, true)                                                                                   \
    X(lrn, 3, true)                                                                                          \
    X(softmax, 3, true)                                                                                      \
    X(cross_entropy, 3, true)                                                                                \
    X(reduction, 5, true)                                                                                    \
    X(running_sum, 1, true)                                                                                  \
    X(top, 1, true)                                                                                          \
    X(scatter, 3, true)                                                                                      \
    X(gather, 2, true)                                                                                       \
    X(movement, 3, true)                                                                                     \
    X(resize, 2, true)                                                                                       \
    X(pointwise, 3, true)                                                                                    \
    X(linear_algebra, 4, false)
#define SWEEP_DECLARE(name, weight, half) void sweep_##name(sweep *s);
SWEEP_FAMILIES(SWEEP_DECLARE)
#undef SWEEP_DECLARE

/* Cases that were once wrong, each by name: known.c. Run before the random ones. */
typedef struct sweep_known {
    const char *name;
    tu_dtype dtype;
    bool tf32; /* where the device has it */
    void (*build)(sweep *s);
} sweep_known;
extern const sweep_known sweep_known_cases[];
extern const int sweep_known_count;

#endif
