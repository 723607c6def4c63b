/* A histogram as TensorBoard's own writers make it: buckets whose limits grow by a tenth, from 1e-12 to 1e20, the same
 * below zero, so that histograms of different steps and sizes fall into the same ones.
 *
 * Bucket i counts numbers from limit i - 1 up to, but not including, limit i. Written are the buckets between the first
 * and the last that hold anything, a run of empty ones as one. */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "io/event_messages.h"
#include "io/protobuf.h"

enum {
    SIDE = 800,
    MAX_LIMITS = 2 * SIDE + 3, /* 774 limits a side, zero, and one beyond at each end */
    HEADS = 1 << 16
};

/* The upper half of a float, its head, says which bucket to begin with: numbers of one head differ by less than a hundredth,
 * so at most one limit lies between them. */
static struct {
    size_t count;
    double limits[MAX_LIMITS];
    uint16_t first[HEADS];
} buckets;

typedef struct histogram {
    double limits[MAX_LIMITS], counts[MAX_LIMITS];
    double least, most, number, sum, squares;
} histogram;

static void make_limits(void) {
    double positive[SIDE] = {1e-12};
    size_t count = 1;
    while (positive[count - 1] * 1.1 < 1e20) {
        positive[count] = positive[count - 1] * 1.1;
        count++;
    }
    double *to = buckets.limits;
    *to++ = -DBL_MAX;
    for (size_t i = count; i-- > 0;) *to++ = -positive[i];
    *to++ = 0;
    for (size_t i = 0; i < count; i++) *to++ = positive[i];
    *to++ = DBL_MAX;
    buckets.count = (size_t)(to - buckets.limits);
}

/* The first bucket from `low` on whose limit is beyond x. */
static size_t bucket_from(size_t low, double x) {
    while (low + 1 < buckets.count && buckets.limits[low] <= x) low++;
    return low;
}

/* The least number of a head has zeros below it; of a negative one, ones. */
static float least_of(uint32_t head) {
    uint32_t bits = head << 16 | (head >> 15 ? 0xffff : 0);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void make_buckets(void) {
    enum { POSITIVE = 0x7f80, SIGN = 0x8000 }; /* heads of finite numbers end before infinity's */
    make_limits();
    size_t bucket = 0;
    for (uint32_t i = POSITIVE; i-- > 0;)
        buckets.first[SIGN | i] = (uint16_t)(bucket = bucket_from(bucket, (double)least_of(SIGN | i)));
    for (uint32_t i = 0; i < POSITIVE; i++)
        buckets.first[i] = (uint16_t)(bucket = bucket_from(bucket, (double)least_of(i)));
}

static void take(histogram *h, float number) {
    uint32_t bits;
    double x = (double)number;
    if (!isfinite(number)) return;
    memcpy(&bits, &number, sizeof bits);
    if (h->number == 0 || x < h->least) h->least = x;
    if (h->number == 0 || x > h->most) h->most = x;
    h->number++;
    h->sum += x;
    h->squares += x * x;
    h->counts[bucket_from(buckets.first[bits >> 16], x)]++;
}

/* Moves what is to be written to the front; returns how many buckets that are. */
static size_t compact(histogram *h) {
    size_t first = 0, last = buckets.count, kept = 0;
    while (first < last && h->counts[first] == 0) first++;
    while (last > first && h->counts[last - 1] == 0) last--;
    for (size_t i = first; i < last; i++) {
        bool joins = kept > 0 && h->counts[i] == 0 && h->counts[kept - 1] == 0;
        size_t to = joins ? kept - 1 : kept++;
        h->limits[to] = buckets.limits[i];
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
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_buckets);
    histogram h = {0};
    for (size_t i = 0; i < count; i++) take(&h, numbers[i]);
    size_t written = compact(&h);
    tu__pb_double(message, 1, h.least);
    tu__pb_double(message, 2, h.most);
    tu__pb_double(message, 3, h.number);
    tu__pb_double(message, 4, h.sum);
    tu__pb_double(message, 5, h.squares);
    tu__pb_doubles(message, 6, h.limits, written);
    tu__pb_doubles(message, 7, h.counts, written);
}
