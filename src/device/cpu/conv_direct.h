/* Convolution by our own tiles: conv2d and its two transposes over dense tensors, without oneDNN. */
#ifndef TU__DEVICE_CPU_CONV_DIRECT_H
#define TU__DEVICE_CPU_CONV_DIRECT_H

#include "base/arena.h"
#include "device/cpu/isa/loops_gemm.h"
#include "graph/ops/window.h"

/* y [images, y_size, groups * y_channels] = conv2d(x [images, x_size, groups * x_channels], filter) and its two
 * transposes are told by the same numbers. */
typedef struct cpu_convolution {
    tu__windows windows;
    int64_t images, x_size[2], y_size[2];
    int64_t groups, x_channels, y_channels; /* channels of one group */
} cpu_convolution;

/* What is computed: y from (x, filter), x from (y, filter), the filter from (x, y). */
typedef enum cpu_convolution_side { CPU_CONV_Y, CPU_CONV_X, CPU_CONV_FILTER } cpu_convolution_side;

typedef struct cpu_direct cpu_direct;

/* Lives in the arena. NULL in *plan: the numbers are beyond what is worth planning (paddings of millions). Loops over
 * pairs compute CPU_CONV_FILTER alone. */
tu_status cpu_direct_new(tu__arena *arena, const cpu_gemm_loops *loops, const cpu_convolution *convolution,
                         cpu_convolution_side side, int threads, cpu_direct **plan);
size_t cpu_direct_workspace(const cpu_direct *plan);

/* Operands in the order of cpu_convolution_side's remarks. CPU_CONV_Y alone takes a bias (or NULL) and relu. */
typedef struct cpu_direct_operands {
    const void *first, *second, *bias;
    void *out, *workspace;
    bool relu;
} cpu_direct_operands;
void cpu_direct_run(const cpu_direct *plan, const cpu_direct_operands *operands);

#endif
