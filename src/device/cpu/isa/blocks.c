/* Whether blocks of bf16 are multiplied on this machine. AVX-512's dot product of pairs was tried for the same blocks and
 * left out: slower than what there is without (oneDNN, and our filter's gradient), by 1.4 in a whole step of
 * tutorial-cnn on an EPYC and by 2 on a Xeon. */
#include "device/cpu/isa/blocks.h"

#include <stddef.h>
#include <stdlib.h>

#if defined(TU_ISA_X86) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool processor_has_amx(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    return (d >> 22 & 1) && (d >> 24 & 1); /* AMX-BF16, AMX-TILE */
}

/* Tiles are 8 KB of registers that every switch of threads must save: Linux gives them to a process that asks. */
static bool system_allows_amx(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

const cpu_blocks *cpu_blocks_for_this_machine(void) {
    const char *wanted = getenv("TUTTI_ISA");
    if (wanted && *wanted) return NULL;
    return cpu_blocks_amx() && processor_has_amx() && system_allows_amx() ? cpu_blocks_amx() : NULL;
}
#else
const cpu_blocks *cpu_blocks_for_this_machine(void) {
    return NULL;
}
#endif
