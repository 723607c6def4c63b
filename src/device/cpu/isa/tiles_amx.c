/* The blocks of tiles.h by AMX: 16,384 operations in 16 cycles per instruction. */
#include "device/cpu/isa/tiles.h"

#include "device/cpu/isa/amx.h"

#ifdef CPU_HAS_AMX_INSTRUCTIONS

#define TARGET __attribute__((target("amx-tile,amx-bf16")))
#define TILE_DOT(sums, a, b) _tile_dpbf16ps(sums, a, b)
#include "device/cpu/isa/tile_blocks.h"

const cpu_tiles *cpu_tiles_amx(void) {
    static const cpu_tiles amx = {
        .name = "amx", .configure = cpu_amx_configure, .block = multiply_block, .release = cpu_amx_release};
    return &amx;
}
#else
const cpu_tiles *cpu_tiles_amx(void) {
    return NULL;
}
#endif
