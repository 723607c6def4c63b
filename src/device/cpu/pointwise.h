/* Fused pointwise kernels: pointwise_program.c compiles a cluster of nodes, pointwise.c runs the result.
 *
 * A subkernel is a small program over the elements of one shape, run tile by tile. Its values are in slots. A slot
 * is the address of a tile's data: in scratch memory (a register of the program, reused for every tile), or directly
 * in the buffer of an operand or result, if that is dense and of the computing type. A kernel has one subkernel, or
 * many that are independent of each other (the update of all parameters). */
#ifndef TU__DEVICE_CPU_POINTWISE_H
#define TU__DEVICE_CPU_POINTWISE_H

#include "device/cpu/cpu.h"
#include "device/cpu/isa/loops.h"
#include "device/kit/fusion.h"

enum {
    CPU_MAX_OPERANDS = 3 * TU__MAX_CLUSTER_NODES + 1,
    CPU_SUM_BLOCK = 64, /* rows; as in isa/loops_kernels_reduce.c, to get the same bits */
};

/* ---- Programs ---- */

typedef enum cpu_access {
    CPU_DIRECT,  /* dense, of the computing type: read from the buffer */
    CPU_CONVERT, /* dense, of another type: converted tile by tile */
    CPU_ONCE,    /* the same for every tile: scalars, and rows that repeat if a tile consists of whole rows */
    CPU_ROW,     /* a row of the computing type, and tiles within rows: read from the buffer */
    CPU_WALK,    /* any other broadcast: copied row by row */
} cpu_access;

typedef struct cpu_load {
    cpu_access access;
    uint16_t slot;
    uint32_t in; /* index in the kernel's reads */
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
    tu_dtype rounded; /* the result is rounded to this type; TU_DTYPE_COUNT: not rounded */
    /* A select with a scalar condition whose first operand is computed by the step before, for this select only: if
     * the condition is true, that step writes the select's result, and the select is skipped. */
    bool can_skip_select;
} cpu_step;

typedef struct cpu_store {
    bool direct; /* the slot is in the result's buffer */
    uint16_t slot;
    uint32_t out; /* index in the kernel's writes; TU__NONE: stored in the worker's block of rows */
    tu_dtype dtype;
    size_t block; /* offset of that block in scratch memory */
} cpu_store;

typedef struct cpu_sum {
    uint32_t store; /* index of the store whose value is summed */
    uint32_t out;   /* index in the kernel's writes */
    float divisor;
    size_t partial; /* offset of a worker's sums in scratch memory */
} cpu_sum;

typedef struct cpu_subkernel {
    bool wide;
    int rank; /* of the shape after merging axes; at least 1 */
    int64_t dim[TU_MAX_RANK];
    int64_t count, row; /* elements; size of the last axis */
    int64_t tile;       /* maximum elements per tile */
    int64_t tiles;
    int64_t row_tiles; /* tiles per row, if tiles are within rows; 0: a tile consists of whole rows */
    uint32_t load_count, number_count, step_count, store_count;
    cpu_load *loads;
    cpu_number *numbers;
    cpu_step *steps;
    cpu_store *stores;
    uint16_t scratch_slots, slots; /* slots below scratch_slots are in scratch memory */
    size_t register_bytes;         /* of one such slot: a multiple of cache lines */
    tu__sum_kind sum_kind;
    int64_t sum_row, sum_rows; /* shape [sum_rows, sum_row] of the space if it is summed */
    int64_t sum_grain;
    int64_t block_rows; /* rows that are computed, then summed */
    bool squares;       /* the sums are of squares of the only operand: nothing else is computed */
    uint32_t sum_count;
    cpu_sum sums[TU__MAX_SUMS];
    size_t extra_sums; /* offset in scratch memory of the sums of a further block, before they are merged */
    size_t scratch_bytes; /* of one worker */
} cpu_subkernel;

typedef struct cpu_pointwise {
    uint32_t subkernel_count;
    cpu_subkernel *subkernels;
    int64_t *first_tile;  /* per subkernel: index of its first tile; then the number of all tiles */
    size_t scratch_bytes; /* of one worker */
    int64_t grain;        /* minimum number of tiles per range: ranges.h */
} cpu_pointwise;

/* Compiles a cluster into a cpu_subkernel; adds its reads and writes to the kernel. */
tu_status cpu_make_subkernel(tu__kernel *k, tu__cluster *c, void *subkernel);
/* Sets the kernel's data and workspace from its cpu_subkernels, which must stay valid. */
tu_status cpu_pointwise_finish(tu__kernel *k, uint32_t subkernel_count, void *subkernels);

tu_status cpu_run_pointwise(const tu__kernel *k);
tu_status cpu_run_with_sums(const tu__kernel *k);

/* sums.c: returns how a sum can be fused at the end of a cluster. */
tu__sum_kind cpu_sum_kind_of(const tu__cluster *c, tu_dtype dtype, tu__sum_form form, bool *splits_rows);

#endif
