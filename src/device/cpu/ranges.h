/* Division of work among threads: by rows, into ranges that are large enough to be worth a thread.
 *
 * A kernel that needs workspace per worker requests it when it is made, for the number of threads of the
 * device. The grain returned by cpu_grain limits the number of ranges to that, whatever the number of threads at run
 * time is. */
#ifndef TU__DEVICE_CPU_RANGES_H
#define TU__DEVICE_CPU_RANGES_H

#include "device/cpu/cpu.h"

/* Minimum number of elements per thread: waking a thread takes a few microseconds, in which a core streams about 64
 * KB. */
enum { CPU_GRAIN = 1 << 14 };

/* Returns the minimum number of rows per range, for rows of `row_elements` elements and at most `workers` ranges. */
static inline int64_t cpu_grain(int64_t rows, int64_t row_elements, int64_t workers) {
    int64_t min_rows = CPU_GRAIN / (row_elements < 1 ? 1 : row_elements),
            rows_per_worker = (rows + workers - 1) / workers;
    if (min_rows < 1) min_rows = 1;
    return min_rows > rows_per_worker ? min_rows : rows_per_worker;
}

/* Rounds bytes up to cache lines, so that workers do not share one. */
static inline size_t cpu_round_up_to_line(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

/* Returns the type of a node's input. */
static inline tu_type cpu_input_type(const tu__selection *s, const tu__node *node, uint32_t index) {
    return s->graph->nodes[node->inputs[index].node]->outputs[node->inputs[index].output];
}

/* Returns the index in the arrays of loops of isa/kernels.h: 0 for f32, 1 for bf16, -1 if there are none for the
 * type. */
static inline int cpu_loop_variant(tu_dtype dtype) {
    return dtype == TU_F32 ? 0 : dtype == TU_BF16 ? 1 : -1;
}

/* Returns the address of element `index`. */
static inline void *cpu_element(const void *base, tu_dtype dtype, int64_t index) {
    return (char *)base + index * (int64_t)tu_dtype_size(dtype);
}

/* Adds reads of all inputs of the node, and writes of all outputs. The first output may reuse the memory of input
 * `in_place` (-1: none). */
static inline tu_status cpu_kernel_add_operands(tu__kernel *k, const tu__node *node, int in_place) {
    for (uint32_t i = 0; i < node->input_count; i++) TU_TRY(tu__kernel_read(k, node->inputs[i]));
    for (uint32_t i = 0; i < node->output_count; i++)
        TU_TRY(tu__kernel_write(k, (tu__edge){node->id, i}, i == 0 ? in_place : -1));
    return TU_OK;
}

/* Sets the flops and bytes of a kernel that reads and writes each of its values once, for reports. */
static inline void cpu_kernel_set_costs(tu__kernel *k, const tu__selection *s, const tu__node *node) {
    tu_type in[8];
    for (uint32_t i = 0; i < node->input_count && i < 8; i++) {
        in[i] = cpu_input_type(s, node, i);
        k->bytes_moved += (int64_t)tu_type_bytes(in[i]);
    }
    for (uint32_t i = 0; i < node->output_count; i++)
        k->bytes_moved += (int64_t)tu_type_bytes(node->outputs[i]);
    k->flops = node->op->flops ? node->op->flops(node, in) : tu_shape_elements(node->outputs[0].shape);
}

#endif
