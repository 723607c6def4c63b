/* Histograms with the buckets of TensorBoard's writers: limits grow by 10% from 1e-12 to 1e20, mirrored below
 * zero. Histograms of all steps therefore use the same buckets.
 *
 * Bucket i counts numbers in [limit i - 1, limit i). Only the buckets between the first and the last non-empty one
 * are written, with each run of empty ones merged into one. */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "io/event_messages.h"
#include "io/protobuf.h"

enum {
    MAX_POSITIVE = 800,
    MAX_LIMITS = 2 * MAX_POSITIVE + 3, /* 774 limits per sign, zero, and one beyond each end */
    HIGH_HALF_COUNT = 1 << 16
};

/* The upper 16 bits of a float (its high half) select the bucket at which to start searching. Numbers with the
 * same high half differ by less than 1%, so at most one limit lies between them. */
static struct {
    size_t count;
    double limits[MAX_LIMITS];
    uint16_t first[HIGH_HALF_COUNT];
} buckets;

typedef struct histogram {
    double limits[MAX_LIMITS], counts[MAX_LIMITS];
    double min, max, count, sum, sum_of_squares;
} histogram;

static void init_limits(void) {
    double positive[MAX_POSITIVE] = {1e-12};
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

/* Returns the first bucket from `low` on whose limit is greater than x. */
static size_t find_bucket(size_t low, double x) {
    while (low + 1 < buckets.count && buckets.limits[low] <= x) low++;
    return low;
}

/* Returns the smallest float with this high half: its lower bits are zeros, or ones if it is negative. */
static float smallest_with_high_half(uint32_t high_half) {
    uint32_t bits = high_half << 16 | (high_half >> 15 ? 0xffff : 0);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void init_buckets(void) {
    enum { POSITIVE = 0x7f80, SIGN = 0x8000 }; /* high halves of infinities and NaN start at 0x7f80 */
    init_limits();
    size_t bucket = 0;
    for (uint32_t i = POSITIVE; i-- > 0;)
        buckets.first[SIGN | i] =
            (uint16_t)(bucket = find_bucket(bucket, (double)smallest_with_high_half(SIGN | i)));
    for (uint32_t i = 0; i < POSITIVE; i++)
        buckets.first[i] = (uint16_t)(bucket = find_bucket(bucket, (double)smallest_with_high_half(i)));
}

static void add_number(histogram *h, float number) {
    uint32_t bits;
    double x = (double)number;
    if (!isfinite(number)) return;
    memcpy(&bits, &number, sizeof bits);
    if (h->count == 0 || x < h->min) h->min = x;
    if (h->count == 0 || x > h->max) h->max = x;
    h->count++;
    h->sum += x;
    h->sum_of_squares += x * x;
    h->counts[find_bucket(buckets.first[bits >> 16], x)]++;
}

/* Moves the buckets to be written to the front and returns their number. */
static size_t merge_empty_buckets(histogram *h) {
    size_t first = 0, last = buckets.count, count = 0;
    while (first < last && h->counts[first] == 0) first++;
    while (last > first && h->counts[last - 1] == 0) last--;
    for (size_t i = first; i < last; i++) {
        bool is_merged = count > 0 && h->counts[i] == 0 && h->counts[count - 1] == 0;
        size_t to = is_merged ? count - 1 : count++;
        h->limits[to] = buckets.limits[i];
        h->counts[to] = h->counts[i];
    }
    if (count == 0) { /* TensorBoard requires at least one bucket */
        h->limits[0] = DBL_MAX;
        h->counts[0] = 0;
        count = 1;
    }
    return count;
}

void tu__event_write_histogram(tu__text *message, size_t count, const float *numbers) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_buckets);
    histogram h = {0};
    for (size_t i = 0; i < count; i++) add_number(&h, numbers[i]);
    size_t written = merge_empty_buckets(&h);
    tu__pb_double(message, 1, h.min);
    tu__pb_double(message, 2, h.max);
    tu__pb_double(message, 3, h.count);
    tu__pb_double(message, 4, h.sum);
    tu__pb_double(message, 5, h.sum_of_squares);
    tu__pb_doubles(message, 6, h.limits, written);
    tu__pb_doubles(message, 7, h.counts, written);
}
