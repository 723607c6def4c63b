/* What the files of conv_direct share: a plan from inside, and cutting work into panels, tiles and padded images. */
#ifndef TU__DEVICE_CPU_CONV_DIRECT_PLAN_H
#define TU__DEVICE_CPU_CONV_DIRECT_PLAN_H

#include "base/parallel.h"
#include "device/cpu/conv_direct.h"

enum { CPU_DIRECT_EXACT_CHANNELS = 16 /* from here on a piece of a tile is long enough to pay for itself */ };

typedef struct padded { /* an image [size, channels] with places around it */
    int64_t size[2], channels;
    int64_t before[2]; /* rows above and columns left of it; negative: left out */
    int64_t full[2];   /* size with its surroundings */
    bool as_is;        /* there are none */
} padded;

/* Along one axis: pixels of the result first + step * (0 … count - 1), which taps they meet, in ascending order of
 * where in the source, and how far that is from the pixel's own place. */
typedef struct axis_phase {
    int64_t first, count;
    int64_t taps, *tap, *offset;
} axis_phase;

typedef struct piece { /* rows of a tile that share taps of a row of the filter */
    int64_t row, rows, tap, taps;
} piece;

typedef struct edge_tile { /* neighbouring pixels: `row` … row + rows - 1 of the phase */
    int64_t row, rows;
    piece *pieces; /* the last has all rows, or no taps */
    int64_t piece_count;
} edge_tile;

typedef struct phase { /* pixels of the result that meet the same taps */
    axis_phase axis[2];
    int64_t blocks, depth; /* of their tiles */
    int64_t *a_blocks;     /* from the first pixel's place in the padded image; exact: rows of the filter */
    int64_t k_first;       /* its first row of a packed panel */
    edge_tile **tiles;     /* exact: for each panel; a tile without rows ends the list */
} phase;

struct cpu_direct {
    const cpu_gemm_loops *loops;
    cpu_convolution_side side;
    cpu_convolution shape;
    padded source;
    int64_t taps, k; /* k: rows of a panel, or elements of a filter's output channel */
    int64_t columns; /* result channels of a group: split into panels */
    int64_t panels, panel_vectors;
    /* y and x */
    int64_t in_channels, in_step[2], out_step[2], out_size[2];
    int64_t *tap_order;
    phase *phases;
    int64_t phase_count, bands, band_rows;
    bool exact; /* taps that hang over are left out; else images are padded */
    /* filter */
    int64_t run_length, runs; /* neighbouring taps and channels; in a group */
    int64_t *a_blocks;
    int64_t pixels; /* of y in an element: 2 where those are pairs */
    bool copies_y, shares_taps;
    /* workspace, in bytes */
    size_t packed_bytes, scratch_bytes, y_bytes;
    int threads;
};

static inline int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t round_up(int64_t x, int64_t to) {
    return (x + to - 1) / to * to;
}

static inline size_t aligned(int64_t elements, int bytes) {
    return (size_t)round_up(elements * bytes, 64);
}

/* Part i of `count` cut into `parts` as evenly as can be. */
static inline int64_t part_start(int64_t count, int64_t parts, int64_t i) {
    return i * (count / parts) + smaller(i, count % parts);
}

typedef struct panel {
    int64_t first, columns, width; /* width: columns rounded up to whole vectors */
} panel;

void cpu_direct_plan_panels(cpu_direct *d);
panel cpu_direct_panel(const cpu_direct *d, int64_t i);

/* `rows` rows of c beside each other, as many tiles as registers make of them. */
void cpu_direct_rows(const cpu_gemm_loops *loops, cpu_gemm_tile t, int64_t rows);

void cpu_direct_plan_padding(padded *p);
int64_t cpu_direct_padded_elements(const padded *p, int64_t rows);
/* Rows first … last - 1 of the padded image, in scratch or where they lie anyway. */
const char *cpu_direct_pad(const padded *p, int bytes, const char *image, int64_t first, int64_t last,
                           char *scratch);

/* conv_direct_plan.c, conv_direct_gather.c: y and x */
tu_status cpu_direct_plan_gather(tu__arena *arena, cpu_direct *d);
/* Rows of the padded image that a band meets. */
void cpu_direct_band_rows(const cpu_direct *d, int64_t band, int64_t *first, int64_t *last);
void cpu_direct_gather(const cpu_direct *d, const cpu_direct_operands *operands);

/* conv_direct_filter.c */
tu_status cpu_direct_plan_filter(tu__arena *arena, cpu_direct *d);
void cpu_direct_filter(const cpu_direct *d, const cpu_direct_operands *operands);

#endif
