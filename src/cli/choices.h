/* Values of the options --precision and --strategy. A CLI_CHOICE option stores an index into such an array. */
#ifndef TU__CLI_CHOICES_H
#define TU__CLI_CHOICES_H

#include <tutti/command.h>

__attribute__((unused)) static const char *const cli_precisions[] = {TU_PRECISIONS, NULL};
__attribute__((unused)) static const char *const cli_strategies[] = {TU_STRATEGIES, NULL};

#endif
