/* A histogram as TensorBoard's own writers make it: buckets whose limits grow by a tenth, from 1e-12 to 1e20, the same
 * below zero, so that histograms of different steps and sizes fall into the same ones.
 *
 * Bucket i counts numbers from limit i - 1 up to, but not including, limit i. Written are the buckets between the first
 * and the last that hold anything, a run of empty ones as one. */
#include <float.h>
#include <math.h>

#include "io/event_messages.h"
#include "io/protobuf.h"

enum { SIDE = 800, MOST_LIMITS = 2 * SIDE + 3 }; /* 774 limits a side, zero, and one beyond at each end */

typedef struct histogram {
    size_t limit_count;
    double limits[MOST_LIMITS], counts[MOST_LIMITS];
    double least, most, number, sum, squares;
} histogram;

static void make_limits(histogram *h) {
    double positive[SIDE] = {1e-12};
    size_t count = 1;
    while (positive[count - 1] * 1.1 < 1e20) {
        positive[count] = positive[count - 1] * 1.1;
        count++;
    }
    h->limits[h->limit_count++] = -DBL_MAX;
    for (size_t i = count; i-- > 0;) h->limits[h->limit_count++] = -positive[i];
    h->limits[h->limit_count++] = 0;
    for (size_t i = 0; i < count; i++) h->limits[h->limit_count++] = positive[i];
    h->limits[h->limit_count++] = DBL_MAX;
}

/* The first bucket whose limit is beyond x. */
static size_t bucket_of(const histogram *h, double x) {
    size_t low = 0, high = h->limit_count - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (h->limits[middle] > x)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void take(histogram *h, double x) {
    if (!isfinite(x)) return;
    if (h->number == 0 || x < h->least) h->least = x;
    if (h->number == 0 || x > h->most) h->most = x;
    h->number++;
    h->sum += x;
    h->squares += x * x;
    h->counts[bucket_of(h, x)]++;
}

/* Moves what is to be written to the front; returns how many buckets that are. */
static size_t compact(histogram *h) {
    size_t first = 0, last = h->limit_count, kept = 0;
    while (first < last && h->counts[first] == 0) first++;
    while (last > first && h->counts[last - 1] == 0) last--;
    for (size_t i = first; i < last; i++) {
        bool joins = kept > 0 && h->counts[i] == 0 && h->counts[kept - 1] == 0;
        size_t to = joins ? kept - 1 : kept++;
        h->limits[to] = h->limits[i];
        h->counts[to] = h->counts[i];
    }
    if (kept == 0) { /* TensorBoard wants one bucket at least */
        h->limits[0] = DBL_MAX;
        h->counts[0] = 0;
        kept = 1;
    }
    return kept;
}

void tu__event_put_histogram(tu__text *message, size_t count, const float *numbers) {
    histogram h = {0};
    make_limits(&h);
    for (size_t i = 0; i < count; i++) take(&h, (double)numbers[i]);
    size_t buckets = compact(&h);
    tu__pb_double(message, 1, h.least);
    tu__pb_double(message, 2, h.most);
    tu__pb_double(message, 3, h.number);
    tu__pb_double(message, 4, h.sum);
    tu__pb_double(message, 5, h.squares);
    tu__pb_doubles(message, 6, h.limits, buckets);
    tu__pb_doubles(message, 7, h.counts, buckets);
}
