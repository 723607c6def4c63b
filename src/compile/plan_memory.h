/* Memory of one part: an offset for every buffer and workspace, so that nothing alive overlaps. */
#ifndef TU__COMPILE_PLAN_MEMORY_H
#define TU__COMPILE_PLAN_MEMORY_H

#include <tutti/device.h>

/* Where a buffer lies. */
typedef enum tu__storage {
    TU__STORAGE_SCRATCH, /* at an offset of the device's scratch */
    TU__STORAGE_OUTSIDE, /* constants and variables: the engine provides the address */
    TU__STORAGE_UNUSED,  /* nobody reads or writes it */
} tu__storage;

/* A value that is added up with others' while the run goes on: others read `in` and write `out` at any time between the
 * places `ready` and `held` of the order. */
typedef struct tu__sum {
    uint32_t in, out; /* buffers */
    uint32_t ready, held;
    bool in_place; /* nobody else wants `in`: `out` may take its memory */
} tu__sum;

typedef struct tu__memory_request {
    const tu_plan *plan;
    const uint32_t *order;   /* kernels */
    const bool *outside;     /* per buffer: provided by the engine, never reused */
    const bool *from_start;  /* per buffer: filled before the first kernel (inputs, copies) */
    const bool *to_end;      /* per buffer: read after the last kernel (exports) */
    const uint32_t *becomes; /* per buffer: the outside buffer whose memory it shall take over at the end (an
                                    assignment in place), or TU_NO_NODE */
    uint32_t update_kernels; /* the last so many of the order: only these may write into variables */
    uint32_t sum_count;
    const tu__sum *sums;
    bool
        keep_apart; /* small things have memory of their own, so that their kernels may run beside each other */
} tu__memory_request;

/* Something that lies in scratch at a moment: a buffer, or a kernel's workspace. */
typedef struct tu__resident {
    uint32_t buffer; /* TU_NO_NODE: a workspace */
    uint32_t kernel; /* whose workspace it is */
    size_t bytes;    /* that it takes, rounded up to the alignment */
} tu__resident;

typedef struct tu__memory_plan {
    tu__storage *storage; /* per buffer */
    size_t *offset;       /* per buffer, in scratch */
    uint32_t *same_as;    /* per buffer: the outside buffer it lies in, or TU_NO_NODE */
    size_t *workspace;    /* per kernel: offset */
    size_t scratch_bytes; /* the peak */
    /* What is alive when most is. The plan may be higher by gaps, where lifetimes do not fit into each other. */
    tu__resident *residents;
    uint32_t resident_count;
} tu__memory_plan;

tu_status tu__plan_memory(const tu__memory_request *request, tu__memory_plan *plan);
void tu__memory_plan_free(tu__memory_plan *plan);

#endif
