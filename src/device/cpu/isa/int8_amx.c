/* Integer convolutions and products by AMX, which multiplies tiles of 16 by 64 u8 and 64 by 16 i8 in 16 cycles, eight times
 * as many products as the dot products of AVX-512 VNNI. */
#include "device/cpu/isa/loops_int8.h"

#include <stddef.h>

#include "device/cpu/isa/amx.h"

#ifdef CPU_HAS_AMX_INSTRUCTIONS

#define TARGET __attribute__((target("amx-tile,amx-int8,avx512f")))
#define TILE_DOT(sums, a, b) _tile_dpbusd(sums, a, b)
#include "device/cpu/isa/int8_tiles.h"

static void begin(void) {
    cpu_amx_configure(TILE_ROWS);
}

const cpu_int8_dot *cpu_int8_dot_amx(void) {
    static const cpu_int8_dot amx = {TILE_LOOPS("amx"), .begin = begin, .end = cpu_amx_release};
    return &amx;
}
#else
const cpu_int8_dot *cpu_int8_dot_amx(void) {
    return NULL;
}
#endif
