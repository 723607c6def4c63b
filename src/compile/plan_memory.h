/* The memory plan of one partition: an offset for every buffer and workspace, such that no two that are alive at the
 * same time overlap. */
#ifndef TU__COMPILE_PLAN_MEMORY_H
#define TU__COMPILE_PLAN_MEMORY_H

#include <tutti/device.h>

/* The kind of memory that contains a buffer. */
typedef enum tu__storage {
    TU__STORAGE_SCRATCH,  /* scratch memory of the device, at an offset */
    TU__STORAGE_EXTERNAL, /* constants and variables: the engine provides the address */
    TU__STORAGE_UNUSED,   /* no kernel reads or writes it */
} tu__storage;

/* A value that is all-reduced during the run. Other ranks may read `in` and write `out` at any time between
 * post_position and run_position of the kernel order. */
typedef struct tu__reduced_value {
    uint32_t in, out; /* buffers */
    uint32_t post_position, run_position;
    bool in_place; /* nothing else reads `in`: `out` may share its memory */
} tu__reduced_value;

typedef struct tu__memory_request {
    const tu_plan *plan;
    const uint32_t *order;             /* kernels */
    const bool *is_external;           /* per buffer: provided by the engine, never reused */
    const bool *is_written_before_run; /* per buffer: written before the first kernel (inputs, copies) */
    const bool *is_read_after_run;     /* per buffer: read after the last kernel (exports) */
    /* Per buffer: the variable's buffer that it is assigned to and should share memory with; or TU_NO_NODE. */
    const uint32_t *assigned_to;
    uint32_t update_kernel_count; /* number of kernels at the end of the order that may write variables */
    uint32_t reduced_count;
    const tu__reduced_value *reduced;
    /* Do not let small buffers share memory, so that their kernels can run in parallel. */
    bool separate_small;
} tu__memory_request;

/* A buffer or a workspace that is alive at the peak. */
typedef struct tu__resident {
    uint32_t buffer; /* TU_NO_NODE: a workspace */
    uint32_t kernel; /* if `buffer` is TU_NO_NODE: the workspace's kernel */
    size_t bytes;    /* rounded up to the alignment */
} tu__resident;

typedef struct tu__memory_plan {
    tu__storage *storage; /* per buffer */
    size_t *offset;       /* per buffer, in scratch */
    uint32_t *alias_of;   /* per buffer: the external buffer whose memory it shares, or TU_NO_NODE */
    size_t *workspace;    /* per kernel: offset */
    size_t scratch_bytes; /* the peak */
    /* What is alive at the peak. The sum of their sizes may be smaller than scratch_bytes: the rest are gaps that no
     * buffer's lifetime fits. */
    tu__resident *residents;
    uint32_t resident_count;
} tu__memory_plan;

tu_status tu__plan_memory(const tu__memory_request *request, tu__memory_plan *plan);
void tu__memory_plan_free(tu__memory_plan *plan);

#endif
