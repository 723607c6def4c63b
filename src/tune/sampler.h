/* Samplers: which point of the space a trial gets.
 *
 * A sampler is a function of the space, the seed, the number of the trial and the trials before it. It keeps nothing, so
 * that any worker can make any trial, and one worker with one seed repeats exactly. */
#ifndef TU__TUNE_SAMPLER_H
#define TU__TUNE_SAMPLER_H

#include "tune/space.h"

/* What is known of a trial. */
typedef struct tu__outcome {
    tu__point point;
    bool ended;   /* else it is still running */
    bool scored;  /* else it failed, or was not evaluated yet */
    double value; /* if scored: smaller is better */
} tu__outcome;

typedef struct tu__history {
    const tu__space *space;
    uint64_t seed;
    size_t count;
    const tu__outcome *outcomes; /* by number of the trial */
} tu__history;

typedef struct tu__sampler {
    const char *name;
    bool reads_history; /* uses outcomes; others need not be given any */
    /* Makes the point of trial `trial`, counted from 0. */
    tu_status (*sample)(const tu__history *history, int64_t trial, tu__point *point);
} tu__sampler;

extern const tu__sampler tu__sample_grid, tu__sample_random, tu__sample_sobol, tu__sample_tpe;

/* Finds a sampler by its name; fails with a list of the names. */
tu_status tu__sampler_find(const char *name, const tu__sampler **sampler);

/* Returns the number of points of a grid over the space, at most `most`; 0 if a parameter has no number of values. */
int64_t tu__grid_size(const tu__space *space, int64_t most);
/* Fails if a parameter has no number of values, and says how to give one. */
tu_status tu__grid_check(const tu__space *space);

/* Random numbers in [0, 1) of a trial: a function of seed, trial, purpose and index. */
double tu__trial_random(uint64_t seed, int64_t trial, uint32_t purpose, uint32_t index);
/* Makes a point of numbers in [0, 1), one for each parameter. */
void tu__point_from_units(const tu__space *space, const double *units, tu__point *point);

#endif
