/* What `tutti train --ensemble` prints: a line a member, and what they come to. */
#ifndef CLI_ENSEMBLE_REPORT_H
#define CLI_ENSEMBLE_REPORT_H

#include <tutti/train.h>

void cli_print_ensemble(const tu_ensemble_result *result);
void cli_print_ensemble_json(const tu_ensemble_result *result);

#endif
