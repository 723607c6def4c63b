/* The tile registers of AMX as plain memory, so that code with tiles is tested on every processor: eight registers of a
 * thread, of 16 rows of 64 bytes. They must be configured before they are used; 6 and 7 have 16 rows, the others as many as
 * the configuration says. */
#ifndef TESTS_TILE_REGISTERS_H
#define TESTS_TILE_REGISTERS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef union emulated_tile {
    uint8_t unsigned_bytes[16][64];
    int8_t signed_bytes[16][64];
    uint16_t halves[16][32]; /* bf16 */
    int32_t words[16][16];
    float floats[16][16];
} emulated_tile;

static _Thread_local emulated_tile emulated_tiles[8];
static _Thread_local int emulated_rows; /* 0: not configured */

static inline void require_tiles(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "emulated tiles: %s\n", what);
    abort();
}

static inline emulated_tile *tile_register(int tile) {
    require_tiles(emulated_rows > 0, "used before they are configured");
    return &emulated_tiles[tile];
}

static inline int tile_register_rows(int tile) {
    return tile < 6 ? emulated_rows : 16;
}

static inline void configure_tiles(int rows) {
    require_tiles(emulated_rows == 0, "configured twice");
    require_tiles(rows >= 1 && rows <= 16, "configured with a wrong number of rows");
    memset(emulated_tiles, 0xff, sizeof emulated_tiles);
    emulated_rows = rows;
}

static inline void release_tiles(void) {
    emulated_rows = 0;
}

static inline void zero_tile(int tile) {
    memset(tile_register(tile), 0, sizeof(emulated_tile));
}

static inline void load_tile(int tile, const void *from, int64_t row_bytes) {
    zero_tile(tile);
    for (int i = 0; i < tile_register_rows(tile); i++)
        memcpy(tile_register(tile)->unsigned_bytes[i], (const char *)from + i * row_bytes, 64);
}

static inline void store_tile(int tile, void *to, int64_t row_bytes) {
    for (int i = 0; i < tile_register_rows(tile); i++)
        memcpy((char *)to + i * row_bytes, tile_register(tile)->unsigned_bytes[i], 64);
}

#define TARGET
#define TILE_ZERO(tile) zero_tile(tile)
#define TILE_LOAD(tile, from, row_bytes) load_tile(tile, from, row_bytes)
#define TILE_STORE(tile, to, row_bytes) store_tile(tile, to, row_bytes)

#endif
