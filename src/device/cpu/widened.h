/* bf16 by way of f32: operands are copied to f32 in the workspace, our own f32 kernel computes, the result is rounded
 * once. Products of bf16 numbers are exact in f32, so this is what a sum in f32 of such products means.
 *
 * For processors without instructions for bf16, and for what oneDNN gets wrong (distrusted.h). */
#ifndef TU__DEVICE_CPU_WIDENED_H
#define TU__DEVICE_CPU_WIDENED_H

#include "device/cpu/conv_direct.h"
#include "device/cpu/isa/loops.h"

typedef struct cpu_widened {
    int64_t first, second, out; /* elements of each operand */
    const cpu_loops *loops;
} cpu_widened;

/* Bytes in front of the f32 kernel's own workspace, a multiple of 64. */
size_t cpu_widened_workspace(const cpu_widened *widened);

/* `narrow` as the caller keeps them, in bf16; `wide` as the f32 kernel gets them. */
void cpu_widen(const cpu_widened *widened, const cpu_direct_operands *narrow, cpu_direct_operands *wide);
void cpu_narrow(const cpu_widened *widened, const cpu_direct_operands *wide,
                const cpu_direct_operands *narrow);

#endif
