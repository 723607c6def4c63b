/* Lets test_sweep_tiles compute the bf16 convolutions and products of frozen graphs with emulated AMX tiles. */
#include "bf16_tiles.h"

__attribute__((constructor)) static void emulate(void) {
    cpu_tiles_emulate(&emulated_bf16_tiles);
}
