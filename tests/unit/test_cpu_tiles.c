/* The CPU device's convolutions and matrix products in bf16 with AMX: on emulated tiles, and on those of this processor if it
 * has any. */
#include <math.h>

#include "bf16_tiles.h"
#include "conv_case.h"
#include "device/cpu/conv_blocks.h"
#include "device/cpu/isa/instruction_sets.h"
#include "device/cpu/isa/loops.h"
#include "device/cpu/tile_product.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amx_convolutions_are_exact),
        cmocka_unit_test(amx_convolutions_divide_large_images_into_bands),
        cmocka_unit_test(tile_products_are_exact),
        cmocka_unit_test(tile_products_of_large_layers_are_divided_into_units),
        cmocka_unit_test(rounding_by_avx512_bf16_has_the_bits_of_the_loops),
        cmocka_unit_test(the_emulated_tiles_have_the_bits_of_the_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
