/* Compares the gradients of any f64 graph with central differences.
 *
 * The scalar s is the sum of all outputs, weighted with random numbers. Its gradients are compared with five-point
 * differences of s: for each of a sample of elements, and along one random direction through all elements. For
 * order 2 the same is done with t, a random weighted sum of the gradients of s. */
#ifndef TESTS_OPS_CHECK_GRADIENTS_H
#define TESTS_OPS_CHECK_GRADIENTS_H

#include <tutti/tutti.h>

typedef struct gradient_check {
    tu_graph *graph;
    size_t input_count;
    const tu_value *inputs; /* graph inputs, or variables (the check then perturbs the state) */
    double *const *data;    /* the elements of each input */
    const bool *differentiable;
    size_t output_count;
    const tu_value *outputs; /* those of a float type are checked */
    int order;               /* 1 or 2 */
    double step;             /* of the differences; 0: 1e-3 */
    double tolerance;        /* relative error; 0: 1e-6 */
    int elements;            /* number of elements perturbed per input; 0: 40 */
    uint64_t seed;
    double max_error;  /* result: the largest relative error */
    char message[512]; /* result: the first failure */
} gradient_check;

/* True if every gradient agrees. Otherwise `message` describes the first failure. */
bool gradients_agree(gradient_check *check);

#endif
