/* One list of operation cases for everything that runs operations.
 *
 * A case builds a small graph with random shapes and options and says what its inputs may be. The drivers then
 * use it: gradients against central differences (test_gradients.c), and each fast device against the reference.
 * A case registers itself, so a new operation's cases are one new file (or a few lines in its family's).
 *
 *     OP_CASE(cumsum, 0) {
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

enum {
    CASE_NO_GRADIENT = 1, /* nothing differentiable: only the forward values are compared */
    CASE_NO_SECOND = 2,   /* the gradient's own gradient is not offered or not smooth */
    CASE_LOOSE = 4,       /* ill-conditioned: fast devices get a wider tolerance */
    CASE_NO_HALF = 8,     /* the operation takes f32 and f64 alone */
    CASE_ON_HOST = 16,    /* a function of the user's own, which runs in the host's memory */
};

/* The graph being built and the float type of the run (f64 for gradients; each type in turn on devices). */
tu_graph *case_graph(case_run *c);
tu_dtype case_dtype(case_run *c);

/* A choice among `count` values (0 … count-1) of a named option. The driver draws until every pair of values of
 * two options of the case has been seen, and at least 20 times. */
int case_pick(case_run *c, const char *option, int count);
/* A random whole number in [low, high], not an option: sizes, axes. Ones and odd numbers are common. */
int64_t case_size(case_run *c, int64_t low, int64_t high);
double case_uniform(case_run *c, double low, double high);
tu_shape case_shape(case_run *c, int64_t rank, int64_t low, int64_t high);
/* The axes 0 … rank-1 in a random order. */
tu_axes case_permutation(case_run *c, int64_t rank);
/* `shape` with random dimensions set to 1 and random leading axes dropped: broadcasts to it. */
tu_shape case_broadcastable(case_run *c, tu_shape shape);

/* Inputs of the run's float type whose gradients are checked. */
tu_value case_input(case_run *c, tu_shape shape, double low, double high);
/* Elements all at least 0.1 apart from each other: for max, sorting and the like, which have kinks where two meet. */
tu_value case_input_apart(case_run *c, tu_shape shape);
/* In [-high, high] but at least 0.1 away from `kink` on either side. */
tu_value case_input_around(case_run *c, tu_shape shape, double kink, double high);
/* As case_input; `fill` then overwrites the numbers: for matrices that must be invertible and the like. */
tu_value case_input_filled(case_run *c, tu_shape shape,
                           void (*fill)(case_run *c, double *data, tu_shape shape));

/* Inputs that are not differentiated. */
tu_value case_fixed(case_run *c, tu_shape shape, double low, double high);
tu_value case_integers(case_run *c, tu_dtype dtype, tu_shape shape, int64_t low,
                       int64_t high); /* in [low, high) */
tu_value case_bools(case_run *c, tu_shape shape);

/* A result to check; floats are differentiated, others compared exactly. */
void case_output(case_run *c, tu_value value);

typedef struct op_case {
    const char *name;
    unsigned flags;
    void (*build)(case_run *c);
    struct op_case *next;
} op_case;
void case_register(op_case *entry);
/* All cases, sorted by name. */
const op_case *case_first(void);

#define OP_CASE(name_, flags_)                                                                               \
    static void case_build_##name_(case_run *c);                                                             \
    __attribute__((constructor)) static void case_register_##name_(void) {                                   \
        static op_case entry = {#name_, flags_, case_build_##name_, 0};                                      \
        case_register(&entry);                                                                               \
    }                                                                                                        \
    static void case_build_##name_(case_run *c)

#endif
