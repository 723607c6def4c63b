/* Shared by the files of tile_product: the contents of a plan. */
#ifndef TU__DEVICE_CPU_TILE_PRODUCT_PLAN_H
#define TU__DEVICE_CPU_TILE_PRODUCT_PLAN_H

#include "device/cpu/chunks.h"
#include "device/cpu/tile_product.h"

enum {
    TILE_NUMBER_BYTES = 2,                      /* of bf16 */
    CPU_TILE_PANEL = CPU_TILE_SUMS_ROW,         /* columns */
    CPU_TILE_BLOCK = CPU_TILES * CPU_TILE_ROWS, /* pixels */
    CPU_TILE_HEADER = 64                        /* bytes of a worker's memory before its copy of a unit */
};

/* Where the rows of tiles are; see tile_product.c. */
typedef enum cpu_tile_source { CPU_TILE_DIRECT, CPU_TILE_GATHERED, CPU_TILE_PLANES } cpu_tile_source;

struct cpu_tile_product {
    const cpu_tiles *tiles;
    const struct cpu_round_loops *round;
    cpu_convolution shape;
    int threads;
    cpu_tile_source source;
    cpu_packed_layout layout; /* of the weights: a group is a tap, or all taps if rows are gathered */

    /* k */
    int64_t group_chunks, chunks; /* per group; of all groups */
    int64_t *offsets;             /* of each chunk from a row's address, in bytes */
    int64_t pixel_bytes;          /* between rows of tiles */

    /* units */
    int64_t workers;
    int64_t unit_pixels;                  /* direct, gathered */
    int64_t unit_images;                  /* planes: images per unit, */
    int64_t bands, band_rows;             /* or bands per image, if that is 1, and rows of y per band */
    int64_t units, panels, column_chunks; /* a column chunk is a range of panels */
    int64_t panel_group;                  /* panels whose weights stay in the cache */

    /* planes */
    int64_t pitch;       /* pixels of a row of a plane */
    int64_t plane_rows;  /* of a band */
    int64_t plane_bytes; /* of a band of an image */
    int64_t image_bytes; /* of all its planes */

    int64_t source_bytes, worker_bytes; /* of the copy of a unit; of a worker's memory */
};

/* A unit of work: images, or a band of rows of one (planes), or pixels of any images. */
typedef struct cpu_tile_unit {
    int64_t first_pixel, pixels;
    int64_t first_image, images, first_row, rows;
} cpu_tile_unit;

/* tile_source.c: copies what the tiles of a unit read to the worker's memory. */
void cpu_tile_gather(const cpu_tile_product *p, const char *x, const cpu_tile_unit *unit, char *to);
void cpu_tile_copy_planes(const cpu_tile_product *p, const char *x, const cpu_tile_unit *unit, char *to);

#endif
