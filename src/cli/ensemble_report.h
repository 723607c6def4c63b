/* The output of `tutti train --ensemble`: one line per member. */
#ifndef TU__CLI_ENSEMBLE_REPORT_H
#define TU__CLI_ENSEMBLE_REPORT_H

#include <tutti/train.h>

/* `pipe_closed`: standard error was a pipe, and its reader closed it. */
void cli_print_ensemble(const tu_ensemble_result *result, bool pipe_closed);
void cli_print_ensemble_json(const tu_ensemble_result *result);

#endif
