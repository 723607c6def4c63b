/* The rules of pruners. See prune.h; study_claim.c applies them. */
#include "tune/prune.h"

#include "base/choice.h"

enum {
    RUNGS = 4,       /* the last one is 1/4 of the steps */
    REDUCTION = 4,   /* a rung keeps the best quarter */
    FIRST_TRIALS = 5 /* that the median does not prune */
};

static int no_rung(double share_before, double share) {
    (void)share_before;
    (void)share;
    return 0;
}

static bool never(double cost, size_t count, const double *sorted) {
    (void)cost;
    (void)count;
    (void)sorted;
    return false;
}

/* ---- ASHA ---- */

static int asha_rung(double share_before, double share) {
    double at = 1.0 / REDUCTION;
    for (int rung = RUNGS; rung > 0; rung--, at /= REDUCTION)
        if (share_before < at && share >= at)
            return share < 1 ? rung : 0; /* a trial that is done is not stopped */
    return 0;
}

/* Of n trials at the rung, this one included, n/4 go on, rounded up. */
static bool asha_stops(double cost, size_t count, const double *sorted) {
    size_t keep = (count + 1 + REDUCTION - 1) / REDUCTION, better = 0;
    while (better < count && sorted[better] < cost) better++;
    return better >= keep;
}

/* ---- Median ---- */

static bool median_stops(double cost, size_t count, const double *sorted) {
    if (count < FIRST_TRIALS) return false;
    double median = 0.5 * (sorted[(count - 1) / 2] + sorted[count / 2]);
    return cost > median;
}

const tu__pruner tu__prune_none = {"none", no_rung, TU__PRUNE_NOTHING, never};
const tu__pruner tu__prune_asha = {"asha", asha_rung, TU__PRUNE_RUNG, asha_stops};
const tu__pruner tu__prune_median = {"median", no_rung, TU__PRUNE_SHARE, median_stops};

tu_status tu__pruner_find(const char *name, const tu__pruner **pruner) {
    static const tu__pruner *const pruners[] = {&tu__prune_asha, &tu__prune_median, &tu__prune_none};
    const char *const names[] = {tu__prune_asha.name, tu__prune_median.name, tu__prune_none.name, NULL};
    size_t index;
    TU_TRY(tu__choice_find("--pruner", name, names, &index));
    *pruner = pruners[index];
    return TU_OK;
}
