/* The memory plan of one partition: an offset for every buffer and workspace. Buffers and workspaces that are alive at
 * the same time do not overlap. */
#ifndef TU__COMPILE_PLAN_MEMORY_H
#define TU__COMPILE_PLAN_MEMORY_H

#include <tutti/device.h>

/* The kind of memory that contains a buffer. */
typedef enum tu__storage {
    TU__STORAGE_SCRATCH,  /* scratch memory of the device, at an offset */
    TU__STORAGE_EXTERNAL, /* constants and variables: the engine provides the address */
    TU__STORAGE_UNUSED,   /* no kernel reads or writes it */
} tu__storage;

/* A value of a collective. The partition posts `in` before the kernel at post_position and waits for `out` before the
 * kernel at wait_position. Other ranks may read `in` and write `out` at any time in between. */
typedef struct tu__collective_value {
    uint32_t in, out;                      /* buffers */
    uint32_t post_position, wait_position; /* positions in the kernel order */
    bool in_place;                         /* nothing else reads `in`: `out` may share its memory */
    bool has_no_result;                    /* `out` is `in`, and is not written */
} tu__collective_value;

typedef struct tu__memory_request {
    const tu_plan *plan;
    const uint32_t *order;             /* kernel indices in execution order */
    const bool *is_external;           /* per buffer: the engine provides its memory, which is never reused */
    const bool *is_written_before_run; /* per buffer: written before the first kernel (inputs, copies) */
    const bool *is_read_after_run;     /* per buffer: read after the last kernel (exports) */
    /* Per buffer: if its value is assigned to a variable, that variable's buffer, so that the value can be computed in
     * the variable's memory; otherwise TU_NO_NODE (no buffer). */
    const uint32_t *assigned_to;
    uint32_t update_kernel_count; /* number of kernels at the end of the order that may write variables */
    uint32_t collective_value_count;
    const tu__collective_value *collective_values;
    /* Do not let small buffers share memory, so that their kernels can run in parallel. */
    bool separate_small;
} tu__memory_request;

/* The memory of a buffer or a workspace that is alive at the peak. */
typedef struct tu__live_block {
    uint32_t buffer; /* TU_NO_NODE: the block is a workspace */
    uint32_t kernel; /* if `buffer` is TU_NO_NODE: the workspace's kernel */
    size_t bytes;    /* rounded up to the alignment */
} tu__live_block;

typedef struct tu__memory_plan {
    tu__storage *storage;     /* per buffer: the kind of memory */
    size_t *offset;           /* per buffer: offset in scratch memory, if it is there */
    uint32_t *alias_of;       /* per buffer: the external buffer whose memory it shares, or TU_NO_NODE */
    size_t *workspace_offset; /* per kernel: offset of its workspace in scratch memory */
    size_t scratch_bytes;     /* size of the scratch memory */
    /* The buffers and workspaces that are alive when the most bytes are in use. The sum of their sizes may be smaller
     * than scratch_bytes: the rest is fragmentation. */
    tu__live_block *live_at_peak;
    uint32_t live_at_peak_count;
} tu__memory_plan;

tu_status tu__plan_memory(const tu__memory_request *request, tu__memory_plan *plan);
void tu__memory_plan_free(tu__memory_plan *plan);

#endif
