/* Gradients against central differences, for any graph in f64.
 *
 * The graph's outputs are weighted by random numbers and added up to a scalar s. Its gradients (and, for order 2,
 * those of a random combination t of the gradients) are compared with five-point differences of s (and t), element
 * by element for a sample and along one random direction through all elements. */
#ifndef TESTS_OPS_CHECK_GRADIENTS_H
#define TESTS_OPS_CHECK_GRADIENTS_H

#include <tutti/tutti.h>

typedef struct gradient_check {
    tu_graph *graph;
    size_t input_count;
    const tu_value *inputs; /* fed, or variables (then the state is perturbed) */
    double *const *data;    /* their numbers */
    const bool *differentiable;
    size_t output_count;
    const tu_value *outputs; /* those of a float type are checked */
    int order;               /* 1 or 2 */
    double step;             /* 0: 1e-3 */
    double tolerance;        /* 0: 1e-6 */
    int elements;            /* perturbed one by one in each input; 0: 40 */
    uint64_t seed;
    double worst;      /* result: the largest relative error seen */
    char message[512]; /* result: the first failure */
} gradient_check;

/* True when every gradient agrees. */
bool gradients_agree(gradient_check *check);

#endif
