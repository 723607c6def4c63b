/* Detects a step that takes many times longer than usual, typically because another process uses the machine. */
#ifndef TU__TRAIN_SLOW_STEP_H
#define TU__TRAIN_SLOW_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TU__USUAL_STEPS = 32 };

typedef struct tu__step_times {      /* initialise with zeros */
    double seconds[TU__USUAL_STEPS]; /* ring buffer of the latest step times */
    int64_t count;                   /* number of step times added so far */
    bool reported;                   /* tu__step_is_slow has returned true */
} tu__step_times;

/* Adds a step time. Returns true once per `times`: for the first step that took ten times the median of the 32 steps
 * before it and at least 50 ms longer. Stores that median in `*usual`. */
bool tu__step_is_slow(tu__step_times *times, double seconds, double *usual);

/* Writes the message for the user: "step 812 took 95 ms instead of the usual 2.4 ms: another process may be
 * using this machine, …" */
void tu__slow_step_message(char *text, size_t capacity, int64_t step, double seconds, double usual);

#endif
