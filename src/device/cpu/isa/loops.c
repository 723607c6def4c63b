/* Which of the tables of inner loops this machine runs: the best instruction set that both the processor and the
 * build have. TUTTI_ISA (baseline, avx2, avx512) asks for a lesser one: for tests and for comparing them. */
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "device/cpu/isa/loops.h"

#include <stdlib.h>
#include <string.h>

extern const cpu_loops cpu_loops_baseline;

#ifdef TU_ISA_X86
extern const cpu_loops cpu_loops_avx2, cpu_loops_avx512;

/* Every processor with AVX2 and FMA has F16C too; clang 14 does not know it by name. */
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const cpu_loops *cpu_loops_for_this_machine(void) {
    const char *wanted = getenv("TUTTI_ISA");
    bool any = !wanted || !*wanted;
    if (has_avx512() && (any || strcmp(wanted, "avx512") == 0)) return &cpu_loops_avx512;
    if (has_avx2() && (any || strcmp(wanted, "baseline") != 0)) return &cpu_loops_avx2;
    return &cpu_loops_baseline;
}

/* Not on processors with AMX (Intel's): they have the instruction, but a filter's gradient was slower by it than by
 * multiplications in f32. Seen in two runs and not side by side: docs/performance.md. */
bool cpu_loops_has_bf16_dot(void) {
    unsigned a, b, c, d;
    bool amx = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1);
    return has_avx512() && __builtin_cpu_supports("avx512bf16") && !amx;
}
#else
const cpu_loops *cpu_loops_for_this_machine(void) {
    return &cpu_loops_baseline;
}

bool cpu_loops_has_bf16_dot(void) {
    return false;
}
#endif
