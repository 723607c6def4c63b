/* The instructions of AMX for the files that use its tiles: eight registers of 16 rows of 64 bytes. It defines
 * CPU_HAS_AMX_INSTRUCTIONS if the build supports them. */
#ifndef TU__DEVICE_CPU_ISA_AMX_H
#define TU__DEVICE_CPU_ISA_AMX_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && (!defined(__clang__) || __clang_major__ >= 12)
#define CPU_HAS_AMX_INSTRUCTIONS 1
#include <immintrin.h>

#define TILE_ZERO(tile) _tile_zero(tile)
/* Not _tile_loadd: gcc 12 does not declare that it reads memory, and may drop the stores to what it reads. */
#define TILE_LOAD(tile, from, row_bytes)                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                                                      \
                     :                                                                                       \
                     : "r"((const void *)(from)), "r"((int64_t)(row_bytes))                                  \
                     : "memory")
#define TILE_STORE(tile, to, row_bytes) _tile_stored(tile, to, (size_t)(row_bytes))

struct cpu_amx_shapes { /* the operand of LDTILECFG */
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((packed));
_Static_assert(sizeof(struct cpu_amx_shapes) == 64, "the operand of LDTILECFG is 64 bytes");

/* Configures the tiles of this thread: 0 to 5 with `rows` rows, 6 and 7 with 16. */
__attribute__((target("amx-tile"))) static inline void cpu_amx_configure(int rows) {
    const uint8_t r = (uint8_t)rows;
    const struct cpu_amx_shapes shapes = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {r, r, r, r, r, r, 16, 16}};
    /* Not _tile_loadconfig: gcc 12 declares that it reads 8 bytes, and may drop the stores to the other 56. */
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
}

__attribute__((target("amx-tile"))) static inline void cpu_amx_release(void) {
    _tile_release();
}
#endif

#endif
