/* Fused pointwise programs: what fusion.c makes of a cluster of nodes and pointwise.c runs.
 *
 * A piece is a small program over one space of elements, run tile by tile. Its values live in slots: a slot is an
 * address that a tile's data has, either in scratch memory (a register of the program, reused tile after tile), or
 * right in an operand's or result's buffer when that is dense and of the type computed in. A kernel has one piece, or
 * many that do not depend on each other (the update of all parameters). */
#ifndef TU__DEVICE_CPU_POINTWISE_H
#define TU__DEVICE_CPU_POINTWISE_H

#include "device/cpu/cpu.h"
#include "device/cpu/isa/loops.h"
#include "device/fusion.h"

enum {
    CPU_MAX_OPERANDS = 3 * TU__MAX_CLUSTER_NODES + 1,
    CPU_SUM_BLOCK = 64, /* rows: as in isa/loops_kernels_reduce.c, for the same bits */
};

/* ---- Programs: pointwise_program.c makes them, pointwise.c runs them ---- */

typedef enum cpu_access {
    CPU_DIRECT,  /* dense, of the computing type: used where it lies */
    CPU_CONVERT, /* dense, of another type: converted tile by tile */
    CPU_ONCE,    /* the same for every tile: scalars, and rows that repeat when a tile is whole rows */
    CPU_ROW,     /* a row of the computing type that tiles lie within: used where it lies */
    CPU_WALK,    /* broadcast otherwise: gathered row by row */
} cpu_access;

typedef struct cpu_load {
    cpu_access access;
    uint16_t slot;
    uint32_t in; /* place in the kernel's reads */
    tu_dtype dtype;
    int64_t stride[TU_MAX_RANK]; /* per axis of the space, in elements; the last is 0 or 1 */
} cpu_load;

typedef struct cpu_number {
    uint16_t slot;
    double number;
} cpu_number;

typedef struct cpu_step {
    tu__opcode op;
    uint16_t x, y, z, out; /* slots */
    double a, b;
    tu_dtype rounded; /* the result is rounded to this type; TU_DTYPE_COUNT: it need not be */
    /* A choice with one condition for all elements, whose first option the step before makes for it alone: while the
     * condition holds, that step writes the result, and this one is left out. */
    bool decided;
} cpu_step;

typedef struct cpu_store {
    bool direct; /* the slot lies in the result's buffer */
    uint16_t slot;
    uint32_t out; /* place in the kernel's writes; TU__NONE: into the worker's own block of rows */
    tu_dtype dtype;
    size_t block; /* then: where that is in scratch memory */
} cpu_store;

typedef struct cpu_sum {
    uint32_t store; /* what is summed */
    uint32_t out;   /* place in the kernel's writes */
    float divisor;
    size_t partial; /* where a worker's sums lie in scratch memory */
} cpu_sum;

typedef struct cpu_piece {
    bool wide;
    int rank; /* of the space with axes merged; at least 1 */
    int64_t dim[TU_MAX_RANK];
    int64_t count, row; /* elements; size of the last axis */
    int64_t tile;       /* elements of a tile, at most */
    int64_t tiles;
    int64_t row_tiles; /* tiles a row, when a tile lies within one; 0: a tile is whole rows */
    uint32_t load_count, number_count, step_count, store_count;
    cpu_load *loads;
    cpu_number *numbers;
    cpu_step *steps;
    cpu_store *stores;
    uint16_t scratch_slots, slots; /* those below scratch_slots lie in scratch memory */
    size_t register_bytes;         /* of one of them: whole cache lines */
    tu__sum_kind sum_kind;
    int64_t sum_row, sum_rows, sum_grain;
    int64_t block_rows; /* rows that are computed, then summed */
    bool squares;       /* the sums are of squares of what the only load reads: nothing else is computed */
    uint32_t sum_count;
    cpu_sum sums[TU__MAX_SUMS];
    size_t spare;         /* sum_row numbers in scratch memory */
    size_t scratch_bytes; /* all of it, of one worker */
} cpu_piece;

typedef struct cpu_pointwise {
    uint32_t piece_count;
    cpu_piece *pieces;
    int64_t *first_tile;  /* per piece, and the total */
    size_t scratch_bytes; /* of one worker */
    int64_t grain;        /* tiles */
} cpu_pointwise;

/* Turns a cluster into a cpu_piece that reads and writes through the kernel. */
tu_status cpu_piece_make(tu__kernel *k, tu__cluster *c, void *piece);
/* Sets the kernel's data and workspace from its cpu_pieces (kept). */
tu_status cpu_pointwise_finish(tu__kernel *k, uint32_t piece_count, void *pieces);

tu_status cpu_run_pointwise(const tu__kernel *k);
tu_status cpu_run_with_sums(const tu__kernel *k);

/* sums.c: which sums a cluster can take in. */
tu__sum_kind cpu_sum_kind_of(const tu__cluster *c, tu_dtype dtype, tu__sum_form form, bool *cut);

#endif
