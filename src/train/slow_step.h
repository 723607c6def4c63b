/* Noticing a step that takes many times its usual: something else is using the machine, and only the user can tell what. */
#ifndef TU__TRAIN_SLOW_STEP_H
#define TU__TRAIN_SLOW_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TU__USUAL_STEPS = 32 };

typedef struct tu__step_times {      /* zeros to begin with */
    double seconds[TU__USUAL_STEPS]; /* of the latest steps, in a ring */
    int64_t count;                   /* of all steps */
    bool told;
} tu__step_times;

/* Adds a step. True once in the life of `times`: for the first step that took ten times the median of the 32 before it, and
 * 50 ms longer; that median is then `*usual`. */
bool tu__step_is_slow(tu__step_times *times, double seconds, double *usual);

/* "step 812 took 95 ms instead of the usual 2.4 ms: another program may be using this machine" */
void tu__slow_step_message(char *text, size_t capacity, int64_t step, double seconds, double usual);

#endif
