/* The tiles of loops_gemm.h for one type of elements. Before including it, define ELEMENT (of a and b), REAL (of c),
 * BITS (the integer of its size), VECTOR_BYTES, NAME(x), FMA and TARGET (an attribute, or nothing). */

typedef REAL NAME(vector) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(unaligned) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef ELEMENT NAME(elements) __attribute__((vector_size(VECTOR_BYTES)));
typedef ELEMENT NAME(unaligned_elements)
    __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(ELEMENT)), may_alias));
typedef BITS NAME(bits) __attribute__((vector_size(VECTOR_BYTES)));

enum { NAME(WIDTH) = VECTOR_BYTES / (int)sizeof(REAL) };

static inline __attribute__((always_inline)) NAME(vector) NAME(load)(const REAL *from) {
    return *(const NAME(unaligned) *)from;
}

static inline __attribute__((always_inline)) void NAME(store)(REAL *to, NAME(vector) x) {
    *(NAME(unaligned) *)to = x;
}

static inline __attribute__((always_inline)) NAME(elements) NAME(load_elements)(const ELEMENT *from) {
    return *(const NAME(unaligned_elements) *)from;
}

static inline __attribute__((always_inline)) NAME(elements) NAME(splat)(ELEMENT x) {
    return x - (NAME(elements)){0};
}

/* Adds the old value, the bias and the residual to a finished sum, each sum rounded as by a separate operation, and
 * applies relu. The comparison keeps NaN; a maximum might not. `element`: index in c. */
static inline __attribute__((always_inline)) NAME(vector)
    NAME(finish)(NAME(vector) x, const cpu_gemm_tile *t, int64_t element, int64_t column) {
    if (t->add) x += NAME(load)((const REAL *)t->c + element);
    if (t->bias) x += NAME(load)((const REAL *)t->bias + column);
    if (t->residual) x += NAME(load)((const REAL *)t->residual + element);
    if (t->relu) x = (NAME(vector))((NAME(bits))x & ~(NAME(bits))(x < (NAME(vector)){0}));
    return x;
}

/* Stores a tile whose columns do not fill its vectors, element by element. */
static void NAME(finish_edge)(const cpu_gemm_tile *t, const REAL *sums, int64_t width) {
    const REAL *bias = t->bias;
    for (int64_t r = 0; r < t->rows; r++) {
        REAL *c = (REAL *)t->c + r * t->c_row;
        const REAL *residual = t->residual ? (const REAL *)t->residual + r * t->c_row : NULL;
        for (int64_t j = 0; j < t->columns; j++) {
            REAL x = sums[r * width + j];
            if (t->add) x += c[j];
            if (bias) x += bias[j];
            if (residual) x += residual[j];
            if (t->relu && x < 0) x = 0;
            c[j] = x;
        }
    }
}

/* Computes a tile. `rows` and `vectors` are constants after inlining, so the loops over them are unrolled and the
 * sums are in registers. Every third row has its own pointer; the two after it are one and two strides away, which
 * x86 can address directly. */
TARGET static inline __attribute__((always_inline)) void NAME(tile)(const cpu_gemm_tile *t, const int rows,
                                                                    const int vectors) {
    NAME(vector) sum[MAX_ROWS][CPU_GEMM_MAX_VECTORS];
    const int64_t a_row = t->a_row, a_step = t->a_step, b_step = t->b_step;
    const char *next = t->next ? t->next : t->b;
    const int64_t next_step = t->next ? CPU_GEMM_NEXT_BYTES : 0;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) sum[r][v] =
        (NAME(vector)){0};
    for (int64_t block = 0; block < t->blocks; block++) {
        const ELEMENT *b = (const ELEMENT *)t->b + block * t->b_block;
        const ELEMENT *a[(MAX_ROWS + 2) / 3];
        UNROLL for (int r = 0; r < rows; r += 3) a[r / 3] =
            (const ELEMENT *)t->a + t->a_blocks[block] + r * a_row;
        for (int64_t k = 0; k < t->depth; k++) {
            NAME(elements) row[CPU_GEMM_MAX_VECTORS];
            UNROLL for (int v = 0; v < vectors; v++) row[v] = NAME(load_elements)(b + v * NAME(WIDTH));
            UNROLL for (int r = 0; r < rows; r++) {
                NAME(elements) x = NAME(splat)(a[r / 3][(r % 3) * a_row]);
                UNROLL for (int v = 0; v < vectors; v++) sum[r][v] = FMA(x, row[v], sum[r][v]);
            }
            UNROLL for (int r = 0; r < rows; r += 3) a[r / 3] += a_step;
            b += b_step;
            if (vectors < 3) continue; /* their many rows need all registers for addresses */
            __builtin_prefetch(next, 0, 2);
            next += next_step;
        }
    }
    if (t->columns == (int64_t)vectors * NAME(WIDTH)) {
        UNROLL for (int r = 0; r < rows; r++) {
            REAL *c = (REAL *)t->c + r * t->c_row;
            UNROLL for (int v = 0; v < vectors; v++)
                NAME(store)(c + v * NAME(WIDTH),
                            NAME(finish)(sum[r][v], t, r * t->c_row + v * NAME(WIDTH), v * NAME(WIDTH)));
        }
        return;
    }
    REAL edge[MAX_ROWS * CPU_GEMM_MAX_VECTORS * NAME(WIDTH)];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++)
        NAME(store)(edge + (r * vectors + v) * NAME(WIDTH), sum[r][v]);
    NAME(finish_edge)(t, edge, (int64_t)vectors * NAME(WIDTH));
}

#define TILE(rows, vectors)                                                                                  \
    TARGET static void NAME(tile_##rows##_##vectors)(const cpu_gemm_tile *t) {                               \
        NAME(tile)(t, rows, vectors);                                                                        \
    }
TILES
#undef TILE

/* Prefetches c, which is written at the end: short sums would have to wait for it. */
static inline void NAME(prefetch_result)(const cpu_gemm_tile *t) {
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t j = 0; j < t->columns; j += NAME(WIDTH))
            __builtin_prefetch((const REAL *)t->c + r * t->c_row + j, 1);
}

static void NAME(dispatch_tile)(const cpu_gemm_tile *t) {
    typedef void tile_function(const cpu_gemm_tile *t);
#define TILE(rows, vectors) [vectors][rows] = NAME(tile_##rows##_##vectors),
    static tile_function *const table[CPU_GEMM_MAX_VECTORS + 1][MAX_ROWS + 1] = {TILES};
#undef TILE
    NAME(prefetch_result)(t);
    table[(t->columns + NAME(WIDTH) - 1) / NAME(WIDTH)][t->rows](t);
}
