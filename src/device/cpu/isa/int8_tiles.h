/* The tile of loops_int8.h for processors with matrix tiles (AMX): sums of up to 32 rows by two tiles of 16 columns at a
 * time. Before including it, define TARGET (an attribute, or nothing), and on tiles with literal numbers
 *
 *     TILE_ZERO(tile), TILE_LOAD(tile, from, row_bytes), TILE_STORE(tile, to, row_bytes)
 *     TILE_DOT(sums, a, b)     adds products of u8 [16, 64] and i8 [16 words, 16 columns] to i32 [16, 16]
 *
 * Tiles 0 1 / 2 3 have sums, 4 and 5 rows of a, 6 and 7 columns of b. A test defines them as plain functions.
 *
 * A tile of a is loaded from memory if its rows are equally spaced, as the pixels of a row of an image. Otherwise, and if
 * there are fewer than 16 rows, the rows are copied first. A block whose words do not fill its last tile is filled with
 * zeros, in a and in b. */
#include <string.h>

#include "device/cpu/isa/loops_int8.h"

enum { TILE_ROWS = 16, TILE_WORDS = 16, TILE_BYTES = 64 /* of a row */ };

typedef struct tile_rows {
    int64_t count; /* 1 to 16 */
    const int32_t *offsets;
    int64_t step; /* between rows, if `is_even` */
    bool is_even;
} tile_rows;

static tile_rows rows_of(const int32_t *offsets, int64_t count) {
    tile_rows rows = {.count = count, .offsets = offsets, .is_even = count == TILE_ROWS};
    if (!rows.is_even) return rows;
    rows.step = offsets[1] - offsets[0];
    for (int64_t i = 2; i < count; i++) rows.is_even &= offsets[i] - offsets[i - 1] == rows.step;
    return rows;
}

/* Copies the first `words` words of each row, and fills the tile with zeros. */
TARGET static void copy_rows(const char *a, const tile_rows *rows, int64_t words, char *tile) {
    if (words < TILE_WORDS || rows->count < TILE_ROWS) memset(tile, 0, (size_t)TILE_ROWS * TILE_BYTES);
    for (int64_t i = 0; i < rows->count; i++)
        if (words == TILE_WORDS)
            memcpy(tile + i * TILE_BYTES, a + rows->offsets[i], TILE_BYTES);
        else
            memcpy(tile + i * TILE_BYTES, a + rows->offsets[i], (size_t)(words * 4));
}

TARGET static void copy_columns(const uint32_t *b, int64_t row_words, int64_t words, char *tile) {
    memset(tile, 0, (size_t)TILE_WORDS * TILE_BYTES);
    for (int64_t i = 0; i < words; i++) memcpy(tile + i * TILE_BYTES, b + i * row_words, TILE_BYTES);
}

/* A step of k: up to 16 words. */
typedef struct tile_step {
    const char *a;
    const uint32_t *b;
    int64_t words, b_row; /* b_row: words between rows of b */
} tile_step;

#define LOAD_A(tile, rows, step, copy)                                                                       \
    do {                                                                                                     \
        if ((rows)->is_even && (step)->words == TILE_WORDS) {                                                \
            TILE_LOAD(tile, (step)->a + (rows)->offsets[0], (rows)->step);                                   \
        } else {                                                                                             \
            copy_rows((step)->a, rows, (step)->words, copy);                                                 \
            TILE_LOAD(tile, copy, TILE_BYTES);                                                               \
        }                                                                                                    \
    } while (0)

#define LOAD_B(tile, step, column, copy)                                                                     \
    do {                                                                                                     \
        if ((step)->words == TILE_WORDS) {                                                                   \
            TILE_LOAD(tile, (step)->b + (column), (step)->b_row * 4);                                        \
        } else {                                                                                             \
            copy_columns((step)->b + (column), (step)->b_row, (step)->words, copy);                          \
            TILE_LOAD(tile, copy, TILE_BYTES);                                                               \
        }                                                                                                    \
    } while (0)

TARGET static void add_step(const tile_step *step, const tile_rows rows[2], bool has_two_columns) {
    _Alignas(64) char copy[TILE_ROWS * TILE_BYTES];
    const bool has_two_rows = rows[1].count > 0;
    LOAD_A(4, &rows[0], step, copy);
    LOAD_B(6, step, 0, copy);
    TILE_DOT(0, 4, 6);
    if (has_two_rows) {
        LOAD_A(5, &rows[1], step, copy);
        TILE_DOT(2, 5, 6);
    }
    if (has_two_columns) {
        LOAD_B(7, step, TILE_WORDS, copy);
        TILE_DOT(1, 4, 7);
        if (has_two_rows) TILE_DOT(3, 5, 7);
    }
}

/* Stores sums of 16 rows of which some may not exist. */
#define STORE_SUMS(tile, to, row_words) TILE_STORE(tile, to, (row_words)*4)

/* Computes the sums of vectors `vector` and, if it exists, the next. */
TARGET static void compute_columns(const cpu_int8_tile *t, const tile_rows rows[2], int64_t vector) {
    const int64_t width = t->vectors * TILE_WORDS;
    const bool has_two_columns = vector + 1 < t->vectors;
    int32_t *sums = t->sums + vector * TILE_WORDS;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int64_t block = 0; block < t->blocks; block++)
        for (int64_t k = 0; k < t->depth; k += TILE_WORDS) {
            const tile_step step = {.a = t->a + t->a_blocks[block] + 4 * k,
                                    .b = t->b + (block * t->depth + k) * width + vector * TILE_WORDS,
                                    .words = t->depth - k < TILE_WORDS ? t->depth - k : TILE_WORDS,
                                    .b_row = width};
            add_step(&step, rows, has_two_columns);
        }
    STORE_SUMS(0, sums, width);
    if (has_two_columns) STORE_SUMS(1, sums + TILE_WORDS, width);
    if (rows[1].count <= 0) return;
    sums += TILE_ROWS * width;
    STORE_SUMS(2, sums, width);
    if (has_two_columns) STORE_SUMS(3, sums + TILE_WORDS, width);
}

TARGET static void compute_tile(const cpu_int8_tile *t) {
    const int64_t first = t->rows < TILE_ROWS ? t->rows : TILE_ROWS;
    const tile_rows rows[2] = {rows_of(t->a_rows, first), rows_of(t->a_rows + first, t->rows - first)};
    for (int64_t vector = 0; vector < t->vectors; vector += 2) compute_columns(t, rows, vector);
}

#define TILE_LOOPS(set)                                                                                      \
    .name = (set), .element_bytes = 1, .vector_words = TILE_WORDS, .max_vectors = CPU_INT8_MAX_VECTORS,      \
    .max_rows = {0, 2 * TILE_ROWS, 2 * TILE_ROWS, 2 * TILE_ROWS, 2 * TILE_ROWS}, .prefers_full = true,       \
    .tile = compute_tile
