/* What `tutti tune` prints on standard output. */
#ifndef TU__CLI_TUNE_REPORT_H
#define TU__CLI_TUNE_REPORT_H

#include <tutti/tune.h>

/* Print the result of a search. `study` is the value of --study with which it is found again. */
void cli_print_tune(const tu_tune_result *result, const char *study);
void cli_print_tune_json(const tu_tune_result *result);

/* Prints a study and its trials, and its best trial. */
tu_status cli_print_study(const tu_study *study);
tu_status cli_print_best(const tu_study *study, bool json);

#endif
