/* Statistics of the time that processes wait for each other. See rank_waits.h. */
#include "train/rank_waits.h"

#include <stdlib.h>
#include <string.h>

/* Returns the rank for which the others waited in a sample, -1 if all waited much, for the network. */
static int64_t find_awaited(uint32_t ranks, const double *seconds, uint32_t least) {
    double most = 0;
    for (uint32_t r = 0; r < ranks; r++)
        if (seconds[r] > most) most = seconds[r];
    return seconds[least] < 0.5 * most ? (int64_t)least : -1;
}

void tu__rank_waits_add(tu__rank_waits *w, uint32_t ranks, const double *seconds, int64_t steps) {
    uint32_t least = 0;
    double longest_before = w->longest_ms;
    w->ranks = ranks;
    if (!w->has_begun) {
        w->has_begun = true;
        return;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        double ms = 1e3 * seconds[r];
        w->latest[r][w->samples % TU__WAIT_SAMPLES] = (float)ms;
        if (ms > w->worst_ms[r]) w->worst_ms[r] = ms;
        if (ms > w->longest_ms) w->longest_ms = ms;
        if (seconds[r] < seconds[least]) least = r;
    }
    if (w->longest_ms > longest_before) w->longest_for = find_awaited(ranks, seconds, least);
    w->least[least] += steps;
    w->steps += steps;
    w->samples++;
}

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void tu__rank_waits_update(tu__rank_waits *w) {
    size_t count = w->samples < TU__WAIT_SAMPLES ? (size_t)w->samples : TU__WAIT_SAMPLES;
    float sorted[TU__WAIT_SAMPLES];
    for (uint32_t r = 0; count && r < w->ranks; r++) {
        memcpy(sorted, w->latest[r], count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, compare_floats);
        w->median_ms[r] = (double)(sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    }
}

int64_t tu__rank_waits_slowest(const tu__rank_waits *w, double step_ms) {
    uint32_t slow = 0;
    double most = 0;
    for (uint32_t r = 0; r < w->ranks; r++) {
        if (w->least[r] > w->least[slow]) slow = r;
        if (w->median_ms[r] > most) most = w->median_ms[r];
    }
    if (w->samples < TU__MIN_WAIT_SAMPLES || 2 * w->least[slow] <= w->steps) return -1;
    double difference = most - w->median_ms[slow];
    return difference > 2 && difference > 0.05 * step_ms ? (int64_t)slow : -1;
}
