/* What the files of conv_blocks share: a plan from inside. */
#ifndef TU__DEVICE_CPU_CONV_BLOCKS_PLAN_H
#define TU__DEVICE_CPU_CONV_BLOCKS_PLAN_H

#include "device/cpu/conv_blocks.h"
#include "device/cpu/conv_direct_plan.h"

struct cpu_conv_blocks {
    const cpu_blocks *blocks;
    const cpu_loops *loops;
    cpu_convolution_side side;
    cpu_convolution shape;
    int threads;
    int64_t size[2]; /* of the filter */
    /* Work comes in slices, bands of `band_rows` rows of the result (filter: of y) of an image. A slice's source is
     * copied with its padding, rows `pitch` pixels long; seen as one long row, pixel m of the result stands above
     * pixel m of that source, and a tile is a number of them. */
    int64_t out_size[2], band_rows, bands, pitch;
    int64_t flat; /* pixels that are multiplied, some of no use */
    padded source;
    int64_t source_elements; /* of a slice, with what tiles read past its end */
    int64_t width;           /* columns of b and c: result channels in whole tiles */
    int64_t chunks;          /* of k: of a row of the filter; filter: of a slice's pixels */
    int64_t *groups;         /* where they begin in a */
    int64_t group_count;
    /* y and x */
    int64_t tile_rows, tiles,
        row_tiles; /* of a slice; of a row, or 0: tiles follow each other through the rows */
    bool widened;  /* a is windows over two rows of the filter */
    /* filter */
    padded y;
    int64_t runs, run_columns; /* neighbouring taps and channels of x: a column each */
    int64_t y_rows;            /* channels of y in whole tiles */
    int64_t plane;             /* from a channel of the transposed y to the next */
    int64_t pair_width, pairs; /* of a pixel of x in pairs; of a slice */
    int64_t together;          /* slices whose products are added up in registers */
    int64_t parts;             /* of the slices, each added up in a matrix of its own */
    /* workspace, in bytes: b or sums, once; the rest for each worker */
    size_t shared_bytes, source_bytes, planes_bytes, y_bytes, pairs_bytes;
};

/* The first row of the result that slice `slice` has. */
static inline int64_t cpu_conv_blocks_band(const cpu_conv_blocks *d, int64_t slice) {
    return slice % d->bands * d->band_rows;
}

/* `before`: padding above and left of the source; `whole`: what `flat` is a multiple of. */
void cpu_conv_blocks_plan_slices(cpu_conv_blocks *d, const int64_t source_size[2], int64_t channels,
                                 const int64_t before[2], const int64_t out_size[2], int64_t whole);
size_t cpu_conv_blocks_worker_bytes(const cpu_conv_blocks *d);
char *cpu_conv_blocks_worker(const cpu_conv_blocks *d, const cpu_direct_operands *o, int worker);
/* The padded source of a slice, in scratch. */
void cpu_conv_blocks_pad(const cpu_conv_blocks *d, const void *images, int64_t slice, uint16_t *scratch);

tu_status cpu_conv_blocks_plan_filter(tu__arena *arena, cpu_conv_blocks *d);
void cpu_conv_blocks_filter(const cpu_conv_blocks *d, const cpu_direct_operands *o);

#endif
