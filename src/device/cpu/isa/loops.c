/* Selects the table of inner loops: the best of the build for the instruction set in use. */
#include "device/cpu/isa/loops.h"

#include "device/cpu/isa/instruction_sets.h"

extern const cpu_loops cpu_loops_baseline;

#ifdef TU_ISA_X86
extern const cpu_loops cpu_loops_avx2, cpu_loops_avx512;

const cpu_loops *cpu_loops_for_this_machine(void) {
    cpu_isa isa = cpu_isa_in_use();
    if (isa >= CPU_AVX512) return &cpu_loops_avx512;
    return isa >= CPU_AVX2 ? &cpu_loops_avx2 : &cpu_loops_baseline;
}
#else
const cpu_loops *cpu_loops_for_this_machine(void) {
    return &cpu_loops_baseline;
}
#endif

/* False on processors with AMX (Intel's): they have the instruction, but filter gradients were slower with it than
 * with f32 multiplications, in two separate runs: docs/performance.md. */
bool cpu_loops_has_bf16_dot(void) {
    return cpu_isa_in_use() >= CPU_AVX512_BF16 && !cpu_isa_of_machine()->reports_amx;
}
