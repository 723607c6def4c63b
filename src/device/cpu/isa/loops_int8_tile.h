/* The tiles of loops_int8.h for one dot product. Before including it, define WORDS (per vector), NAME(x), DOT(x, y, sum)
 * and TARGET (an attribute, or nothing). */

typedef int32_t NAME(words) __attribute__((vector_size(WORDS * 4)));
typedef int32_t NAME(unaligned_words) __attribute__((vector_size(WORDS * 4), aligned(4), may_alias));

/* Computes a tile. `rows` and `vectors` are constants after inlining, so the loops over them are unrolled and the sums
 * are in registers. */
TARGET static inline __attribute__((always_inline)) void NAME(tile)(const cpu_int8_tile *t, const int rows,
                                                                    const int vectors) {
    typedef int32_t word __attribute__((aligned(1), may_alias));
    NAME(words) sum[MAX_ROWS][MAX_VECTORS];
    const NAME(unaligned_words) *b = (const NAME(unaligned_words) *)(const void *)t->b;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) sum[r][v] =
        (NAME(words)){0};
    for (int64_t block = 0; block < t->blocks; block++) {
        const char *a[MAX_ROWS];
        UNROLL for (int r = 0; r < rows; r++) a[r] = t->a + t->a_rows[r] + t->a_blocks[block];
        for (int64_t k = 0; k < t->depth; k++) {
            NAME(words) column[MAX_VECTORS];
            UNROLL for (int v = 0; v < vectors; v++) column[v] = b[v];
            UNROLL for (int r = 0; r < rows; r++) {
                const NAME(words) x = *(const word *)(const void *)(a[r] + 4 * k) - (NAME(words)){0};
                UNROLL for (int v = 0; v < vectors; v++) sum[r][v] = DOT(x, column[v], sum[r][v]);
            }
            b += vectors;
        }
    }
    NAME(unaligned_words) *to = (NAME(unaligned_words) *)(void *)t->sums;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) to[r * vectors + v] =
        sum[r][v];
}

#define TILE(rows, vectors)                                                                                  \
    TARGET static void NAME(tile_##rows##_##vectors)(const cpu_int8_tile *t) {                               \
        NAME(tile)(t, rows, vectors);                                                                        \
    }
TILES
#undef TILE

static void NAME(dispatch_tile)(const cpu_int8_tile *t) {
    typedef void tile_function(const cpu_int8_tile *t);
#define TILE(rows, vectors) [vectors][rows] = NAME(tile_##rows##_##vectors),
    static tile_function *const table[MAX_VECTORS + 1][MAX_ROWS + 1] = {TILES};
#undef TILE
    table[t->vectors][t->rows](t);
}

#define DOT_LOOPS(set, bytes)                                                                                \
    {                                                                                                        \
        .name = (set), .element_bytes = (bytes), .vector_words = WORDS, .max_vectors = MAX_VECTORS,          \
        .max_rows = ROWS_BY_VECTORS, .tile = NAME(dispatch_tile)                                             \
    }
