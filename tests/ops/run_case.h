/* Running one draw of a case on a device: what the programs that compare devices and types share. */
#ifndef TESTS_OPS_RUN_CASE_H
#define TESTS_OPS_RUN_CASE_H

#include "ops/driver.h"

/* Runs the draw on `devices`; results as doubles, one array an output (free each). Guard bytes around every result
 * must stay as they were. False, with a line printed, when anything fails. */
bool case_evaluate(case_run *c, const char *devices, int threads, double **results);

/* The unit of rounding of a type, as a bound on the relative error of one operation. */
double unit_of(tu_dtype dtype);

/* Whether two results agree within `units` roundings of the type, relative to the largest element; prints the first
 * element that does not. Other than floats must be equal. */
bool results_agree(const case_run *c, int output, const double *expected, const double *got, double units);

#endif
