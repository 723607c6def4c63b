/* Integer arithmetic for dividing work into chunks. */
#ifndef TU__DEVICE_CPU_CHUNKS_H
#define TU__DEVICE_CPU_CHUNKS_H

#include <stdint.h>

static inline int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline int64_t round_up(int64_t x, int64_t to) {
    return divide_up(x, to) * to;
}

/* Returns the first item of chunk i of `chunks` chunks, whose sizes differ by at most one. */
static inline int64_t chunk_start(int64_t count, int64_t chunks, int64_t i) {
    return i * (count / chunks) + min_i64(i, count % chunks);
}

#endif
