/* Selects the tiles of this machine; a test can emulate them (tests/emulated_tiles.h). */
#include "device/cpu/isa/tiles.h"

#include <stddef.h>

#include "device/cpu/isa/instruction_sets.h"

static const cpu_tiles *emulated;

void cpu_tiles_emulate(const cpu_tiles *tiles) {
    emulated = tiles;
}

const cpu_tiles *cpu_tiles_for_this_machine(void) {
    if (emulated) return emulated;
    return cpu_isa_in_use() >= CPU_AMX ? cpu_tiles_amx() : NULL;
}
