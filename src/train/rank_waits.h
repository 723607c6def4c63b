/* How long each process of a run waits for the others. A slow process waits least. */
#ifndef TU__TRAIN_RANK_WAITS_H
#define TU__TRAIN_RANK_WAITS_H

#include "comm/process_group.h"

enum {
    TU__WAIT_SAMPLES = 256,    /* latest samples, of which the median is taken */
    TU__MIN_WAIT_SAMPLES = 50, /* before a rank is called slow */
};

/* A sample is how long each rank has waited in one step, or in the steps of one call. The first one is left out: its step
 * also compiles. */
typedef struct tu__rank_waits {
    uint32_t ranks;
    bool has_begun;                                                   /* the first sample was left out */
    int64_t samples, steps;                                           /* added, and the steps in them */
    float latest[TU__MAX_PROCESSES][TU__WAIT_SAMPLES];                /* milliseconds */
    double median_ms[TU__MAX_PROCESSES], worst_ms[TU__MAX_PROCESSES]; /* worst: of all samples */
    int64_t least[TU__MAX_PROCESSES]; /* steps in which the rank waited least: the others waited for it */
    double longest_ms;                /* the longest of worst_ms */
    int64_t longest_for;              /* the rank for which the others waited then; -1: for no single one */
} tu__rank_waits;

/* Adds the seconds that each rank has waited in so many steps. */
void tu__rank_waits_add(tu__rank_waits *waits, uint32_t ranks, const double *seconds, int64_t steps);
/* Computes `median_ms`. */
void tu__rank_waits_update(tu__rank_waits *waits);
/* Returns the rank that the others wait for: in most steps it waits least, and its median wait is more than 2 ms, and
 * more than 5% of a step, below the longest. -1 if there is none, or too few samples. */
int64_t tu__rank_waits_slowest(const tu__rank_waits *waits, double step_ms);

#endif
