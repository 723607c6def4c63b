/* Histograms with the buckets of TensorBoard's own writers: limits grow by 10% from 1e-12 to 1e20, mirrored below
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
    HEAD_COUNT = 1 << 16
};

/* The upper 16 bits of a float (its head) select the bucket at which to start searching. Numbers with the same head
 * differ by less than 1%, so at most one limit lies between them. */
static struct {
    size_t count;
    double limits[MAX_LIMITS];
    uint16_t first[HEAD_COUNT];
} buckets;

typedef struct histogram {
    double limits[MAX_LIMITS], counts[MAX_LIMITS];
    double least, most, number, sum, squares;
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

/* Returns the smallest float with this head: its lower bits are zeros, or ones if it is negative. */
static float smallest_of(uint32_t head) {
    uint32_t bits = head << 16 | (head >> 15 ? 0xffff : 0);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void init_buckets(void) {
    enum { POSITIVE = 0x7f80, SIGN = 0x8000 }; /* heads of infinities and NaN start at 0x7f80 */
    init_limits();
    size_t bucket = 0;
    for (uint32_t i = POSITIVE; i-- > 0;)
        buckets.first[SIGN | i] = (uint16_t)(bucket = find_bucket(bucket, (double)smallest_of(SIGN | i)));
    for (uint32_t i = 0; i < POSITIVE; i++)
        buckets.first[i] = (uint16_t)(bucket = find_bucket(bucket, (double)smallest_of(i)));
}

static void add_number(histogram *h, float number) {
    uint32_t bits;
    double x = (double)number;
    if (!isfinite(number)) return;
    memcpy(&bits, &number, sizeof bits);
    if (h->number == 0 || x < h->least) h->least = x;
    if (h->number == 0 || x > h->most) h->most = x;
    h->number++;
    h->sum += x;
    h->squares += x * x;
    h->counts[find_bucket(buckets.first[bits >> 16], x)]++;
}

/* Moves the buckets to be written to the front and returns their number. */
static size_t compact(histogram *h) {
    size_t first = 0, last = buckets.count, kept = 0;
    while (first < last && h->counts[first] == 0) first++;
    while (last > first && h->counts[last - 1] == 0) last--;
    for (size_t i = first; i < last; i++) {
        bool merges = kept > 0 && h->counts[i] == 0 && h->counts[kept - 1] == 0;
        size_t to = merges ? kept - 1 : kept++;
        h->limits[to] = buckets.limits[i];
        h->counts[to] = h->counts[i];
    }
    if (kept == 0) { /* TensorBoard requires at least one bucket */
        h->limits[0] = DBL_MAX;
        h->counts[0] = 0;
        kept = 1;
    }
    return kept;
}

void tu__event_write_histogram(tu__text *message, size_t count, const float *numbers) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_buckets);
    histogram h = {0};
    for (size_t i = 0; i < count; i++) add_number(&h, numbers[i]);
    size_t written = compact(&h);
    tu__pb_double(message, 1, h.least);
    tu__pb_double(message, 2, h.most);
    tu__pb_double(message, 3, h.number);
    tu__pb_double(message, 4, h.sum);
    tu__pb_double(message, 5, h.squares);
    tu__pb_doubles(message, 6, h.limits, written);
    tu__pb_doubles(message, 7, h.counts, written);
}
