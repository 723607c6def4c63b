/* The CPU device's convolutions and matrix products, for cases that the small shapes of tests/ops do not cover: tiles
 * of every width, several panels, skipped border taps, bands, divided taps, deep panels; for every instruction set of
 * this machine, and on emulated tiles; and the adapter to oneDNN. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/parallel.h"
#include "bf16_tiles.h"
#include "device/cpu/conv_blocks.h"
#include "device/cpu/conv_direct.h"
#include "device/cpu/dnnl.h"
#include "device/cpu/gemm.h"
#include "device/cpu/isa/instruction_sets.h"
#include "device/cpu/isa/loops.h"
#include "device/cpu/tile_product.h"
#include "test.h"

static const char *const isas[] = {"baseline", "avx2", "avx512"};
enum { ISAS = 3 };

static const struct cpu_loops_gemm *loops_of(int isa) {
    setenv("TUTTI_ISA", isas[isa], 1);
    const struct cpu_loops_gemm *loops = cpu_loops_for_this_machine()->gemm;
    unsetenv("TUTTI_ISA"); /* the rest of the test uses the best instruction set */
    return loops;
}

static uint32_t random_state = 1;

static int64_t random_int(int64_t low, int64_t high) {
    random_state = random_state * 1664525 + 1013904223;
    return low + (int64_t)(random_state >> 8) % (high - low + 1);
}

static tu_dtype dtype_of(int bytes) {
    return bytes == 8 ? TU_F64 : bytes == 4 ? TU_F32 : TU_BF16;
}

/* Allocates f64, f32 or bf16 numbers, small multiples of 1/64: sums of products are exact in f32, in any order. */
static void *new_numbers(int64_t count, int bytes) {
    void *x = tu__alloc_aligned((size_t)(count * bytes), "a test");
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) tu__store(dtype_of(bytes), x, i, (double)random_int(-16, 16) / 64);
    return x;
}

static double load_number(const void *x, int bytes, int64_t i) {
    return tu__load(dtype_of(bytes), x, i);
}

/* ---- The definition of a convolution, as in src/graph/ops/conv.c ---- */

typedef struct sizes {
    int64_t x, filter, y;
} sizes;

static sizes sizes_of(const cpu_convolution *c) {
    return (sizes){c->images * c->x_size[0] * c->x_size[1] * c->groups * c->x_channels,
                   c->groups * c->y_channels * c->windows.size[0] * c->windows.size[1] * c->x_channels,
                   c->images * c->y_size[0] * c->y_size[1] * c->groups * c->y_channels};
}

typedef void visitor(int64_t x, int64_t filter, int64_t y, void *context);

/* Calls `visit` for all channels of a pixel of x, a tap and a pixel of y. */
static void visit_channels(const cpu_convolution *c, int64_t x, int64_t tap, int64_t y, visitor *visit,
                           void *context) {
    int64_t taps = c->windows.size[0] * c->windows.size[1];
    for (int64_t g = 0; g < c->groups; g++)
        for (int64_t o = 0; o < c->y_channels; o++)
            for (int64_t i = 0; i < c->x_channels; i++)
                visit((x * c->groups + g) * c->x_channels + i,
                      ((g * c->y_channels + o) * taps + tap) * c->x_channels + i,
                      (y * c->groups + g) * c->y_channels + o, context);
}

static bool is_inside(const cpu_convolution *c, int axis, int64_t pixel, int64_t tap, int64_t *position) {
    *position = pixel * c->windows.stride[axis] + tap * c->windows.dilation[axis] - c->windows.pad[2 * axis];
    return *position >= 0 && *position < c->x_size[axis];
}

static void visit_multiply_adds(const cpu_convolution *c, visitor *visit, void *context) {
    int64_t row, column, taps = c->windows.size[0] * c->windows.size[1];
    for (int64_t y = 0; y < c->images * c->y_size[0] * c->y_size[1]; y++)
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t image = y / (c->y_size[0] * c->y_size[1]), p = y / c->y_size[1] % c->y_size[0];
            if (is_inside(c, 0, p, tap / c->windows.size[1], &row) &&
                is_inside(c, 1, y % c->y_size[1], tap % c->windows.size[1], &column))
                visit_channels(c, (image * c->x_size[0] + row) * c->x_size[1] + column, tap, y, visit,
                               context);
        }
}

typedef struct definition {
    cpu_conv_result computes;
    const void *first, *second;
    int bytes;
    double *out;
} definition;

static void add_product(int64_t x, int64_t filter, int64_t y, void *context) {
    definition *d = context;
    int64_t indices[3][3] = {{x, filter, y}, {y, filter, x}, {x, y, filter}},
            *operand_indices = indices[d->computes];
    d->out[operand_indices[2]] += load_number(d->first, d->bytes, operand_indices[0]) *
                                  load_number(d->second, d->bytes, operand_indices[1]);
}

typedef struct
    conv_case { /* operands of a convolution, its expected result, and memory for the computed one */
    void *first, *second, *out;
    double *expected;
    int64_t count;
    int bytes;
} conv_case;

static conv_case conv_case_new(const cpu_convolution *c, cpu_conv_result result, int bytes) {
    sizes n = sizes_of(c);
    int64_t first = result == CPU_CONV_DX ? n.y : n.x, second = result == CPU_CONV_DW ? n.y : n.filter;
    conv_case t = {.bytes = bytes,
                   .count = result == CPU_CONV_Y    ? n.y
                            : result == CPU_CONV_DX ? n.x
                                                    : n.filter};
    t.first = new_numbers(first, bytes);
    t.second = new_numbers(second, bytes);
    t.out = new_numbers(t.count, bytes);
    t.expected = calloc((size_t)t.count, sizeof *t.expected);
    assert_non_null(t.expected);
    definition d = {result, t.first, t.second, bytes, t.expected};
    visit_multiply_adds(c, add_product, &d);
    tu__round_array(dtype_of(bytes), t.expected, t.count);
    return t;
}

static void conv_case_free(conv_case *t) {
    tu__free_aligned(t->first);
    tu__free_aligned(t->second);
    tu__free_aligned(t->out);
    free(t->expected);
}

static void assert_expected_result(const conv_case *t) {
    for (int64_t i = 0; i < t->count; i++)
        if (load_number(t->out, t->bytes, i) != t->expected[i]) /* NOLINT: exact, see new_numbers */
            fail_msg("element %d of %d is %g, expected %g", (int)i, (int)t->count,
                     load_number(t->out, t->bytes, i), t->expected[i]);
}

/* ---- Direct convolution ---- */

enum { FENCE = 64 }; /* bytes after a workspace, which must not be written */

/* Fills the workspace with NaN, to detect reads of uninitialised memory. */
static unsigned char *new_workspace(size_t bytes) {
    unsigned char *workspace = tu__alloc_aligned(bytes + FENCE, "a test");
    assert_non_null(workspace);
    memset(workspace, 0xff, bytes + FENCE);
    return workspace;
}

static void free_workspace(unsigned char *workspace, size_t bytes) {
    for (size_t i = 0; i < FENCE; i++) assert_int_equal(workspace[bytes + i], 0xff);
    tu__free_aligned(workspace);
}

/* Plans for `threads` threads and runs with `width`. */
static void check_direct(const cpu_convolution *c, cpu_conv_result result, const cpu_gemm_loops *loops,
                         int threads, int width) {
    tu__arena arena = {0};
    cpu_direct *plan;
    assert_int_equal(cpu_direct_new(&arena, loops, c, result, threads, &plan), TU_OK);
    assert_non_null(plan);
    conv_case t = conv_case_new(c, result, loops->operand_bytes);
    size_t bytes = cpu_direct_workspace(plan);
    unsigned char *workspace = new_workspace(bytes);
    cpu_direct_operands o = {.first = t.first, .second = t.second, .out = t.out, .workspace = workspace};
    tu__parallel_set_threads(width);
    cpu_direct_run(plan, &o);
    tu__parallel_set_threads(1);
    assert_expected_result(&t);
    free_workspace(workspace, bytes);
    conv_case_free(&t);
    tu__arena_free(&arena);
}

static void check_all_results(const cpu_convolution *c, const cpu_gemm_loops *loops, int threads, int width) {
    for (int result = CPU_CONV_Y; result <= CPU_CONV_DW; result++)
        check_direct(c, (cpu_conv_result)result, loops, threads, width);
}

/* Tests the filter gradient of bf16 pairs, with and without an instruction for them. */
static void check_pairs(const cpu_convolution *c, const struct cpu_loops_gemm *loops, int threads,
                        int width) {
    check_direct(c, CPU_CONV_DW, loops->bf16, threads, width);
    if (loops->bf16_dot && cpu_loops_has_bf16_dot())
        check_direct(c, CPU_CONV_DW, loops->bf16_dot, threads, width);
}

/* Returns false if the window does not fit the image. */
static bool random_convolution(cpu_convolution *c, int64_t max_channels) {
    c->images = random_int(1, 3);
    c->groups = random_int(0, 2) == 0 ? random_int(2, 3) : 1;
    c->x_channels = random_int(1, max_channels);
    c->y_channels = random_int(1, max_channels);
    for (int i = 0; i < 2; i++) {
        c->windows.size[i] = random_int(1, 4);
        c->windows.stride[i] = random_int(1, 3);
        c->windows.dilation[i] = random_int(1, 2);
        c->windows.pad[2 * i] = random_int(0, 4);
        c->windows.pad[2 * i + 1] = random_int(0, 4);
        c->x_size[i] = random_int(1, 9);
        int64_t last_offset = c->x_size[i] + c->windows.pad[2 * i] + c->windows.pad[2 * i + 1] -
                              (c->windows.size[i] - 1) * c->windows.dilation[i] - 1;
        if (last_offset < 0) return false;
        c->y_size[i] = 1 + last_offset / c->windows.stride[i];
    }
    return true;
}

static void direct_convolutions_are_exact_on_every_instruction_set(void **state) {
    (void)state;
    for (int isa = 0; isa < ISAS; isa++)
        for (int i = 0; i < 60; i++) {
            cpu_convolution c;
            if (!random_convolution(&c, i % 3 == 0 ? 40 : 6)) continue;
            int threads = (int)random_int(1, 3);
            check_all_results(&c, loops_of(isa)->f32, threads, threads);
            check_all_results(&c, loops_of(isa)->f64, threads, threads);
            check_pairs(&c, loops_of(isa), threads, threads);
        }
}

/* SAME padding, stride 1. */
static cpu_convolution same_padded_convolution(int64_t images, int64_t pixels, int64_t in, int64_t out,
                                               int64_t size) {
    int64_t before = (size - 1) / 2, after = size - 1 - before;
    return (cpu_convolution){.windows = {.size = {size, size},
                                         .stride = {1, 1},
                                         .dilation = {1, 1},
                                         .pad = {before, after, before, after}},
                             .images = images,
                             .x_size = {pixels, pixels},
                             .y_size = {pixels, pixels},
                             .groups = 1,
                             .x_channels = in,
                             .y_channels = out};
}

/* ---- bf16 with AMX tiles ---- */

static void check_blocks(const cpu_convolution *c, const cpu_blocks *blocks, int threads) {
    for (int result = CPU_CONV_Y; result <= CPU_CONV_DW; result++) {
        tu__arena arena = {0};
        cpu_conv_blocks *plan;
        assert_int_equal(cpu_conv_blocks_new(&arena, blocks, cpu_loops_for_this_machine(), c,
                                             (cpu_conv_result)result, threads, &plan),
                         TU_OK);
        assert_non_null(plan);
        conv_case t = conv_case_new(c, (cpu_conv_result)result, 2);
        size_t bytes = cpu_conv_blocks_workspace(plan);
        unsigned char *workspace = new_workspace(bytes);
        cpu_direct_operands o = {.first = t.first, .second = t.second, .out = t.out, .workspace = workspace};
        tu__parallel_set_threads(threads);
        cpu_conv_blocks_run(plan, &o);
        tu__parallel_set_threads(1);
        assert_expected_result(&t);
        free_workspace(workspace, bytes);
        conv_case_free(&t);
        tu__arena_free(&arena);
    }
}

/* A block in plain C, so that conv_blocks.c is tested on machines without AMX too. */
static float float_of(uint32_t bf16) {
    uint32_t bits = bf16 << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static void plain_block(const cpu_block *t) {
    for (int row = 0; row < t->tiles * t->tile_rows; row++)
        for (int column = 0; column < t->columns; column++) {
            const uint16_t *a = t->a + row / t->tile_rows * t->a_second_tile + row % t->tile_rows * t->a_row;
            float sum = t->add ? t->c[row * t->c_row + column] : 0;
            for (int64_t g = 0; g < t->groups; g++)
                for (int64_t chunk = 0; chunk < t->chunks; chunk++) {
                    const uint16_t *pairs = a + t->a_groups[g] + chunk * CPU_BLOCK_DEPTH;
                    const uint32_t *b = t->b + g * t->b_group + chunk * t->b_chunk + column;
                    for (int i = 0; i < CPU_BLOCK_PAIRS; i++, b += t->b_pair)
                        sum += float_of(pairs[2 * i]) * float_of(*b & 0xffff) +
                               float_of(pairs[2 * i + 1]) * float_of(*b >> 16);
                }
            t->c[row * t->c_row + column] = sum;
        }
}

static void check_all_blocks(const cpu_convolution *c, int threads) {
    static const cpu_blocks plain = {.name = "plain", .block = plain_block};
    check_blocks(c, &plain, threads);
    if (cpu_blocks_for_this_machine()) check_blocks(c, cpu_blocks_for_this_machine(), threads);
}

static void amx_convolutions_are_exact(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        cpu_convolution c;
        if (!random_convolution(&c, i % 3 == 0 ? 70 : 6)) continue;
        c.groups = 1;
        for (int axis = 0; axis < 2; axis++) {
            c.windows.stride[axis] = c.windows.dilation[axis] = 1;
            c.y_size[axis] = c.x_size[axis] + c.windows.pad[2 * axis] + c.windows.pad[2 * axis + 1] -
                             c.windows.size[axis] + 1;
        }
        check_all_blocks(&c, (int)random_int(1, 3));
    }
}

static void amx_convolutions_divide_large_images_into_bands(void **state) {
    (void)state;
    cpu_convolution c = same_padded_convolution(1, 40, 70, 5, 3),
                    few_channels = same_padded_convolution(2, 24, 3, 20, 5),
                    many_images = same_padded_convolution(20, 6, 20, 18, 5);
    check_all_blocks(&c, 2);
    check_all_blocks(&few_channels, 2);
    check_all_blocks(&many_images, 1);
}

/* ---- bf16 with AMX tiles and packed weights ---- */

/* Plans for `threads` threads, of which one runs. */
static void check_tile_product(const cpu_convolution *c, const cpu_tiles *tiles, int threads, int width) {
    tu__arena arena = {0};
    cpu_tile_product *plan;
    assert_int_equal(
        cpu_tile_product_new(&arena, tiles, cpu_loops_for_this_machine()->kernels->round, c, threads, &plan),
        TU_OK);
    assert_non_null(plan);
    conv_case t = conv_case_new(c, CPU_CONV_Y, 2);
    const cpu_packed_layout *layout = cpu_tile_product_layout(plan);
    const size_t bytes = cpu_tile_product_workspace(plan);
    unsigned char *workspace = new_workspace(bytes), *weights = new_workspace(layout->bytes);
    layout->pack(layout, t.second, weights);
    const cpu_direct_operands o = {.first = t.first, .second = weights, .out = t.out, .workspace = workspace};
    tu__parallel_set_threads(width);
    cpu_tile_product_run(plan, &o);
    tu__parallel_set_threads(1);
    assert_expected_result(&t);
    free_workspace(workspace, bytes);
    free_workspace(weights, layout->bytes);
    conv_case_free(&t);
    tu__arena_free(&arena);
}

static void check_tiles(const cpu_convolution *c, int threads, int width) {
    check_tile_product(c, &emulated_bf16_tiles, threads, width);
    if (cpu_tiles_for_this_machine()) check_tile_product(c, cpu_tiles_for_this_machine(), threads, width);
}

static void tile_products_are_exact(void **state) {
    (void)state;
    for (int i = 0; i < 150; i++) {
        cpu_convolution c;
        const int64_t channels[] = {6, 40, 70};
        if (!random_convolution(&c, channels[i % 3])) continue;
        c.groups = 1;
        if (i % 5 == 0) c.x_channels = 32 * random_int(1, 3);
        const int threads = (int)random_int(1, 3);
        check_tiles(&c, threads, threads);
    }
}

static void tile_products_of_large_layers_are_divided_into_units(void **state) {
    (void)state;
    /* Bands of rows, few images, many small images, gathered rows, and with a stride. */
    cpu_convolution bands = same_padded_convolution(2, 44, 33, 17, 3), c = bands;
    check_tiles(&bands, 2, 2);
    c = same_padded_convolution(9, 7, 64, 70, 3);
    check_tiles(&c, 2, 1);
    c = same_padded_convolution(1, 30, 3, 33, 7);
    check_tiles(&c, 3, 3);
    c = same_padded_convolution(3, 20, 64, 40, 1);
    check_tiles(&c, 2, 2);
    c = same_padded_convolution(2, 26, 32, 40, 3);
    c.windows.stride[0] = c.windows.stride[1] = 2;
    c.y_size[0] = c.y_size[1] = 13;
    check_tiles(&c, 2, 2);
    c = same_padded_convolution(1, 3, 16, 600, 3); /* many columns, few pixels */
    check_tiles(&c, 2, 2);
}

static void rounding_by_avx512_bf16_has_the_bits_of_the_loops(void **state) {
    (void)state;
    enum { ROWS = 3, COLUMNS = 70 };
    static float sums[ROWS * COLUMNS];
    static uint16_t bias[COLUMNS], residual[ROWS * COLUMNS], actual[ROWS * COLUMNS], expected[ROWS * COLUMNS];
    const struct cpu_round_loops *instruction = cpu_round_loops_avx512_bf16(),
                                 *loops = cpu_loops_for_this_machine()->kernels->round;
    if (!instruction || !cpu_isa_allows(CPU_AVX512_BF16)) skip();
    for (int run = 0; run < 400; run++) {
        const int64_t columns = run % 3 ? random_int(1, COLUMNS) : 64;
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            uint32_t bits = (uint32_t)random_int(0, 0xffff) << 16 | (uint32_t)random_int(0, 0xffff);
            if (!(bits & 0x7f800000)) bits = 0x80000000; /* no subnormal number */
            memcpy(&sums[i], &bits, sizeof bits);
            if (run % 2) sums[i] = (float)random_int(-1000000, 1000000) / 4096;
            tu__store(TU_BF16, residual, i, (double)random_int(-512, 512) / 4);
        }
        for (int i = 0; i < COLUMNS; i++) tu__store(TU_BF16, bias, i, (double)random_int(-512, 512) / 4);
        const void *b = run & 4 ? bias : NULL, *r = run & 8 ? residual : NULL;
        memset(actual, 0x55, sizeof actual);
        memset(expected, 0x55, sizeof expected);
        instruction->sums_to_bf16(ROWS, columns, sums, COLUMNS, b, r, run & 16, actual, COLUMNS);
        loops->sums_to_bf16(ROWS, columns, sums, COLUMNS, b, r, run & 16, expected, COLUMNS);
        assert_memory_equal(actual, expected, sizeof actual);
    }
}

static void the_emulated_tiles_have_the_bits_of_the_processor(void **state) {
    (void)state;
    enum { CHUNKS = 3, NUMBERS = CHUNKS * 1024, SUMS = 32 * CPU_TILE_SUMS_ROW };
    static uint16_t a[NUMBERS], b[NUMBERS];
    static float actual[SUMS], expected[SUMS];
    const int64_t offsets[CHUNKS] = {0, 64, 128};
    const cpu_tiles *amx = cpu_tiles_for_this_machine();
    if (!amx) skip();
    for (int run = 0; run < 50; run++) {
        /* Numbers whose sums are rounded; then also subnormal, infinite and huge ones. */
        for (int i = 0; i < NUMBERS; i++) {
            a[i] = (uint16_t)(run < 25 ? 0x3f00 + random_int(0, 0x1ff) : random_int(0, 0xffff));
            b[i] = (uint16_t)((random_int(0, 1) << 15) +
                              (run < 25 ? random_int(0x3d00, 0x3fff) : random_int(0, 0x7f80)));
        }
        cpu_tile_block block = {.a = (const char *)a,
                                .a_row = 192,
                                .a_second = 16 * 192,
                                .offsets = offsets,
                                .chunks = CHUNKS,
                                .b = (const char *)b,
                                .row_tiles = 2,
                                .column_tiles = 2,
                                .c = actual};
        amx->configure(16);
        amx->block(&block);
        amx->release();
        block.c = expected;
        emulated_bf16_tiles.configure(16);
        emulated_bf16_tiles.block(&block);
        emulated_bf16_tiles.release();
        for (int i = 0; i < SUMS; i++)
            if (!isnan(expected[i]) || !isnan(actual[i]))
                assert_memory_equal(&actual[i], &expected[i], sizeof *actual);
    }
}

static void wide_layers_are_divided_into_panels(void **state) {
    (void)state;
    cpu_convolution c = same_padded_convolution(2, 7, 20, 150, 3);
    for (int isa = 0; isa < ISAS; isa++) {
        check_all_results(&c, loops_of(isa)->f32, 2, 2);
        check_pairs(&c, loops_of(isa), 2, 2);
    }
}

static void deep_panels_are_processed_in_chunks(void **state) {
    (void)state;
    /* 9 * 520 rows of at least 64 columns: more than half a megabyte. */
    cpu_convolution c = same_padded_convolution(1, 4, 520, 66, 3);
    check_all_results(&c, loops_of(2)->f32, 1, 1);
    c = same_padded_convolution(1, 3, 300, 66, 5);
    c.windows.dilation[1] = 2; /* taps are no longer adjacent, so the image is padded */
    c.windows.pad[2] = c.windows.pad[3] = 4;
    check_all_results(&c, loops_of(2)->f32, 1, 1);
}

static void few_images_are_divided_into_bands(void **state) {
    (void)state;
    cpu_convolution c = same_padded_convolution(1, 13, 3, 9, 5),
                    narrow = same_padded_convolution(1, 11, 24, 18, 3);
    check_all_results(&c, loops_of(2)->f32, 3, 3);
    check_all_results(&narrow, loops_of(2)->f32, 3, 3);
}

static void large_filters_divide_their_taps_among_threads(void **state) {
    (void)state;
    /* 180 * 80 elements for each of 2,000 workers are too many. */
    cpu_convolution c = same_padded_convolution(3, 6, 20, 70, 3);
    check_direct(&c, CPU_CONV_DW, loops_of(2)->f32, 2000, 3);
    check_pairs(&c, loops_of(2), 2000, 3);
}

static void images_with_many_rows_are_summed_in_bands(void **state) {
    (void)state;
    cpu_convolution c = same_padded_convolution(1, 48, 2, 40, 3),
                    wide = same_padded_convolution(1, 40, 18, 48, 3);
    check_direct(&c, CPU_CONV_DW, loops_of(2)->f32, 1, 1);
    check_direct(&wide, CPU_CONV_DW, loops_of(2)->f64, 1, 1);
    cpu_convolution tall =
        same_padded_convolution(1, 57, 18, 48, 3); /* an odd number of pixels: the last has no pair */
    check_pairs(&c, loops_of(2), 1, 1);
    check_pairs(&tall, loops_of(2), 1, 1);
}

static void huge_paddings_are_not_planned(void **state) {
    (void)state;
    tu__arena arena = {0};
    cpu_direct *plan;
    cpu_convolution c = same_padded_convolution(1, 8, 1, 1, 3);
    c.windows.pad[0] = INT64_C(1) << 40;
    c.y_size[0] += (INT64_C(1) << 40) - 1;
    assert_int_equal(cpu_direct_new(&arena, loops_of(0)->f32, &c, CPU_CONV_Y, 1, &plan), TU_OK);
    assert_null(plan);
    tu__arena_free(&arena);
}

static void check_same_bits(const cpu_gemm_loops *loops) {
    enum { RUNS = 3 };
    cpu_convolution c = same_padded_convolution(5, 9, 17, 33, 3);
    sizes n = sizes_of(&c);
    tu__arena arena = {0};
    cpu_direct *plan;
    int bytes = loops->operand_bytes;
    void *x = new_numbers(n.x, bytes), *y = new_numbers(n.y, bytes), *results[RUNS];
    for (int64_t i = 0; i < n.x; i++) /* numbers whose sums depend on the order of additions */
        tu__store(dtype_of(bytes), x, i, sin((double)i));
    for (int64_t i = 0; i < n.y; i++) tu__store(dtype_of(bytes), y, i, cos((double)i));
    assert_int_equal(cpu_direct_new(&arena, loops, &c, CPU_CONV_DW, 3, &plan), TU_OK);
    void *workspace = tu__alloc_aligned(cpu_direct_workspace(plan), "a test");
    tu__parallel_set_threads(3);
    for (int i = 0; i < RUNS; i++) {
        results[i] = new_numbers(n.filter, bytes);
        cpu_direct_run(
            plan, &(cpu_direct_operands){.first = x, .second = y, .out = results[i], .workspace = workspace});
        assert_memory_equal(results[i], results[0], (size_t)(n.filter * bytes));
    }
    tu__parallel_set_threads(1);
    for (int i = 0; i < RUNS; i++) tu__free_aligned(results[i]);
    tu__free_aligned(workspace);
    tu__free_aligned(x);
    tu__free_aligned(y);
    tu__arena_free(&arena);
}

static void the_same_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    const struct cpu_loops_gemm *loops = loops_of(2);
    check_same_bits(loops->f32);
    check_same_bits(loops->bf16);
    if (loops->bf16_dot && cpu_loops_has_bf16_dot()) check_same_bits(loops->bf16_dot);
}

/* ---- Epilogues ---- */

static void bias_and_relu_are_fused_into_the_tile(void **state) {
    (void)state;
    for (int isa = 0; isa < ISAS; isa++)
        for (int64_t channels = 1; channels < 70; channels += 17) {
            cpu_convolution c = same_padded_convolution(1, 5, 18, channels, 3);
            tu__arena arena = {0};
            cpu_direct *plan;
            conv_case t = conv_case_new(&c, CPU_CONV_Y, 4);
            float *bias = new_numbers(channels, 4);
            ((float *)t.first)[0] = NAN; /* must stay NaN, because relu is x < 0 ? 0 : x */
            assert_int_equal(cpu_direct_new(&arena, loops_of(isa)->f32, &c, CPU_CONV_Y, 1, &plan), TU_OK);
            void *workspace = tu__alloc_aligned(cpu_direct_workspace(plan), "a test");
            cpu_direct_run(plan, &(cpu_direct_operands){.first = t.first,
                                                        .second = t.second,
                                                        .bias = bias,
                                                        .out = t.out,
                                                        .workspace = workspace,
                                                        .relu = true});
            for (int64_t i = 0; i < t.count; i++) {
                int64_t row = i / channels / 5, column = i / channels % 5;
                float got = ((float *)t.out)[i], expected = (float)t.expected[i] + bias[i % channels];
                if (row < 2 && column < 2)
                    assert_true(isnan(got));
                else
                    assert_true(got == (expected < 0 ? 0 : expected)); /* NOLINT: exact, see new_numbers */
            }
            tu__free_aligned(workspace);
            tu__free_aligned(bias);
            conv_case_free(&t);
            tu__arena_free(&arena);
        }
}

static void epilogues_in_place_keep_nan_and_round_like_operations(void **state) {
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        const struct cpu_loops_gemm *loops = loops_of(isa);
        float x[] = {-1, 2, -0.0F, NAN, -INFINITY, INFINITY, -1e-45F};
        loops->epilogue_f32(1, 7, x, NULL, true);
        assert_true(x[0] == 0 && x[1] == 2 && signbit(x[2]) && isnan(x[3]) && x[4] == 0 && isinf(x[5]) &&
                    x[6] == 0);
        float y[] = {1, 2, 3, 4};
        loops->epilogue_f32(2, 2, y, (const float[]){-2, 0.5F}, true);
        assert_true(y[0] == 0 && y[1] == 2.5F && y[2] == 1 && y[3] == 4.5F);
        uint16_t h[] = {0xbf80, 0x4000, 0x8000, 0x7fc0, 0xff80, 0x7f80, 0x8001, 0xffc0};
        const uint16_t expected[] = {0, 0x4000, 0x8000, 0x7fc0, 0, 0x7f80, 0, 0xffc0};
        loops->epilogue_bf16(1, 8, h, NULL, true);
        assert_memory_equal(h, expected, sizeof h);
        uint16_t s[] = {
            0x4300, 0x4302,
            0x7f80}; /* 128 + 0.5 and 130 + 0.5 are halfway between two numbers: they round to even */
        loops->epilogue_bf16(1, 3, s, (const uint16_t[]){0x3f00, 0x3f00, 0xff80}, false);
        assert_int_equal(s[0], 0x4300);
        assert_int_equal(s[1], 0x4302);
        assert_true((s[2] & 0x7fff) > 0x7f80);
    }
}

/* ---- Matrix products ---- */

static void check_matmul(const cpu_gemm *g, int width) {
    int bytes = g->loops->element_bytes;
    int64_t a_count = 0, b_count = 0;
    for (int64_t i = 0; i < g->batch; i++) {
        if (g->a_offsets[i] + g->m * g->k > a_count) a_count = g->a_offsets[i] + g->m * g->k;
        if (g->b_offsets[i] + g->k * g->n > b_count) b_count = g->b_offsets[i] + g->k * g->n;
    }
    void *a = new_numbers(a_count, bytes), *b = new_numbers(b_count, bytes), *bias = new_numbers(g->n, bytes);
    void *c = new_numbers(g->batch * g->m * g->n, bytes),
         *workspace = new_numbers((int64_t)cpu_gemm_workspace(g) / 4 + 1, 4);
    tu__parallel_set_threads(width);
    cpu_gemm_run(g, &(cpu_gemm_operands){a, b, bias, c, workspace, false});
    tu__parallel_set_threads(1);
    for (int64_t i = 0; i < g->batch * g->m * g->n; i++) {
        int64_t item = i / (g->m * g->n), row = i / g->n % g->m, column = i % g->n;
        double sum = load_number(bias, bytes, column);
        for (int64_t p = 0; p < g->k; p++)
            sum += load_number(a, bytes,
                               g->a_offsets[item] + (g->transpose_a ? p * g->m + row : row * g->k + p)) *
                   load_number(b, bytes,
                               g->b_offsets[item] + (g->transpose_b ? column * g->k + p : p * g->n + column));
        assert_true(sum == load_number(c, bytes, i)); /* NOLINT: exact, see new_numbers */
    }
    tu__free_aligned(a);
    tu__free_aligned(b);
    tu__free_aligned(c);
    tu__free_aligned(bias);
    tu__free_aligned(workspace);
}

static void matmuls_are_exact_on_every_instruction_set(void **state) {
    (void)state;
    for (int isa = 0; isa < ISAS; isa++)
        for (int i = 0; i < 60; i++) {
            int64_t a_offsets[8], b_offsets[8];
            cpu_gemm g = {.loops = i % 2 ? loops_of(isa)->f32 : loops_of(isa)->f64,
                          .m = random_int(1, 60),
                          .n = random_int(1, 150),
                          .k = i % 10 == 0 ? random_int(500, 1100) : random_int(1, 40),
                          .transpose_a = random_int(0, 1),
                          .transpose_b = random_int(0, 1),
                          .batch = i % 5 == 0 ? random_int(1, 8) : 1,
                          .a_offsets = a_offsets,
                          .b_offsets = b_offsets,
                          .threads = (int)random_int(1, 3)};
            for (int64_t j = 0; j < g.batch; j++) {
                a_offsets[j] = j * g.m * g.k;
                b_offsets[j] = j / 2 * g.k * g.n; /* each matrix is used twice: broadcast */
            }
            cpu_gemm_plan(&g);
            check_matmul(&g, g.threads);
        }
}

/* ---- oneDNN ---- */

static void dnnl_convolutions_are_exact(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        cpu_convolution c;
        if (!random_convolution(&c, i % 3 == 0 ? 40 : 6)) continue;
        for (int result = CPU_CONV_Y; result <= CPU_CONV_DW; result++) {
            cpu_dnnl *op;
            int threads = (int)random_int(1, 3);
            assert_int_equal(cpu_dnnl_convolution(&c, (cpu_conv_result)result, TU_F32, threads, &op), TU_OK);
            if (!op) continue; /* oneDNN does not support it */
            conv_case t = conv_case_new(&c, (cpu_conv_result)result, 4);
            void *workspace = tu__alloc_aligned(cpu_dnnl_workspace(op) + 64, "a test");
            tu__parallel_set_threads(threads);
            cpu_direct_operands o = {
                .first = t.first, .second = t.second, .out = t.out, .workspace = workspace};
            assert_int_equal(cpu_dnnl_run(op, &o), TU_OK);
            tu__parallel_set_threads(1);
            assert_expected_result(&t);
            tu__free_aligned(workspace);
            conv_case_free(&t);
            cpu_dnnl_free(op);
        }
    }
}

static void dnnl_reports_its_version(void **state) {
    (void)state;
    const char *version = cpu_dnnl_version();
    assert_true(!version || strchr(version, '.'));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direct_convolutions_are_exact_on_every_instruction_set),
        cmocka_unit_test(amx_convolutions_are_exact),
        cmocka_unit_test(amx_convolutions_divide_large_images_into_bands),
        cmocka_unit_test(tile_products_are_exact),
        cmocka_unit_test(tile_products_of_large_layers_are_divided_into_units),
        cmocka_unit_test(rounding_by_avx512_bf16_has_the_bits_of_the_loops),
        cmocka_unit_test(the_emulated_tiles_have_the_bits_of_the_processor),
        cmocka_unit_test(wide_layers_are_divided_into_panels),
        cmocka_unit_test(deep_panels_are_processed_in_chunks),
        cmocka_unit_test(few_images_are_divided_into_bands),
        cmocka_unit_test(large_filters_divide_their_taps_among_threads),
        cmocka_unit_test(images_with_many_rows_are_summed_in_bands),
        cmocka_unit_test(huge_paddings_are_not_planned),
        cmocka_unit_test(the_same_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(bias_and_relu_are_fused_into_the_tile),
        cmocka_unit_test(epilogues_in_place_keep_nan_and_round_like_operations),
        cmocka_unit_test(matmuls_are_exact_on_every_instruction_set),
        cmocka_unit_test(dnnl_convolutions_are_exact),
        cmocka_unit_test(dnnl_reports_its_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
