/* Filters of integer convolutions and products in the layout of the tiles (isa/loops_int8.h).
 *
 * A filter is divided into panels of columns (output channels). A panel is [blocks * words of a block, width], where
 * width is the number of columns rounded up to a multiple of the vector. After the panels come the sums of each column's weights, by
 * which the zero point of the input is multiplied. */
#ifndef TU__DEVICE_CPU_INT8_FILTER_H
#define TU__DEVICE_CPU_INT8_FILTER_H

#include "device/cpu/isa/loops_int8.h"
#include "device/cpu/packed_weights.h"

enum { CPU_INT8_WORD = 4 }; /* bytes */

typedef struct cpu_int8_filter {
    const uint32_t *words;
    const int32_t *sums;
} cpu_int8_filter;

/* Returns the layout of a filter with `blocks` blocks of `depth` weights per column. Weight k of a block is at
 * block * block_step + k * k_step + column * column_step. */
cpu_packed_layout cpu_int8_layout(const cpu_int8_dot *dot, int64_t blocks, int64_t depth, int64_t columns,
                                  int64_t block_step, int64_t k_step, int64_t column_step);
/* Returns the parts of a packed filter: what `pack` of the layout has written. */
cpu_int8_filter cpu_int8_filter_at(const cpu_packed_layout *layout, const void *packed);

/* Returns the words of a block, and the columns of a panel. */
int64_t cpu_int8_block_words(const cpu_int8_dot *dot, int64_t depth);
int64_t cpu_int8_panel_columns(const cpu_int8_dot *dot);

#endif
