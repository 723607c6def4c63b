/* `tutti explain MODEL --stack N`: how many members of an ensemble a device should train at once. */
#ifndef TU__CLI_EXPLAIN_STACK_H
#define TU__CLI_EXPLAIN_STACK_H

#include <tutti/train.h>

/* Measures steps of 1, 2, 4, … up to `members` members and prints the table. Returns an exit status. */
int explain_stack(const char *model, const char *data, int64_t members, bool json,
                  const tu_train_options *options);

#endif
