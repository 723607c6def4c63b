/* Integer convolutions and products on the CPU: sums of u8 x i8, and their conversion to u8 in the same kernel. */
#ifndef TU__DEVICE_CPU_INT8_CONV_H
#define TU__DEVICE_CPU_INT8_CONV_H

#include "base/arena.h"
#include "device/cpu/conv_direct.h"
#include "device/cpu/int8_filter.h"
#include "device/cpu/isa/loops_int8.h"

typedef struct cpu_int8_conv cpu_int8_conv;

/* Returns the bytes of a row of a block: that many are contiguous in x. */
int64_t cpu_int8_conv_block_bytes(const cpu_convolution *shape);

/* Plans y [images, y_size, y_channels] = convolution of x - zero, in the arena. Sets *plan to NULL if the sizes are not
 * worth planning: groups, paddings of millions. */
tu_status cpu_int8_conv_new(tu__arena *arena, const struct cpu_loops_int8 *loops, const cpu_int8_dot *dot,
                            const cpu_convolution *shape, int32_t zero, int threads, cpu_int8_conv **plan);
/* Sets the order of the weights: weight k of output channel o is at k * k_step + o * column_step. The default is OHWI. For
 * products. */
void cpu_int8_conv_set_order(cpu_int8_conv *plan, int64_t k_step, int64_t column_step);
/* Returns the layout in which the filter must be packed. */
const cpu_packed_layout *cpu_int8_conv_layout(const cpu_int8_conv *plan);

size_t cpu_int8_conv_workspace(const cpu_int8_conv *plan);

typedef struct cpu_int8_operands {
    const uint8_t *x;
    cpu_int8_filter filter;
    /* NULL: `out` gets the sums, as i32. Otherwise u8; with a residual, requantize_add. */
    const cpu_requantization *requantization;
    const uint8_t *residual;
    void *out, *workspace;
} cpu_int8_operands;
void cpu_int8_conv_run(const cpu_int8_conv *plan, const cpu_int8_operands *operands);

#endif
