/* The list of operation cases, used by all tests that run every operation.
 *
 * A case builds a small graph with random shapes and options, and random inputs from the range that the operation
 * accepts. The test programs run the cases: test_gradients.c compares gradients with central differences,
 * test_devices.c compares a device with the reference device. A case registers itself before main(), so a new
 * operation needs only one new file cases_NAME.c, or a few lines in an existing one.
 *
 *     OP_CASE(cumsum, CASE_ALL_CHECKS) {
 *         int64_t rank = case_size(c, 1, 4);
 *         tu_shape s = case_shape(c, rank, 1, 5);
 *         tu_value x = case_input(c, s, -2, 2);
 *         case_output(c, tu_cumsum(x, (int)case_size(c, 0, rank - 1), .exclusive = case_pick(c, "exclusive", 2),
 *                                  .reverse = case_pick(c, "reverse", 2)));
 *     }
 */
#ifndef TESTS_OPS_CASES_H
#define TESTS_OPS_CASES_H

#include <tutti/tutti.h>

typedef struct case_run case_run;

/* Flags of a case. */
enum {
    CASE_ALL_CHECKS = 0,  /* no exceptions */
    CASE_NO_GRADIENT = 1, /* gradients are not checked, only forward values */
    CASE_NO_SECOND = 2,   /* only first derivatives are tested; the case says why */
    CASE_LOOSE = 4,       /* ill-conditioned: results are compared with a wider tolerance */
    CASE_NO_16_BIT = 8,   /* the operation supports only f32 and f64 */
    CASE_CPU_ONLY = 16,   /* a custom or quantized operation: GPUs have no kernel for it */
};

/* Return the graph being built, and the float type of the run: f64 for gradient checks, each float type in turn for
 * tests of devices. */
tu_graph *case_graph(case_run *c);
tu_dtype case_dtype(case_run *c);

/* Returns a value 0 … count-1 of a named option. case_next_instance() rebuilds the case at least 20 times, and until
 * every pair of values of two options has occurred (pairwise coverage). */
int case_pick(case_run *c, const char *option, int count);
/* Returns a random integer in [low, high], for sizes and axes. Ones and odd numbers are more likely than others. */
int64_t case_size(case_run *c, int64_t low, int64_t high);
double case_uniform(case_run *c, double low, double high);
tu_shape case_shape(case_run *c, int64_t rank, int64_t low, int64_t high);
/* Returns the axes 0 … rank-1 in a random order. */
tu_axes case_permutation(case_run *c, int64_t rank);
/* Returns a random shape that broadcasts to `shape`: some dimensions are set to 1, some leading axes are dropped. */
tu_shape case_broadcastable(case_run *c, tu_shape shape);

/* Add an input of the run's float type with uniform random elements in [low, high]. Its gradient is checked. */
tu_value case_input(case_run *c, tu_shape shape, double low, double high);
/* All elements differ by at least 0.1: for max, sorting and the like, which are not differentiable at ties. */
tu_value case_input_apart(case_run *c, tu_shape shape);
/* Elements in [-high, high] that differ from `kink` by at least 0.1. */
tu_value case_input_around(case_run *c, tu_shape shape, double kink, double high);
/* As case_input, but `fill` writes the elements: for matrices that must be invertible and the like. */
tu_value case_input_filled(case_run *c, tu_shape shape,
                           void (*fill)(case_run *c, double *data, tu_shape shape));

/* Add an input that is not differentiated. */
tu_value case_fixed(case_run *c, tu_shape shape, double low, double high);
tu_value case_integers(case_run *c, tu_dtype dtype, tu_shape shape, int64_t low,
                       int64_t high); /* in [low, high) */
tu_value case_bools(case_run *c, tu_shape shape);

/* Declares a result to check. Float results are differentiated, others are compared exactly. */
void case_output(case_run *c, tu_value value);

typedef struct op_case {
    const char *name;
    unsigned flags;
    void (*build)(case_run *c);
    struct op_case *next;
} op_case;
void case_register(op_case *entry);
/* Returns the first case; the list is sorted by name. */
const op_case *case_first(void);

#define OP_CASE(name_, flags_)                                                                               \
    static void case_build_##name_(case_run *c);                                                             \
    __attribute__((constructor)) static void case_register_##name_(void) {                                   \
        static op_case entry = {#name_, flags_, case_build_##name_, 0};                                      \
        case_register(&entry);                                                                               \
    }                                                                                                        \
    static void case_build_##name_(case_run *c)

#endif
