/* Winograd's convolution F(4x4, 3x3) with packed weights, in f32. */
#ifndef TU__DEVICE_CPU_WINOGRAD_H
#define TU__DEVICE_CPU_WINOGRAD_H

#include "base/arena.h"
#include "device/cpu/conv_direct.h"
#include "device/cpu/isa/loops.h"
#include "device/cpu/packed_weights.h"

typedef struct cpu_winograd cpu_winograd;

/* True if a convolution can be computed so, and faster than directly. Depends on one image only. */
bool cpu_winograd_is_faster(const cpu_convolution *c);

tu_status cpu_winograd_new(tu__arena *arena, const cpu_loops *loops, const cpu_convolution *c, int threads,
                           cpu_winograd **plan);
/* Returns the layout of the packed weights: the transformed filters. */
cpu_packed_layout cpu_winograd_layout(const cpu_winograd *plan);
/* Returns the fewest images whose tiles make a block. */
int64_t cpu_winograd_block_images(const cpu_winograd *plan);
size_t cpu_winograd_workspace(const cpu_winograd *plan);

/* `second` is the packed filter. */
void cpu_winograd_run(const cpu_winograd *plan, const cpu_direct_operands *operands);

#endif
