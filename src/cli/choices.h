/* The names that options such as --precision choose from. A choice's value is the index of its name. */
#ifndef TU__CLI_CHOICES_H
#define TU__CLI_CHOICES_H

#include <tutti/command.h>

__attribute__((unused)) static const char *const cli_precisions[] = {TU_PRECISIONS, NULL};
__attribute__((unused)) static const char *const cli_strategies[] = {TU_STRATEGIES, NULL};

#endif
