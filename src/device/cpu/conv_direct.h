/* Direct convolution: conv2d and its two gradients over dense tensors, without oneDNN. */
#ifndef TU__DEVICE_CPU_CONV_DIRECT_H
#define TU__DEVICE_CPU_CONV_DIRECT_H

#include "base/arena.h"
#include "device/cpu/isa/loops_gemm.h"
#include "graph/ops/window.h"

/* The sizes of y [images, y_size, groups * y_channels] = conv2d(x [images, x_size, groups * x_channels], filter) and
 * of its two gradients. */
typedef struct cpu_convolution {
    tu__windows windows;
    int64_t images, x_size[2], y_size[2];
    int64_t groups, x_channels, y_channels; /* channels of one group */
} cpu_convolution;

/* The tensor that is computed: y from (x, filter), dx from (dy, filter), the filter gradient from (x, dy). */
typedef enum cpu_conv_result { CPU_CONV_Y, CPU_CONV_DX, CPU_CONV_DW } cpu_conv_result;

typedef struct cpu_direct cpu_direct;

/* Plans in the arena. Sets *plan to NULL if the sizes are not worth planning (paddings of millions). Loops over bf16
 * pairs support only CPU_CONV_DW. */
tu_status cpu_direct_new(tu__arena *arena, const cpu_gemm_loops *loops, const cpu_convolution *convolution,
                         cpu_conv_result result, int threads, cpu_direct **plan);
/* From now on the second operand is the packed filter: packed_panels.h. Only for
 * CPU_CONV_Y. */
void cpu_direct_use_packed(cpu_direct *plan);
size_t cpu_direct_workspace(const cpu_direct *plan);

/* The two operands in the order given at cpu_conv_result. Only CPU_CONV_Y supports an epilogue: a bias (or NULL), a
 * residual of the size of the result (or NULL), which is added after it, and relu. */
typedef struct cpu_direct_operands {
    const void *first, *second, *bias;
    void *out, *workspace;
    bool relu;
    const void *residual;
} cpu_direct_operands;
void cpu_direct_run(const cpu_direct *plan, const cpu_direct_operands *operands);

#endif
