/* Shared by the files of conv_blocks: the contents of a plan. */
#ifndef TU__DEVICE_CPU_CONV_BLOCKS_PLAN_H
#define TU__DEVICE_CPU_CONV_BLOCKS_PLAN_H

#include "device/cpu/conv_blocks.h"
#include "device/cpu/conv_direct_plan.h"

struct cpu_conv_blocks {
    const cpu_blocks *blocks;
    const cpu_loops *loops;
    cpu_conv_result computes;
    cpu_convolution shape;
    int threads;
    int64_t size[2]; /* of the filter */
    /* A work item is a slice: a band of `band_rows` rows of an image of the result (filter gradient: of y). Its
     * source is copied with padding, in rows of `pitch` pixels. If the rows of the result are numbered with the same
     * pitch, pixel m of the result reads the source from pixel m on; a tile is a range of such pixels. */
    int64_t out_size[2], band_rows, bands, pitch;
    int64_t flat; /* pixels that are multiplied, including the unused ones between rows */
    padded source;
    int64_t source_elements; /* of a slice, including what tiles read past its end */
    int64_t width;           /* columns of b and c: result channels rounded up to tiles */
    int64_t chunks;  /* of k per group: in a row of the filter; filter gradient: in the pixels of a slice */
    int64_t *groups; /* offsets of the groups in a */
    int64_t group_count;
    /* y and dx */
    int64_t tile_rows, tiles; /* per tile; per slice */
    int64_t row_tiles;        /* tiles per row; 0: tiles continue from row to row */
    bool uses_windows;        /* a consists of windows over two rows of the filter */
    /* filter gradient */
    padded y;
    int64_t runs, run_columns; /* a run: adjacent taps and channels of x, one column each */
    int64_t y_rows;            /* channels of y rounded up to tiles */
    int64_t plane;             /* stride between channels of the transposed y */
    int64_t pair_width, pairs; /* pairs per pixel of x; per slice */
    int64_t slices_at_once;    /* slices whose products are added in registers */
    int64_t partial_count;     /* chunks of the slices, each summed into a matrix of its own */
    /* workspace, in bytes: the packed filter or the sums, once; the rest per worker */
    size_t shared_bytes, source_bytes, planes_bytes, y_bytes, pairs_bytes;
};

/* Returns the first row of the result in a slice. */
static inline int64_t cpu_conv_blocks_band(const cpu_conv_blocks *plan, int64_t slice) {
    return slice % plan->bands * plan->band_rows;
}

/* `before`: padding above and left of the source; `multiple`: `flat` is rounded up to a multiple of it. */
void cpu_conv_blocks_plan_slices(cpu_conv_blocks *plan, const int64_t source_size[2], int64_t channels,
                                 const int64_t before[2], const int64_t out_size[2], int64_t multiple);
size_t cpu_conv_blocks_worker_bytes(const cpu_conv_blocks *plan);
char *cpu_conv_blocks_worker(const cpu_conv_blocks *plan, const cpu_direct_operands *operands, int worker);
/* Copies the source of a slice, with padding, to `scratch`. */
void cpu_conv_blocks_pad(const cpu_conv_blocks *plan, const void *images, int64_t slice, uint16_t *scratch);

tu_status cpu_conv_blocks_plan_filter(tu__arena *arena, cpu_conv_blocks *plan);
void cpu_conv_blocks_filter(const cpu_conv_blocks *plan, const cpu_direct_operands *operands);

#endif
