/* Selects the table of inner loops: the best of the build for the instruction set in use. */
#include "device/cpu/isa/loops.h"

#include "device/cpu/isa/instruction_sets.h"
#include "device/cpu/isa/loops_int8.h"

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

/* A tile of AMX has 64 bytes of a row. One that a block does not fill is copied, which takes longer than its products. */
static bool fills_tiles(int64_t block_bytes) {
    return block_bytes % 64 == 0 || block_bytes > 4 * 64;
}

const cpu_int8_dot *cpu_int8_dot_for_this_machine(int64_t block_bytes) {
    if (cpu_isa_in_use() >= CPU_AMX && cpu_isa_of_machine()->amx_multiplies_bytes && cpu_int8_dot_amx() &&
        fills_tiles(block_bytes))
        return cpu_int8_dot_amx();
    const struct cpu_loops_int8 *loops = cpu_loops_for_this_machine()->int8;
    const cpu_isa isa = cpu_isa_in_use() >= CPU_AVX512 ? CPU_AVX512_VNNI : CPU_AVX_VNNI;
    return loops->bytes && cpu_isa_allows(isa) ? loops->bytes : loops->widened;
}
