/* Inner loops of softmax and cross-entropy, along rows of k.
 *
 * The largest element is taken off first, so that no exponential overflows; it skips NaNs, which come back in
 * through the sum. A row whose largest element is infinite has no sum: its logarithm counts as 0, and
 * infinity less infinity is NaN where it should be.
 */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/lanes.h"

LANES_INLINE float row_max(bool half, int64_t k, const void *x, int64_t at) {
    lanes most = lanes_of(-INFINITY);
    for (int64_t i = 0; i < k; i += LANES) {
        lanes v = lanes_upto(i, k, lanes_load_upto(half, x, at + i, at + k), lanes_of(-INFINITY));
        most = lanes_select(lanes_greater(v, most), v, most);
    }
    return lanes_largest(most);
}

/* The sum of exp(x - most); the terms go to `y` where it is given, in f32. */
LANES_INLINE float row_sum(bool half, int64_t k, const void *x, int64_t at, float most, void *y) {
    lanes sum = {0};
    for (int64_t i = 0; i < k; i += LANES) {
        lanes e = lanes_exp(lanes_load_upto(half, x, at + i, at + k) - most);
        sum += lanes_upto(i, k, e, (lanes){0});
        if (y) lanes_store_upto(false, y, at + i, at + k, e);
    }
    return lanes_sum(sum);
}

/* f32: the exponentials are kept in y and scaled there. bf16 would round them twice: they are computed again.
 */
LANES_INLINE void softmax(bool half, int64_t rows, int64_t k, const void *x, void *y) {
    for (int64_t at = 0; at < rows * k; at += k) {
        float most = row_max(half, k, x, at), sum = row_sum(half, k, x, at, most, half ? 0 : y);
        float factor = most - most == 0 ? 1 / sum : 1;
        for (int64_t i = 0; i < k; i += LANES) {
            lanes e = half ? lanes_exp(lanes_load_upto(half, x, at + i, at + k) - most)
                           : lanes_load_upto(half, y, at + i, at + k);
            lanes_store_upto(half, y, at + i, at + k, e * factor);
        }
    }
}

LANES_INLINE float log_of_sum(float most, float sum) {
    return most - most == 0 ? logf(sum) : 0;
}

LANES_INLINE void log_softmax(bool half, int64_t rows, int64_t k, const void *x, void *y) {
    for (int64_t at = 0; at < rows * k; at += k) {
        float most = row_max(half, k, x, at), log_sum = log_of_sum(most, row_sum(half, k, x, at, most, 0));
        for (int64_t i = 0; i < k; i += LANES)
            lanes_store_upto(half, y, at + i, at + k,
                             (lanes_load_upto(half, x, at + i, at + k) - most) - log_sum);
    }
}

LANES_INLINE float element(bool half, const void *x, int64_t at) {
    return lanes_load_some(half, x, at, 1)[0];
}

/* The sum over the row of log_softmax(x) times the targets (NULL: times 1); a target of zero counts for
 * nothing, even beside an infinite x. */
LANES_INLINE float row_product(bool half, int64_t k, float smoothing, const void *x, int64_t at, float most,
                               float log_sum, const void *targets) {
    lanes sum = {0};
    float even = smoothing / (float)k;
    for (int64_t i = 0; i < k; i += LANES) {
        lanes log_y = (lanes_load_upto(half, x, at + i, at + k) - most) - log_sum;
        if (targets) {
            lanes t = lanes_load_upto(half, targets, at + i, at + k) * (1 - smoothing) + even;
            log_y = lanes_select(lanes_equal(t, (lanes){0}), (lanes){0}, t * log_y);
        }
        sum += lanes_upto(i, k, log_y, (lanes){0});
    }
    return lanes_sum(sum);
}

LANES_INLINE void cross_entropy(bool half, int64_t rows, int64_t k, float smoothing, const void *x,
                                const int64_t *labels, const void *targets, float *loss) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row * k;
        loss[row] = 0;
        if (labels && (labels[row] < 0 || labels[row] >= k)) continue;
        float most = row_max(half, k, x, at), log_sum = log_of_sum(most, row_sum(half, k, x, at, most, 0));
        if (!labels) {
            loss[row] = -row_product(half, k, smoothing, x, at, most, log_sum, targets);
            continue;
        }
        loss[row] = -(1 - smoothing) * ((element(half, x, at + labels[row]) - most) - log_sum);
        if (smoothing != 0)
            loss[row] -= smoothing / (float)k * row_product(half, k, 0, x, at, most, log_sum, 0);
    }
}

LANES_BOTH_TYPES(softmax, (int64_t rows, int64_t k, const void *x, void *y), rows, k, x, y)
LANES_BOTH_TYPES(log_softmax, (int64_t rows, int64_t k, const void *x, void *y), rows, k, x, y)
LANES_BOTH_TYPES(cross_entropy,
                 (int64_t rows, int64_t k, float smoothing, const void *x, const int64_t *labels,
                  const void *targets, float *loss),
                 rows, k, smoothing, x, labels, targets, loss)

const struct cpu_softmax_loops LOOP(cpu_softmax_loops) = {
    .softmax = {softmax_f32, softmax_bf16},
    .log_softmax = {log_softmax_f32, log_softmax_bf16},
    .cross_entropy = {cross_entropy_f32, cross_entropy_bf16},
};
