/* Noticing a step that takes many times its usual. See slow_step.h. */
#include "train/slow_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double many_times = 10, least_delay = 0.05; /* seconds: less is not worth a word */

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
    if (times->told) return false;
    /* The median is only wanted of a step that may be slow, which few are. */
    if (times->count >= TU__USUAL_STEPS && seconds >= least_delay) {
        *usual = median(times);
        times->told = seconds >= many_times * *usual && seconds - *usual >= least_delay;
    }
    times->seconds[times->count++ % TU__USUAL_STEPS] = seconds;
    return times->told;
}

/* "95 ms", "2.4 ms", "1.3 s" */
typedef struct span {
    char text[32];
} span;

static span show(double seconds) {
    span s;
    bool short_one = seconds < 1;
    double number = short_one ? 1000 * seconds : seconds;
    snprintf(s.text, sizeof s.text, number < 10 ? "%.1f %s" : "%.0f %s", number, short_one ? "ms" : "s");
    return s;
}

void tu__slow_step_message(char *text, size_t capacity, int64_t step, double seconds, double usual) {
    snprintf(
        text, capacity,
        "step %lld took %s instead of the usual %s: another program may be using this machine, or the data is slow to read (told once)",
        (long long)step, show(seconds).text, show(usual).text);
}
