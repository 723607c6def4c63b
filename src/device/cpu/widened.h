/* bf16 computed in f32: operands are copied to f32 in the workspace, our f32 kernel computes, the result is rounded
 * once. Products of bf16 numbers are exact in f32, so the result is that of an f32 accumulation.
 *
 * For processors without bf16 instructions, and for operations that oneDNN computes wrongly (dnnl_bugs.h). */
#ifndef TU__DEVICE_CPU_WIDENED_H
#define TU__DEVICE_CPU_WIDENED_H

#include "device/cpu/conv_direct.h"
#include "device/cpu/isa/loops.h"

typedef struct cpu_widened {
    int64_t first, second, out; /* elements of each operand */
    const cpu_loops *loops;
} cpu_widened;

/* Returns the bytes that are needed before the f32 kernel's workspace, a multiple of 64. */
size_t cpu_widened_workspace(const cpu_widened *widened);

/* `narrow`: the caller's operands in bf16; `wide`: the operands for the f32 kernel. */
void cpu_widen(const cpu_widened *widened, const cpu_direct_operands *narrow, cpu_direct_operands *wide);
void cpu_narrow(const cpu_widened *widened, const cpu_direct_operands *wide,
                const cpu_direct_operands *narrow);

#endif
