/* What `tutti train --ensemble` prints: a line a member, and what they come to. */
#ifndef CLI_ENSEMBLE_REPORT_H
#define CLI_ENSEMBLE_REPORT_H

#include <tutti/train.h>

/* `closed`: the pipe that progress went to. */
void cli_print_ensemble(const tu_ensemble_result *result, bool closed);
void cli_print_ensemble_json(const tu_ensemble_result *result);

#endif
