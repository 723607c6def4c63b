/* Runs one random instance of a case on a device. Shared by the programs that compare devices and dtypes. */
#ifndef TESTS_OPS_RUN_CASE_H
#define TESTS_OPS_RUN_CASE_H

#include "ops/driver.h"

/* Runs the instance on `devices`. Stores one array of doubles per output in `results`; the caller frees each. Checks
 * that the guard bytes around every result are unchanged. If anything fails, prints a line and returns false. */
bool case_evaluate(case_run *c, const char *devices, int threads, double **results);

/* Returns the machine epsilon of a dtype, the bound on the relative error of one operation. */
double machine_epsilon(tu_dtype dtype);

/* True if two float results differ by at most `max_epsilons` machine epsilons, relative to the largest element. Other
 * results must be equal. Prints the first element that differs. */
bool results_agree(const case_run *c, int output, const double *expected, const double *got,
                   double max_epsilons);

#endif
