/* How many members of an ensemble a device trains at once: `--stack N|auto`. */
#ifndef TU__TRAIN_STACK_SIZE_H
#define TU__TRAIN_STACK_SIZE_H

#include "train/trainer.h"

enum { TU__MAX_STACK_TIMES = 16 };

/* Checks the setting `stack`: "", "auto" or a number from 1 on. */
tu_status tu__stack_setting_check(const char *setting);
/* Returns the number of the setting; 1 if it is empty; 0 for "auto". */
int64_t tu__stack_setting_number(const char *setting);

/* Measures a step of 1, 2, 4, … up to `most` members of a run whose programs are compiled, as far as they fit the
 * device. Stores at most TU__MAX_STACK_TIMES rows. */
tu_status tu__stack_measure(const tu__trainer *planned, int64_t most, tu_stack_time *times, size_t *count);
/* Returns the number of members with the shortest time per member: the smaller one unless the larger saves 3 %. */
int64_t tu__stack_fastest(size_t count, const tu_stack_time *times);

#endif
