/* Convolution in bf16 with AMX tiles (isa/blocks.h): conv2d and its two gradients, for strides and dilations of 1. */
#ifndef TU__DEVICE_CPU_CONV_BLOCKS_H
#define TU__DEVICE_CPU_CONV_BLOCKS_H

#include "device/cpu/conv_direct.h"
#include "device/cpu/isa/blocks.h"
#include "device/cpu/isa/loops.h"

typedef struct cpu_conv_blocks cpu_conv_blocks;

/* Plans in the arena. Sets *plan to NULL if the tiles do not support the convolution. */
tu_status cpu_conv_blocks_new(tu__arena *arena, const cpu_blocks *blocks, const cpu_loops *loops,
                              const cpu_convolution *convolution, cpu_conv_result result, int threads,
                              cpu_conv_blocks **plan);
size_t cpu_conv_blocks_workspace(const cpu_conv_blocks *plan);
void cpu_conv_blocks_run(const cpu_conv_blocks *plan, const cpu_direct_operands *operands);

#endif
