/* Convolutions and matrix products of frozen graphs in bf16, with AMX tiles (isa/tiles.h): the weights are packed once. */
#ifndef TU__DEVICE_CPU_TILE_PRODUCT_H
#define TU__DEVICE_CPU_TILE_PRODUCT_H

#include "base/arena.h"
#include "device/cpu/conv_direct.h"
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/tiles.h"
#include "device/cpu/packed_weights.h"

typedef struct cpu_tile_product cpu_tile_product;

/* Plans y [images, y_size, y_channels] = convolution of x in the arena; a product is a convolution of images of one pixel.
 * Sets *plan to NULL if the sizes are not worth planning: groups, rows of k of megabytes. */
tu_status cpu_tile_product_new(tu__arena *arena, const cpu_tiles *tiles, const struct cpu_round_loops *round,
                               const cpu_convolution *shape, int threads, cpu_tile_product **plan);
/* Sets the order of the weights: weight k of column j is at k * k_step + j * column_step. The default is OHWI. For
 * products. */
void cpu_tile_product_set_order(cpu_tile_product *plan, int64_t k_step, int64_t column_step);
/* Returns the layout in which the weights must be packed. */
const cpu_packed_layout *cpu_tile_product_layout(const cpu_tile_product *plan);
size_t cpu_tile_product_workspace(const cpu_tile_product *plan);

/* x, the packed weights as `second`, and the epilogue. */
void cpu_tile_product_run(const cpu_tile_product *plan, const cpu_direct_operands *operands);

#endif
