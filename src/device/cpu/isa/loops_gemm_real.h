/* The loops of loops_gemm.h for one element type: included with REAL, BITS (the integer of its
 * size), VECTOR_BYTES, NAME(x) and FMA defined. */

typedef REAL NAME(vector) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(unaligned) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef BITS NAME(bits) __attribute__((vector_size(VECTOR_BYTES)));

enum { NAME(WIDTH) = VECTOR_BYTES / (int)sizeof(REAL) };

static inline __attribute__((always_inline)) NAME(vector) NAME(load)(const REAL *from) {
    return *(const NAME(unaligned) *)from;
}

static inline __attribute__((always_inline)) void NAME(store)(REAL *to, NAME(vector) x) {
    *(NAME(unaligned) *)to = x;
}

static inline __attribute__((always_inline)) NAME(vector) NAME(splat)(REAL x) {
    return x - (NAME(vector)){0};
}

/* What happens to a finished sum on its way to c. A comparison keeps NaN, where a maximum may not. */
static inline __attribute__((always_inline)) NAME(vector)
    NAME(finish)(NAME(vector) x, const cpu_gemm_tile *t, const REAL *c, int64_t column) {
    if (t->add) x += NAME(load)(c + column);
    if (t->bias) x += NAME(load)((const REAL *)t->bias + column);
    if (t->relu) x = (NAME(vector))((NAME(bits))x & ~(NAME(bits))(x < (NAME(vector)){0}));
    return x;
}

/* The last columns, where a whole vector would reach past the row. */
static void NAME(finish_edge)(const cpu_gemm_tile *t, const REAL *sums, int64_t width) {
    const REAL *bias = t->bias;
    for (int64_t r = 0; r < t->rows; r++) {
        REAL *c = (REAL *)t->c + r * t->c_row;
        for (int64_t j = 0; j < t->columns; j++) {
            REAL x = sums[r * width + j];
            if (t->add) x += c[j];
            if (bias) x += bias[j];
            if (t->relu && x < 0) x = 0;
            c[j] = x;
        }
    }
}

/* The tile. `rows` and `vectors` are constants where it is inlined, so the loops over them vanish and the sums live
 * in registers. Every third row has its own pointer; the two after it are one and two strides away, which x86
 * addresses without arithmetic. */
static inline __attribute__((always_inline)) void NAME(tile)(const cpu_gemm_tile *t, const int rows,
                                                             const int vectors) {
    NAME(vector) sum[MOST_ROWS][CPU_GEMM_MOST_VECTORS];
    const int64_t a_row = t->a_row, a_step = t->a_step, b_step = t->b_step;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) sum[r][v] =
        (NAME(vector)){0};
    for (int64_t block = 0; block < t->blocks; block++) {
        const REAL *b = (const REAL *)t->b + block * t->b_block;
        const REAL *a[(MOST_ROWS + 2) / 3];
        UNROLL for (int r = 0; r < rows; r += 3) a[r / 3] =
            (const REAL *)t->a + t->a_blocks[block] + r * a_row;
        for (int64_t k = 0; k < t->depth; k++) {
            NAME(vector) row[CPU_GEMM_MOST_VECTORS];
            UNROLL for (int v = 0; v < vectors; v++) row[v] = NAME(load)(b + v * NAME(WIDTH));
            UNROLL for (int r = 0; r < rows; r++) {
                NAME(vector) x = NAME(splat)(a[r / 3][(r % 3) * a_row]);
                UNROLL for (int v = 0; v < vectors; v++) sum[r][v] = FMA(x, row[v], sum[r][v]);
            }
            UNROLL for (int r = 0; r < rows; r += 3) a[r / 3] += a_step;
            b += b_step;
        }
    }
    if (t->columns == (int64_t)vectors * NAME(WIDTH)) {
        UNROLL for (int r = 0; r < rows; r++) {
            REAL *c = (REAL *)t->c + r * t->c_row;
            UNROLL for (int v = 0; v < vectors; v++)
                NAME(store)(c + v * NAME(WIDTH), NAME(finish)(sum[r][v], t, c, v * NAME(WIDTH)));
        }
        return;
    }
    REAL edge[MOST_ROWS * CPU_GEMM_MOST_VECTORS * NAME(WIDTH)];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++)
        NAME(store)(edge + (r * vectors + v) * NAME(WIDTH), sum[r][v]);
    NAME(finish_edge)(t, edge, (int64_t)vectors * NAME(WIDTH));
}

#define TILE(rows, vectors)                                                                                  \
    static void NAME(tile_##rows##_##vectors)(const cpu_gemm_tile *t) {                                      \
        NAME(tile)(t, rows, vectors);                                                                        \
    }
TILES
#undef TILE

static void NAME(any_tile)(const cpu_gemm_tile *t) {
    typedef void tile_function(const cpu_gemm_tile *t);
#define TILE(rows, vectors) [vectors][rows] = NAME(tile_##rows##_##vectors),
    static tile_function *const table[CPU_GEMM_MOST_VECTORS + 1][MOST_ROWS + 1] = {TILES};
#undef TILE
    table[(t->columns + NAME(WIDTH) - 1) / NAME(WIDTH)][t->rows](t);
}

/* A square of 4 x 4: rows of the source become columns of the panel. */
static inline void NAME(transpose_square)(const REAL *from, int64_t from_row, REAL *to, int64_t to_row) {
    REAL x[4][4];
    for (int j = 0; j < 4; j++)
        for (int k = 0; k < 4; k++) x[k][j] = from[j * from_row + k];
    for (int k = 0; k < 4; k++)
        for (int j = 0; j < 4; j++) to[k * to_row + j] = x[k][j];
}

static void NAME(pack_transposed)(int64_t depth, int64_t columns, const REAL *source, int64_t column_step,
                                  REAL *panel, int64_t width) {
    int64_t j = 0;
    for (; j + 4 <= columns; j += 4) {
        int64_t k = 0;
        for (; k + 4 <= depth; k += 4)
            NAME(transpose_square)(source + j * column_step + k, column_step, panel + k * width + j, width);
        for (; k < depth; k++)
            for (int64_t i = j; i < j + 4; i++) panel[k * width + i] = source[i * column_step + k];
    }
    for (; j < columns; j++)
        for (int64_t k = 0; k < depth; k++) panel[k * width + j] = source[j * column_step + k];
    for (; j < width; j++)
        for (int64_t k = 0; k < depth; k++) panel[k * width + j] = 0;
}

static void NAME(pack)(int64_t depth, int64_t columns, const void *source, int64_t k_step,
                       int64_t column_step, void *panel, int64_t width) {
    const REAL *from = source;
    REAL *to = panel;
    if (column_step != 1) {
        NAME(pack_transposed)(depth, columns, from, column_step, to, width);
        return;
    }
    for (int64_t k = 0; k < depth; k++) {
        for (int64_t j = 0; j < columns; j++) to[k * width + j] = from[k * k_step + j];
        for (int64_t j = columns; j < width; j++) to[k * width + j] = 0;
    }
}

static void NAME(sum_transposed)(int64_t count, const void *parts, int64_t stride, int64_t row, int64_t first,
                                 int64_t last, int64_t columns, void *out, int64_t out_row) {
    for (int64_t i = first; i < last; i++) {
        const REAL *from = (const REAL *)parts + i * row;
        for (int64_t j = 0; j < columns; j++) {
            REAL sum = from[j];
            for (int64_t s = 1; s < count; s++) sum += from[s * stride + j];
            ((REAL *)out)[j * out_row + i] = sum;
        }
    }
}

static const cpu_gemm_loops NAME(loops) = {
    .bytes = sizeof(REAL),
    .vector = NAME(WIDTH),
    .most_vectors = MOST_VECTORS,
    .most_rows = ROWS_BY_VECTORS,
    .tile = NAME(any_tile),
    .pack = NAME(pack),
    .sum_transposed = NAME(sum_transposed),
};
