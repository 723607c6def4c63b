/* `tutti tune --find rate|batch`. */
#ifndef TU__CLI_TUNE_FIND_H
#define TU__CLI_TUNE_FIND_H

#include <tutti/tune.h>

/* Finds a learning rate or a batch size and prints the curve and the suggestion. Returns the exit status. */
int cli_tune_find(const char *what, const char *model, const char *data, const tu_train_options *options,
                  bool json);

#endif
