/* Kernels with an epilogue: their reads and writes, and applying an epilogue to a result in memory. */
#include "device/cpu/epilogue.h"

#include "device/cpu/isa/loops.h"
#include "device/cpu/isa/loops_gemm.h"
#include "device/cpu/ranges.h"

enum { GRAIN = 1 << 14 /* minimum elements per thread */ };

typedef struct task {
    cpu_epilogue_rows apply;
    char *data;
    const void *bias;
    int64_t columns, row_bytes;
    bool relu;
} task;

static void apply_to_rows(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    t->apply(last - first, t->columns, t->data + first * t->row_bytes, t->bias, t->relu);
}

void cpu_apply_epilogue(const cpu_device *device, tu_type type, void *data, const void *bias, bool relu) {
    if (!bias && !relu) return;
    const struct cpu_loops_gemm *loops = device->loops->gemm;
    int64_t columns = type.shape.dim[type.shape.rank - 1];
    task t = {type.dtype == TU_BF16 ? loops->epilogue_bf16 : loops->epilogue_f32,
              data,
              bias,
              columns,
              columns * (int64_t)tu_dtype_size(type.dtype),
              relu};
    tu__parallel_for(tu_shape_elements(type.shape) / columns, 1 + GRAIN / columns, apply_to_rows, &t);
}

tu_status cpu_kernel_add_epilogue_operands(tu__kernel *k, const tu__selection *s, const tu__node *node,
                                           const tu__epilogue *epilogue) {
    cpu_kernel_set_costs(k, s, node);
    for (uint32_t i = 0; i < node->input_count; i++) TU_TRY(tu__kernel_read(k, node->inputs[i]));
    TU_TRY(tu__kernel_add_epilogue(k, epilogue));
    return tu__kernel_write(k, epilogue->result, -1);
}
