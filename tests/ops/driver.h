/* Builds random instances of the operation cases: graphs with random shapes, options and inputs. Shared by all programs
 * that run the case list.
 *
 *     case_run *c = case_begin(entry, TU_F64, 1);
 *     while (case_next_instance(c)) { …use c->graph, c->inputs, c->outputs… }
 *     case_end(c);
 */
#ifndef TESTS_OPS_DRIVER_H
#define TESTS_OPS_DRIVER_H

#include "ops/cases.h"

enum {
    CASE_MAX_INPUTS = 16,
    CASE_MAX_OUTPUTS = 8,
    CASE_MAX_OPTIONS = 16,
    CASE_MAX_VALUES = 16,
    CASE_INSTANCES = 20
};

typedef struct case_tensor {
    tu_value value;
    double *data; /* the elements to feed, as doubles */
    bool differentiable;
} case_tensor;

typedef struct case_option {
    const char *name;
    int count; /* number of values */
    int value; /* in the present instance; -1: not picked yet */
} case_option;

struct case_run {
    const op_case *entry;
    tu_graph *graph;
    tu_dtype dtype;
    uint64_t random; /* state of the generator */
    int instance;    /* index of the present instance, from 1 */
    int input_count, output_count, option_count;
    case_tensor inputs[CASE_MAX_INPUTS];
    tu_value outputs[CASE_MAX_OUTPUTS];
    case_option options[CASE_MAX_OPTIONS];
    /* seen[i][a][j][b]: option i had value a while option j had value b */
    bool seen[CASE_MAX_OPTIONS][CASE_MAX_VALUES][CASE_MAX_OPTIONS][CASE_MAX_VALUES];
};

case_run *case_begin(const op_case *entry, tu_dtype dtype, uint64_t seed);
/* Builds the next instance. Returns false after CASE_INSTANCES instances, or later if a pair of option values has not
 * occurred by then. */
bool case_next_instance(case_run *c);
/* Returns the first pair of option values that never occurred together, as text; NULL if there is none. */
const char *case_missing_pair(const case_run *c);
/* Adds the gradients of the outputs' sum with respect to the differentiable inputs, and with them the operations that
 * exist only as gradients. */
void case_add_gradients(case_run *c);
void case_end(case_run *c);

#endif
