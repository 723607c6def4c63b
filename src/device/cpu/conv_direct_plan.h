/* Shared by the files of conv_direct: the contents of a plan; panels, tiles and padded images. */
#ifndef TU__DEVICE_CPU_CONV_DIRECT_PLAN_H
#define TU__DEVICE_CPU_CONV_DIRECT_PLAN_H

#include "base/parallel.h"
#include "device/cpu/chunks.h"
#include "device/cpu/conv_direct.h"
#include "device/cpu/packed_panels.h"

enum { CPU_DIRECT_UNPADDED_CHANNELS = 16 /* with fewer channels, images are padded */ };

typedef struct padded { /* an image [size, channels] with padding */
    int64_t size[2], channels;
    int64_t before[2];      /* rows above and columns left of it; negative: cropped */
    int64_t padded_size[2]; /* size including the padding */
    bool is_unpadded;       /* there is no padding */
} padded;

/* Along one axis: the output pixels first + step * (0 … count - 1), which have the same taps; the taps, ordered by
 * source position, and the offset of each from the pixel's own position. */
typedef struct axis_phase {
    int64_t first, count;
    int64_t taps, *tap, *offset;
} axis_phase;

typedef struct segment { /* rows of a tile that have the same in-bounds taps of a filter row */
    int64_t row, rows, tap, taps;
} segment;

typedef struct border_tile { /* adjacent output pixels: rows `row` … row + rows - 1 of the phase */
    int64_t row, rows;
    segment *segments; /* the last one has all rows, or no taps */
    int64_t segment_count;
} border_tile;

typedef struct phase { /* the output pixels with the same taps */
    axis_phase axis[2];
    int64_t blocks, depth; /* k of its tiles: `blocks` blocks of `depth` */
    int64_t *a_blocks;     /* source offsets of the blocks; skips_padding: of the filter rows */
    int64_t k_first;       /* its first row in a packed panel */
    border_tile **tiles;   /* skips_padding: a list per panel; a tile without rows ends it */
} phase;

struct cpu_direct {
    const cpu_gemm_loops *loops;
    cpu_conv_result computes;
    cpu_convolution shape;
    padded source;
    int64_t taps, k; /* k: rows of a panel, or elements per output channel of a filter */
    int64_t columns; /* output channels per group: split into panels */
    int64_t panels, panel_vectors;
    /* y and dx */
    int64_t in_channels, in_stride[2], out_stride[2], out_size[2];
    int64_t *tap_order;
    phase *phases;
    int64_t phase_count, bands, band_rows;
    bool is_packed;     /* the filter is packed already */
    bool skips_padding; /* out-of-bounds taps are skipped; else images are padded */
    /* filter gradient */
    int64_t run_length, runs; /* a run: adjacent taps and channels; its length, and the runs per group */
    int64_t *a_blocks;
    int64_t pixels;              /* of y per element: 2 for bf16 pairs */
    bool copies_y, divides_taps; /* divides_taps: workers divide the taps, not the images */
    /* workspace, in bytes */
    size_t packed_bytes, scratch_bytes, y_bytes;
    int threads;
};

static inline size_t aligned_bytes(int64_t elements, int bytes) {
    return (size_t)round_up(elements * bytes, 64);
}

void cpu_direct_plan_panels(cpu_direct *plan);
cpu_panel cpu_direct_panel(const cpu_direct *plan, int64_t i);

void cpu_direct_plan_padding(padded *p);
int64_t cpu_direct_padded_elements(const padded *p, int64_t rows);
/* Returns rows first … last - 1 of the padded image: copied to `scratch`, or `image` itself if there is no
 * padding. */
const char *cpu_direct_pad(const padded *p, int bytes, const char *image, int64_t first, int64_t last,
                           char *scratch);

/* conv_direct_plan.c, conv_direct_output.c: y and dx */
tu_status cpu_direct_plan_output(tu__arena *arena, cpu_direct *plan);
/* Returns the rows of the padded image that a band reads. */
void cpu_direct_band_rows(const cpu_direct *plan, int64_t band, int64_t *first, int64_t *last);
void cpu_direct_output(const cpu_direct *plan, const cpu_direct_operands *operands);

/* conv_direct_filter.c: the filter gradient */
tu_status cpu_direct_plan_filter(tu__arena *arena, cpu_direct *plan);
void cpu_direct_filter(const cpu_direct *plan, const cpu_direct_operands *operands);

#endif
