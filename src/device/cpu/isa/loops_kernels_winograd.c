/* The transforms of Winograd's convolution F(4x4, 3x3): see device/cpu/winograd.c. A vector of channels at a time. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/lanes.h"

enum { IN = CPU_WINOGRAD_IN, OUT = CPU_WINOGRAD_OUT };

/* t = B^T d along one axis, for the points 0, 1, -1, 2, -2 and infinity. */
LANES_INLINE void transform_input(const lanes d[IN], lanes t[IN]) {
    lanes even = d[4] - 4 * d[2], odd = d[3] - 4 * d[1];
    lanes even2 = d[4] - d[2], odd2 = 2 * (d[3] - d[1]);
    t[0] = 4 * d[0] - 5 * d[2] + d[4];
    t[1] = even + odd;
    t[2] = even - odd;
    t[3] = even2 + odd2;
    t[4] = even2 - odd2;
    t[5] = 4 * d[1] - 5 * d[3] + d[5];
}

/* y = A^T m along one axis. */
LANES_INLINE void transform_output(const lanes m[IN], lanes y[OUT]) {
    lanes even = m[1] + m[2], odd = m[1] - m[2], even2 = m[3] + m[4], odd2 = m[3] - m[4];
    y[0] = m[0] + even + even2;
    y[1] = odd + 2 * odd2;
    y[2] = even + 4 * even2;
    y[3] = odd + 8 * odd2 + m[5];
}

static void input(int64_t channels, const float *const *pixels, float *v, int64_t stride) {
    for (int64_t c = 0; c < channels; c += LANES) {
        lanes columns[IN][IN]; /* [column][row] */
        for (int j = 0; j < IN; j++) {
            lanes d[IN];
            for (int i = 0; i < IN; i++) d[i] = lanes_load(false, pixels[i * IN + j], c);
            transform_input(d, columns[j]);
        }
        for (int i = 0; i < IN; i++) {
            lanes d[IN], t[IN];
            for (int j = 0; j < IN; j++) d[j] = columns[j][i];
            transform_input(d, t);
            for (int j = 0; j < IN; j++) lanes_store(false, v, (i * IN + j) * stride + c, t[j]);
        }
    }
}

/* Each sum is rounded as by a separate operation; the comparison keeps NaN. */
LANES_INLINE lanes finish(const cpu_winograd_output *o, lanes y, int pixel, int64_t c) {
    if (o->bias) y += lanes_load(false, o->bias, c);
    if (o->residual) y += lanes_load(false, o->residual[pixel], c);
    return o->relu ? lanes_select(lanes_greater((lanes){0}, y), (lanes){0}, y) : y;
}

static void output(const cpu_winograd_output *o, const float *m, int64_t stride) {
    for (int64_t c = 0; c < o->channels; c += LANES) {
        lanes columns[IN][OUT]; /* [column][row] */
        for (int j = 0; j < IN; j++) {
            lanes d[IN];
            for (int i = 0; i < IN; i++) d[i] = lanes_load(false, m, (i * IN + j) * stride + c);
            transform_output(d, columns[j]);
        }
        for (int i = 0; i < OUT; i++) {
            lanes d[IN], y[OUT];
            for (int j = 0; j < IN; j++) d[j] = columns[j][i];
            transform_output(d, y);
            for (int j = 0; j < OUT; j++)
                if (o->pixels[i * OUT + j])
                    lanes_store(false, o->pixels[i * OUT + j], c, finish(o, y[j], i * OUT + j, c));
        }
    }
}

const struct cpu_winograd_loops LOOP(cpu_winograd_loops) = {.input = input, .output = output};
