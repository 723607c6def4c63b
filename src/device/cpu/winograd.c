/* Winograd's convolution (Winograd 1980, Lavin and Gray 2015): 36 multiplications instead of 144 for 4x4 pixels of y.
 *
 * y is divided into tiles of 4x4 pixels. A tile depends on 6x6 pixels of x. With the matrices of the points 0, 1, -1,
 * 2, -2 and infinity,
 *
 *     Y = A^T [ (G g G^T) * (B^T d B) ] A          for the filter g [3, 3] and the pixels d [6, 6] of one channel;
 *
 * the product * is by element, and is summed over the channels of x. So for each of the 36 elements e, the sums of all
 * tiles and channels of y are a matrix product:
 *
 *     V[e] [tiles, channels of x]  times  U[e] [channels of x, channels of y]  =  M[e] [tiles, channels of y]
 *
 * U = G g G^T is computed in f64 when the weights are packed. V is computed from x, and y from M, by
 * isa/loops_kernels_winograd.c. docs/numerics.md has the bound of the error.
 *
 * Work is divided into blocks of tiles whose V and M stay in a core's cache. If there are too few blocks for the
 * threads (one small image), all threads work on all tiles: transform the input, multiply, transform the result.
 * Every number is computed in the same way in both cases. */
#include "device/cpu/winograd.h"

#include <string.h>

#include "base/parallel.h"
#include "device/cpu/chunks.h"
#include "device/cpu/isa/kernels.h"
#include "device/cpu/packed_panels.h"

enum {
    IN = CPU_WINOGRAD_IN,
    OUT = CPU_WINOGRAD_OUT,
    ELEMENTS = IN * IN,
    TAPS = 3,
    BLOCK_BYTES = 1 << 20, /* of V and M of a block */
    BLOCK_TILES = 48,      /* at least, so that U, which is 4 times the filter, is not read too often */
    MIN_CHANNELS = 32,
    LEAST_PART = 24,     /* tiles of a product that is divided among threads */
    SHARED_BALANCE = 95, /* percent of the threads' time in which all have products to compute */
    MIN_TILES = 4,       /* of an image; with one or two, reading U takes longer than a direct convolution */
};

struct cpu_winograd {
    const cpu_gemm_loops *gemm;
    const struct cpu_winograd_loops *loops;
    cpu_convolution shape;
    int64_t tiles[2], tile_count; /* of an image; of all images */
    int64_t blocks, block_tiles;  /* block_tiles: of the largest block */
    int64_t v_stride, m_stride;   /* elements between two e */
    int threads;
    bool shares_tiles;    /* all threads work on one block */
    int64_t shared_parts; /* into which the tiles are then divided for the products */
    const float *zeros;   /* channels of x */
};

/* ---- Planning ---- */

bool cpu_winograd_is_faster(const cpu_convolution *c) {
    const tu__windows *w = &c->windows;
    for (int i = 0; i < 2; i++)
        if (w->size[i] != TAPS || w->stride[i] != 1 || w->dilation[i] != 1) return false;
    int64_t tiles = divide_up(c->y_size[0], OUT) * divide_up(c->y_size[1], OUT);
    return c->groups == 1 && c->x_channels >= MIN_CHANNELS && c->y_channels >= MIN_CHANNELS &&
           c->x_channels % CPU_WINOGRAD_CHANNELS == 0 && c->y_channels % CPU_WINOGRAD_CHANNELS == 0 &&
           tiles >= MIN_TILES && 10 * c->y_size[0] * c->y_size[1] >= 7 * tiles * OUT * OUT;
}

/* An odd number of cache lines lies between two e, so that the 36 numbers of a tile are in different sets of a cache. */
static int64_t stride_of(int64_t tiles, int64_t channels) {
    return (tiles * channels / 16 | 1) * 16;
}

/* Divides the tiles if there are too few products for the threads to have as much work each. */
static void plan_shared_parts(cpu_winograd *plan) {
    int64_t products = ELEMENTS * cpu_panel_count(plan->gemm, plan->shape.y_channels);
    while (100 * products * plan->shared_parts <
               SHARED_BALANCE * divide_up(products * plan->shared_parts, plan->threads) * plan->threads &&
           plan->tile_count >= (plan->shared_parts + 1) * LEAST_PART)
        plan->shared_parts++;
}

static void plan_blocks(cpu_winograd *plan) {
    const cpu_convolution *c = &plan->shape;
    int64_t tile_bytes = ELEMENTS * (c->x_channels + c->y_channels) * (int64_t)sizeof(float);
    int64_t tiles = max_i64(BLOCK_BYTES / tile_bytes, BLOCK_TILES);
    plan->blocks = divide_up(plan->tile_count, tiles);
    plan->shares_tiles = plan->threads > 1 && plan->blocks < 2 * plan->threads;
    plan->shared_parts = 1;
    if (plan->shares_tiles) {
        plan->blocks = 1;
        plan_shared_parts(plan);
    }
    plan->block_tiles = divide_up(plan->tile_count, plan->blocks);
    plan->v_stride = stride_of(plan->block_tiles, c->x_channels);
    plan->m_stride = stride_of(plan->block_tiles, c->y_channels);
}

tu_status cpu_winograd_new(tu__arena *arena, const cpu_loops *loops, const cpu_convolution *c, int threads,
                           cpu_winograd **new_plan) {
    cpu_winograd *plan = tu__arena_alloc(arena, sizeof *plan);
    float *zeros = tu__arena_alloc(arena, (size_t)c->x_channels * sizeof *zeros);
    if (!plan || !zeros) return TU_NO_MEMORY;
    *plan = (cpu_winograd){.gemm = loops->gemm->f32,
                           .loops = loops->kernels->winograd,
                           .shape = *c,
                           .threads = threads,
                           .zeros = zeros};
    for (int i = 0; i < 2; i++) plan->tiles[i] = divide_up(c->y_size[i], OUT);
    plan->tile_count = c->images * plan->tiles[0] * plan->tiles[1];
    plan_blocks(plan);
    *new_plan = plan;
    return TU_OK;
}

int64_t cpu_winograd_block_images(const cpu_winograd *plan) {
    return divide_up(BLOCK_TILES, plan->tiles[0] * plan->tiles[1]);
}

/* Bytes of V and M of one block. */
static size_t block_bytes(const cpu_winograd *plan) {
    return (size_t)(ELEMENTS * (plan->v_stride + plan->m_stride)) * sizeof(float);
}

size_t cpu_winograd_workspace(const cpu_winograd *plan) {
    return block_bytes(plan) * (plan->shares_tiles ? 1 : (size_t)plan->threads);
}

/* ---- Packing: U [36], each in panels ---- */

enum { LANES = 8 }; /* columns that are packed together: panels have multiples of so many */

/* u [6] = G g [3] along one axis, for LANES filters; the elements of g are `step` apart. */
static void transform_filters(const double (*g)[LANES], int64_t step, double (*u)[LANES]) {
    for (int l = 0; l < LANES; l++) {
        double first = g[0][l], second = g[step][l], third = g[2 * step][l];
        double even = (first + third) / 6, odd = second / 6;
        double even2 = first / 24 + third / 6, odd2 = second / 12;
        u[0][l] = first / 4;
        u[1][l] = -even - odd;
        u[2][l] = odd - even;
        u[3][l] = even2 + odd2;
        u[4][l] = even2 - odd2;
        u[5][l] = third;
    }
}

/* Writes the 36 numbers of a channel of LANES filters [3, 3, channels]; those of a filter are `stride` apart. */
static void pack_filters(const float *filters, int64_t channels, float *to, int64_t stride) {
    double g[TAPS * TAPS][LANES], columns[TAPS * IN][LANES], u[IN][LANES];
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < TAPS * TAPS; i++) g[i][l] = filters[(l * TAPS * TAPS + i) * channels];
    for (int j = 0; j < TAPS; j++) transform_filters(g + j, TAPS, columns + (int64_t)j * IN);
    for (int i = 0; i < IN; i++) {
        transform_filters(columns + i, IN, u);
        for (int j = 0; j < IN; j++)
            for (int l = 0; l < LANES; l++) to[(i * IN + j) * stride + l] = (float)u[j][l];
    }
}

static void pack_winograd(const cpu_packed_layout *layout, const void *source, void *packed) {
    int64_t channels = layout->depth, stride = cpu_panel_elements(layout->loops, channels, layout->columns);
    for (int64_t i = 0; i < cpu_panel_count(layout->loops, layout->columns); i++) {
        cpu_panel p = cpu_panel_at(layout->loops, layout->columns, i);
        for (int64_t j = 0; j < p.columns; j += LANES)
            for (int64_t k = 0; k < channels; k++)
                pack_filters((const float *)source + (p.first + j) * TAPS * TAPS * channels + k, channels,
                             (float *)packed + channels * p.first + k * p.width + j, stride);
    }
}

cpu_packed_layout cpu_winograd_layout(const cpu_winograd *plan) {
    int64_t depth = plan->shape.x_channels, columns = plan->shape.y_channels;
    cpu_packed_layout layout = cpu_panel_layout(plan->gemm, 1, depth, columns, 1, TAPS * TAPS * depth);
    layout.pack = pack_winograd;
    layout.bytes *= ELEMENTS;
    return layout;
}

/* ---- Running ---- */

typedef struct block { /* some tiles, and their V and M */
    const cpu_winograd *plan;
    const cpu_direct_operands *o;
    int64_t first, tiles;
    float *v, *m;
} block;

/* The image of a tile, and the position of its first pixel of y. */
typedef struct tile_place {
    int64_t image, row, column;
} tile_place;

static tile_place place_of(const cpu_winograd *plan, int64_t tile) {
    int64_t per_image = plan->tiles[0] * plan->tiles[1], index = tile % per_image;
    return (tile_place){tile / per_image, index / plan->tiles[1] * OUT, index % plan->tiles[1] * OUT};
}

/* Transforms the pixels of tiles first … last - 1 of the block. */
static void transform_pixels(const block *b, int64_t first, int64_t last) {
    const cpu_winograd *plan = b->plan;
    const cpu_convolution *c = &plan->shape;
    const float *x = b->o->first, *pixels[ELEMENTS];
    for (int64_t tile = first; tile < last; tile++) {
        tile_place p = place_of(plan, b->first + tile);
        for (int64_t i = 0; i < ELEMENTS; i++) {
            int64_t row = p.row - c->windows.pad[0] + i / IN, column = p.column - c->windows.pad[2] + i % IN;
            bool is_inside = row >= 0 && row < c->x_size[0] && column >= 0 && column < c->x_size[1];
            int64_t pixel = (p.image * c->x_size[0] + row) * c->x_size[1] + column;
            pixels[i] = is_inside ? x + pixel * c->x_channels : plan->zeros;
        }
        plan->loops->input(c->x_channels, pixels, b->v + tile * c->x_channels, plan->v_stride);
    }
}

/* Returns panel `panel` of U[e]; NULL: there is none. */
static const float *weights_of(const block *b, int64_t e, int64_t panel) {
    const cpu_winograd *plan = b->plan;
    int64_t channels = plan->shape.x_channels, columns = plan->shape.y_channels;
    if (e >= ELEMENTS || panel >= cpu_panel_count(plan->gemm, columns)) return NULL;
    return (const float *)b->o->second + e * cpu_panel_elements(plan->gemm, channels, columns) +
           channels * cpu_panel_at(plan->gemm, columns, panel).first;
}

typedef struct product { /* a panel of M[e], for tiles first … last - 1 of the block */
    int64_t e, panel, first, last;
    const float *next; /* the weights to fetch meanwhile, or NULL */
} product;

static void multiply(const block *b, const product *m) {
    static const int64_t no_offset[1] = {0};
    const cpu_winograd *plan = b->plan;
    int64_t channels = plan->shape.x_channels, columns = plan->shape.y_channels;
    cpu_panel p = cpu_panel_at(plan->gemm, columns, m->panel);
    cpu_gemm_tile t = {.a = b->v + m->e * plan->v_stride + m->first * channels,
                       .a_row = channels,
                       .a_step = 1,
                       .a_blocks = no_offset,
                       .b = weights_of(b, m->e, m->panel),
                       .b_step = p.width,
                       .blocks = 1,
                       .depth = channels,
                       .c = b->m + m->e * plan->m_stride + m->first * columns + p.first,
                       .c_row = columns,
                       .columns = p.columns,
                       .next = m->next};
    cpu_multiply_rows(plan->gemm, t, m->last - m->first);
}

static void transform_results(const block *b, int64_t first, int64_t last) {
    const cpu_winograd *plan = b->plan;
    const cpu_convolution *c = &plan->shape;
    const float *residual[OUT * OUT] = {0};
    cpu_winograd_output o = {.channels = c->y_channels, .bias = b->o->bias, .relu = b->o->relu};
    if (b->o->residual) o.residual = residual;
    for (int64_t tile = first; tile < last; tile++) {
        tile_place p = place_of(plan, b->first + tile);
        for (int64_t i = 0; i < OUT * OUT; i++) {
            int64_t row = p.row + i / OUT, column = p.column + i % OUT;
            bool is_inside = row < c->y_size[0] && column < c->y_size[1];
            int64_t at = ((p.image * c->y_size[0] + row) * c->y_size[1] + column) * c->y_channels;
            o.pixels[i] = is_inside ? (float *)b->o->out + at : NULL;
            if (o.residual) residual[i] = (const float *)b->o->residual + at;
        }
        plan->loops->output(&o, b->m + tile * c->y_channels, plan->m_stride);
    }
}

/* ---- Blocks of tiles, one per worker ---- */

typedef struct winograd_call {
    const cpu_winograd *plan;
    const cpu_direct_operands *o;
} winograd_call;

static void compute_blocks(void *context, int64_t first, int64_t last, int worker) {
    const winograd_call *call = context;
    const cpu_winograd *plan = call->plan;
    block b = {.plan = plan, .o = call->o};
    b.v = (void *)((char *)call->o->workspace + (size_t)worker * block_bytes(plan));
    b.m = b.v + ELEMENTS * plan->v_stride;
    int64_t panels = cpu_panel_count(plan->gemm, plan->shape.y_channels);
    for (int64_t i = first; i < last; i++) {
        b.first = chunk_start(plan->tile_count, plan->blocks, i);
        b.tiles = chunk_start(plan->tile_count, plan->blocks, i + 1) - b.first;
        transform_pixels(&b, 0, b.tiles);
        for (product m = {.last = b.tiles}; m.e < ELEMENTS; m.e++)
            for (m.panel = 0; m.panel < panels; m.panel++) {
                m.next = m.panel + 1 < panels ? weights_of(&b, m.e, m.panel + 1) : weights_of(&b, m.e + 1, 0);
                multiply(&b, &m);
            }
        transform_results(&b, 0, b.tiles);
    }
}

/* ---- One block for all workers ---- */

static void transform_shared_pixels(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    transform_pixels(context, first, last);
}

/* Work item: index = (panel * 36 + e) * shared_parts + part of the tiles. */
static void multiply_shared(void *context, int64_t first, int64_t last, int worker) {
    const block *b = context;
    const int64_t parts = b->plan->shared_parts;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        int64_t part = i % parts, matrix = i / parts, next = matrix + 1;
        product m = {.e = matrix % ELEMENTS, .panel = matrix / ELEMENTS};
        m.first = chunk_start(b->tiles, parts, part);
        m.last = chunk_start(b->tiles, parts, part + 1);
        m.next = part + 1 < parts ? NULL : weights_of(b, next % ELEMENTS, next / ELEMENTS);
        multiply(b, &m);
    }
}

static void transform_shared_results(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    transform_results(context, first, last);
}

static void compute_shared_block(const cpu_winograd *plan, const cpu_direct_operands *operands) {
    block b = {.plan = plan, .o = operands, .tiles = plan->tile_count, .v = operands->workspace};
    b.m = b.v + ELEMENTS * plan->v_stride;
    int64_t panels = cpu_panel_count(plan->gemm, plan->shape.y_channels);
    tu__parallel_for_stealing(b.tiles, 1, transform_shared_pixels, &b);
    tu__parallel_for_stealing(ELEMENTS * panels * plan->shared_parts, 1, multiply_shared, &b);
    tu__parallel_for_stealing(b.tiles, 1, transform_shared_results, &b);
}

void cpu_winograd_run(const cpu_winograd *plan, const cpu_direct_operands *operands) {
    winograd_call call = {plan, operands};
    if (plan->shares_tiles)
        compute_shared_block(plan, operands);
    else
        tu__parallel_for_stealing(plan->blocks, 1, compute_blocks, &call);
}
