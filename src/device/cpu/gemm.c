/* Our own matrix product, around the tile of isa/loops_gemm.h.
 *
 * b is packed into panels of a few vectors' width, so that a tile walks through memory straight; a is read where it
 * lies, since its elements are broadcast one by one. Packing moves k n elements for 2 m k n operations. k is worked
 * through in chunks of CHUNK: a chunk of a panel (at most 128 KB) stays in the second-level cache while all tiles of
 * its column pass by, a chunk of a tile's rows in the first.
 *
 * A product is dealt out by tiles, which are many even in small products; a batch of many products by products.
 * A sum is always added up in the same order, whoever computes it: bits do not depend on the width.
 */
#include "device/cpu/gemm.h"

#include "base/parallel.h"

enum { CHUNK = 512 /* of k */, PACK_GRAIN = 1 << 14 /* elements worth another thread */ };

typedef struct task {
    const cpu_gemm *g;
    const cpu_gemm_operands *o;
    int64_t vectors, panels; /* of a row of b, padded */
    int64_t item;            /* of the batch */
} task;

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t part_start(int64_t count, int64_t parts, int64_t i) {
    return i * (count / parts) + smaller(i, count % parts);
}

static int64_t vectors_of(const cpu_gemm *g) {
    return (g->n + g->loops->vector - 1) / g->loops->vector;
}

static size_t packed_bytes(const cpu_gemm *g) {
    return ((size_t)(g->k * vectors_of(g) * g->loops->vector * g->loops->bytes) + 63) / 64 * 64;
}

/* Whether whole products are dealt out, each worker packing for itself. */
static bool by_products(const cpu_gemm *g) {
    return g->batch >= g->threads;
}

size_t cpu_gemm_workspace(const cpu_gemm *g) {
    return packed_bytes(g) * (size_t)(by_products(g) ? g->threads : 1);
}

/* ---- Packing: part `i` of `parts` of k, of one panel ---- */

static void pack_part(const task *t, int64_t panel, int64_t first, int64_t last, char *packed) {
    const cpu_gemm *g = t->g;
    int64_t from = part_start(t->vectors, t->panels, panel) * g->loops->vector;
    int64_t end = part_start(t->vectors, t->panels, panel + 1) * g->loops->vector;
    int64_t k_step = g->transpose_b ? 1 : g->n, column_step = g->transpose_b ? g->k : 1;
    int64_t source = g->b_at[t->item] + first * k_step + from * column_step;
    g->loops->pack(last - first, smaller(end, g->n) - from, (const char *)t->o->b + source * g->loops->bytes,
                   k_step, column_step, packed + (g->k * from + first * (end - from)) * g->loops->bytes,
                   end - from);
}

/* Units are rows of panels: (panel, k). */
static void pack_units(const task *t, int64_t first, int64_t last, char *packed) {
    while (first < last) {
        int64_t panel = first / t->g->k, k = first % t->g->k, end = smaller(t->g->k, k + last - first);
        pack_part(t, panel, k, end, packed);
        first += end - k;
    }
}

static void pack_range(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    pack_units(t, first, last, t->o->workspace);
}

/* ---- Multiplying ---- */

static int64_t tiles_of_panel(const task *t, int64_t panel) {
    int64_t vectors = part_start(t->vectors, t->panels, panel + 1) - part_start(t->vectors, t->panels, panel);
    int64_t most = t->g->loops->most_rows[vectors];
    return (t->g->m + most - 1) / most;
}

static int64_t tiles_of_all(const task *t) {
    int64_t tiles = 0;
    for (int64_t i = 0; i < t->panels; i++) tiles += tiles_of_panel(t, i);
    return tiles;
}

/* Tiles first … last - 1 of one panel, over k … k + depth - 1. */
static void multiply_panel(const task *t, int64_t panel, int64_t first, int64_t last, int64_t k,
                           const char *packed) {
    static const int64_t no_offset[1] = {0};
    const cpu_gemm *g = t->g;
    int bytes = g->loops->bytes;
    int64_t from = part_start(t->vectors, t->panels, panel) * g->loops->vector;
    int64_t end = part_start(t->vectors, t->panels, panel + 1) * g->loops->vector;
    int64_t tiles = tiles_of_panel(t, panel), a_step = g->transpose_a ? g->m : 1;
    bool finishes = k + CHUNK >= g->k;
    cpu_gemm_tile tile = {
        .a_row = g->transpose_a ? 1 : g->k, .a_step = a_step, .a_blocks = no_offset, .blocks = 1};
    tile.depth = smaller(CHUNK, g->k - k);
    tile.b = packed + (g->k * from + k * (end - from)) * bytes;
    tile.b_step = end - from;
    tile.c_row = g->n;
    tile.columns = smaller(end, g->n) - from;
    tile.add = k > 0;
    tile.relu = finishes && t->o->relu;
    tile.bias = finishes && t->o->bias ? (const char *)t->o->bias + from * bytes : NULL;
    const char *a = (const char *)t->o->a + (g->a_at[t->item] + k * a_step) * bytes;
    char *c = (char *)t->o->c + (t->item * g->m * g->n + from) * bytes;
    for (int64_t i = first; i < last; i++) {
        int64_t row = part_start(g->m, tiles, i);
        tile.rows = part_start(g->m, tiles, i + 1) - row;
        tile.a = a + row * tile.a_row * bytes;
        tile.c = c + row * g->n * bytes;
        g->loops->tile(&tile);
    }
}

/* Tiles counted through all panels. */
static void multiply_tiles(const task *t, int64_t first, int64_t last, const char *packed) {
    for (int64_t panel = 0; panel < t->panels && last > 0; panel++) {
        int64_t tiles = tiles_of_panel(t, panel);
        if (first < tiles)
            for (int64_t k = 0; k < t->g->k; k += CHUNK)
                multiply_panel(t, panel, first, smaller(last, tiles), k, packed);
        first = first > tiles ? first - tiles : 0;
        last -= tiles;
    }
}

static void multiply_range(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    multiply_tiles(t, first, last, t->o->workspace);
}

static void multiply_products(void *context, int64_t first, int64_t last, int worker) {
    task t = *(const task *)context;
    char *packed = (char *)t.o->workspace + (size_t)worker * packed_bytes(t.g);
    int64_t tiles = tiles_of_all(&t);
    for (t.item = first; t.item < last; t.item++) {
        if (t.item == first || t.g->b_at[t.item] != t.g->b_at[t.item - 1])
            pack_units(&t, 0, t.panels * t.g->k, packed);
        multiply_tiles(&t, 0, tiles, packed);
    }
}

void cpu_gemm_run(const cpu_gemm *g, const cpu_gemm_operands *operands) {
    task t = {.g = g, .o = operands, .vectors = vectors_of(g)};
    t.panels = (t.vectors + g->loops->most_vectors - 1) / g->loops->most_vectors;
    if (by_products(g) && g->batch > 1) {
        tu__parallel_for(g->batch, 1, multiply_products, &t);
        return;
    }
    int64_t tiles = tiles_of_all(&t), grain = 1 + PACK_GRAIN / (g->loops->most_vectors * g->loops->vector);
    for (t.item = 0; t.item < g->batch; t.item++) {
        if (t.item == 0 || g->b_at[t.item] != g->b_at[t.item - 1])
            tu__parallel_for(t.panels * g->k, grain, pack_range, &t);
        tu__parallel_for(tiles, 1, multiply_range, &t);
    }
}
