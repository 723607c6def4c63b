/* Pruners: whether a trial is worth going on, from its validations and those of the others.
 *
 * ASHA (L. Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2020), in the variant that only stops: rungs are
 * 1/256, 1/64, 1/16 and 1/4 of the steps of a trial. A trial that reaches a rung goes on if it is among the best quarter of all
 * trials that have reached it so far.
 *
 * Median: a trial goes on if its best cost so far is not above the median of the best costs that other trials had at the same
 * share of their steps. The first trials are never pruned. */
#ifndef TU__TUNE_PRUNE_H
#define TU__TUNE_PRUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

/* The highest rung between two shares of a trial's steps, which it passes by a validation: 1, 2, 3, … for ASHA; 0: none. */
typedef struct tu__pruner {
    const char *name;
    int (*rung)(double share_before, double share);
    /* Which costs of other trials are compared: those at the same rung, or the best ones up to the same share. */
    enum { TU__PRUNE_NOTHING, TU__PRUNE_RUNG, TU__PRUNE_SHARE } compares;
    /* True if a trial with `cost` should stop, compared with `count` costs of others, sorted. */
    bool (*stops)(double cost, size_t count, const double *sorted);
} tu__pruner;

extern const tu__pruner tu__prune_none, tu__prune_asha, tu__prune_median;

tu_status tu__pruner_find(const char *name, const tu__pruner **pruner);

#endif
