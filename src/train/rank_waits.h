/* How long each process of a run waits for the others. A slow process waits least. */
#ifndef TU__TRAIN_RANK_WAITS_H
#define TU__TRAIN_RANK_WAITS_H

#include "comm/process_group.h"

enum { TU__WAIT_SAMPLES = 256 }; /* latest steps, of which the median is taken */

typedef struct tu__rank_waits {
    uint32_t ranks;
    int64_t steps;                                                    /* number of steps added */
    float samples[TU__MAX_PROCESSES][TU__WAIT_SAMPLES];               /* milliseconds */
    double median_ms[TU__MAX_PROCESSES], worst_ms[TU__MAX_PROCESSES]; /* worst: of all steps but the first */
    int64_t worst_rank; /* for which the others waited in the worst step of all; -1: for no single one */
} tu__rank_waits;

/* Adds the seconds that each rank has waited in a step. */
void tu__rank_waits_add(tu__rank_waits *waits, uint32_t ranks, const double *seconds);
/* Computes `median_ms`. */
void tu__rank_waits_update(tu__rank_waits *waits);
/* Returns the longest of `worst_ms`. */
double tu__rank_waits_worst(const tu__rank_waits *waits);
/* Returns the rank that the others wait for: whose median wait is more than 2 ms, and more than 5% of a step, below the
 * longest; -1 if there is none. */
int64_t tu__rank_waits_slowest(const tu__rank_waits *waits, double step_ms);

#endif
