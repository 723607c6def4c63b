/* The result of `tutti train`, as a table and as JSON. */
#ifndef TUTTI_CLI_TRAIN_RESULT_H
#define TUTTI_CLI_TRAIN_RESULT_H

#include <tutti/train.h>

/* `pipe_closed`: standard error was a pipe, and its reader closed it. */
void cli_print_training(const tu_train_result *result, bool pipe_closed);
void cli_print_training_json(const tu_train_result *result);

#endif
