/* Detects slow steps. See slow_step.h. */
#include "train/slow_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double slow_factor = 10, min_delay = 0.05; /* seconds: shorter delays are not reported */

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(const tu__step_times *times) {
    double sorted[TU__USUAL_STEPS];
    memcpy(sorted, times->seconds, sizeof sorted);
    qsort(sorted, TU__USUAL_STEPS, sizeof *sorted, compare);
    return sorted[TU__USUAL_STEPS / 2];
}

bool tu__step_is_slow(tu__step_times *times, double seconds, double *usual) {
    if (times->reported) return false;
    /* Computes the median only for steps that may be slow, which are few. */
    if (times->count >= TU__USUAL_STEPS && seconds >= min_delay) {
        *usual = median(times);
        times->reported = seconds >= slow_factor * *usual && seconds - *usual >= min_delay;
    }
    times->seconds[times->count++ % TU__USUAL_STEPS] = seconds;
    return times->reported;
}

/* "95 ms", "2.4 ms", "1.3 s" */
typedef struct duration {
    char text[32];
} duration;

static duration format_duration(double seconds) {
    duration s;
    bool is_short = seconds < 1;
    double number = is_short ? 1000 * seconds : seconds;
    snprintf(s.text, sizeof s.text, number < 10 ? "%.1f %s" : "%.0f %s", number, is_short ? "ms" : "s");
    return s;
}

void tu__slow_step_message(char *text, size_t capacity, int64_t step, double seconds, double usual) {
    snprintf(
        text, capacity,
        "step %lld took %s instead of the usual %s: another process may be using this machine, or the data is slow to read (reported once)",
        (long long)step, format_duration(seconds).text, format_duration(usual).text);
}
