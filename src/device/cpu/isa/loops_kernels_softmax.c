/* Inner loops of softmax and cross-entropy, along rows of k.
 *
 * The maximum of a row is subtracted first, so that no exponential overflows. The maximum ignores NaN, which reaches
 * the result through the sum. If the maximum is infinite, the logarithm of the sum is replaced by 0, and infinity -
 * infinity gives NaN as it should. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/lanes.h"

LANES_INLINE float row_max(bool is_bf16, int64_t k, const void *x, int64_t offset) {
    lanes max = lanes_splat(-INFINITY);
    for (int64_t i = 0; i < k; i += LANES) {
        lanes v =
            lanes_upto(i, k, lanes_load_upto(is_bf16, x, offset + i, offset + k), lanes_splat(-INFINITY));
        max = lanes_select(lanes_greater(v, max), v, max);
    }
    return lanes_reduce_max(max);
}

/* Returns the sum of exp(x - max); stores the terms to `y`, in f32, if that is not NULL. */
LANES_INLINE float row_sum(bool is_bf16, int64_t k, const void *x, int64_t offset, float max, void *y) {
    lanes sum = {0};
    for (int64_t i = 0; i < k; i += LANES) {
        lanes e = lanes_exp(lanes_load_upto(is_bf16, x, offset + i, offset + k) - max);
        sum += lanes_upto(i, k, e, (lanes){0});
        if (y) lanes_store_upto(false, y, offset + i, offset + k, e);
    }
    return lanes_reduce_sum(sum);
}

/* f32: the exponentials are stored in y and scaled there. In bf16 that would round them twice, so they are
 * recomputed. */
LANES_INLINE void softmax(bool is_bf16, int64_t rows, int64_t k, const void *x, void *y) {
    for (int64_t offset = 0; offset < rows * k; offset += k) {
        float max = row_max(is_bf16, k, x, offset),
              sum = row_sum(is_bf16, k, x, offset, max, is_bf16 ? 0 : y);
        float factor = max - max == 0 ? 1 / sum : 1;
        for (int64_t i = 0; i < k; i += LANES) {
            lanes e = is_bf16 ? lanes_exp(lanes_load_upto(is_bf16, x, offset + i, offset + k) - max)
                              : lanes_load_upto(is_bf16, y, offset + i, offset + k);
            lanes_store_upto(is_bf16, y, offset + i, offset + k, e * factor);
        }
    }
}

LANES_INLINE float log_of_sum(float max, float sum) {
    return max - max == 0 ? logf(sum) : 0;
}

LANES_INLINE void log_softmax(bool is_bf16, int64_t rows, int64_t k, const void *x, void *y) {
    for (int64_t offset = 0; offset < rows * k; offset += k) {
        float max = row_max(is_bf16, k, x, offset),
              log_sum = log_of_sum(max, row_sum(is_bf16, k, x, offset, max, 0));
        for (int64_t i = 0; i < k; i += LANES)
            lanes_store_upto(is_bf16, y, offset + i, offset + k,
                             (lanes_load_upto(is_bf16, x, offset + i, offset + k) - max) - log_sum);
    }
}

LANES_INLINE float element(bool is_bf16, const void *x, int64_t offset) {
    return lanes_load_some(is_bf16, x, offset, 1)[0];
}

/* Returns the sum over the row of log_softmax(x) times the targets (NULL: times 1). A target of zero contributes
 * nothing, even if x is infinite. */
LANES_INLINE float sum_of_log_softmax(bool is_bf16, int64_t k, float smoothing, const void *x, int64_t offset,
                                      float max, float log_sum, const void *targets) {
    lanes sum = {0};
    float uniform_target = smoothing / (float)k;
    for (int64_t i = 0; i < k; i += LANES) {
        lanes log_y = (lanes_load_upto(is_bf16, x, offset + i, offset + k) - max) - log_sum;
        if (targets) {
            lanes t =
                lanes_load_upto(is_bf16, targets, offset + i, offset + k) * (1 - smoothing) + uniform_target;
            log_y = lanes_select(lanes_equal(t, (lanes){0}), (lanes){0}, t * log_y);
        }
        sum += lanes_upto(i, k, log_y, (lanes){0});
    }
    return lanes_reduce_sum(sum);
}

LANES_INLINE void cross_entropy(bool is_bf16, int64_t rows, int64_t k, float smoothing, const void *x,
                                const int64_t *labels, const void *targets, float *loss) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = row * k;
        loss[row] = 0;
        if (labels && (labels[row] < 0 || labels[row] >= k)) continue;
        float max = row_max(is_bf16, k, x, offset),
              log_sum = log_of_sum(max, row_sum(is_bf16, k, x, offset, max, 0));
        if (!labels) {
            loss[row] = -sum_of_log_softmax(is_bf16, k, smoothing, x, offset, max, log_sum, targets);
            continue;
        }
        loss[row] = -(1 - smoothing) * ((element(is_bf16, x, offset + labels[row]) - max) - log_sum);
        if (smoothing != 0)
            loss[row] -= smoothing / (float)k * sum_of_log_softmax(is_bf16, k, 0, x, offset, max, log_sum, 0);
    }
}

/* softmax - one_hot(labels); 0 times the softmax in rows whose label is out of range. */
LANES_INLINE void cross_entropy_grad(bool is_bf16, int64_t rows, int64_t k, const void *x,
                                     const int64_t *labels, void *y) {
    softmax(is_bf16, rows, k, x, y);
    for (int64_t row = 0; row < rows; row++) {
        bool is_masked = labels[row] < 0 || labels[row] >= k;
        int64_t i = row * k + (is_masked ? 0 : labels[row]), end = is_masked ? i + k : i + 1;
        float factor = is_masked ? 0 : 1, target = is_masked ? 0 : 1;
        for (; i < end; i += LANES)
            lanes_store_upto(is_bf16, y, i, end, lanes_load_upto(is_bf16, y, i, end) * factor - target);
    }
}

LANES_BOTH_TYPES(softmax, (int64_t rows, int64_t k, const void *x, void *y), rows, k, x, y)
LANES_BOTH_TYPES(log_softmax, (int64_t rows, int64_t k, const void *x, void *y), rows, k, x, y)
LANES_BOTH_TYPES(cross_entropy,
                 (int64_t rows, int64_t k, float smoothing, const void *x, const int64_t *labels,
                  const void *targets, float *loss),
                 rows, k, smoothing, x, labels, targets, loss)
LANES_BOTH_TYPES(cross_entropy_grad, (int64_t rows, int64_t k, const void *x, const int64_t *labels, void *y),
                 rows, k, x, labels, y)

const struct cpu_softmax_loops LOOP(cpu_softmax_loops) = {
    .softmax = {softmax_f32, softmax_bf16},
    .log_softmax = {log_softmax_f32, log_softmax_bf16},
    .cross_entropy = {cross_entropy_f32, cross_entropy_bf16},
    .cross_entropy_grad = {cross_entropy_grad_f32, cross_entropy_grad_bf16},
};
