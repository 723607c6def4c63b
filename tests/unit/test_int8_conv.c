/* Tests the int8 kernels of every instruction set that this machine has, and those with tiles as emulated: the largest sums, which saturate in 16 bits and
 * almost overflow 32; and the exact rules of rounding and clamping. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/arena.h"
#include "base/parallel.h"
#include "device/cpu/int8_conv.h"
#include "device/cpu/isa/instruction_sets.h"
#include "device/cpu/isa/loops.h"
#include "emulated_tiles.h"

extern const cpu_loops cpu_loops_baseline;
#ifdef __x86_64__
extern const cpu_loops cpu_loops_avx2, cpu_loops_avx512;
#endif

enum { MAX_VARIANTS = 8 };

typedef struct variant {
    const struct cpu_loops_int8 *loops;
    const cpu_int8_dot *dot;
} variant;

/* Lists the tiles that can run here; returns their number. */
static int list_variants(variant variants[MAX_VARIANTS]) {
    int count = 0;
    variants[count++] = (variant){cpu_loops_baseline.int8, cpu_loops_baseline.int8->widened};
    variants[count++] = (variant){cpu_loops_baseline.int8, &emulated_dot};
#ifdef __x86_64__
    const bool *usable = cpu_isa_of_machine()->usable;
    const struct cpu_loops_int8 *avx2 = cpu_loops_avx2.int8, *avx512 = cpu_loops_avx512.int8;
    if (usable[CPU_AVX2]) variants[count++] = (variant){avx2, avx2->widened};
    if (usable[CPU_AVX_VNNI] && avx2->bytes) variants[count++] = (variant){avx2, avx2->bytes};
    if (usable[CPU_AVX512]) variants[count++] = (variant){avx512, avx512->widened};
    if (usable[CPU_AVX512_VNNI] && avx512->bytes) variants[count++] = (variant){avx512, avx512->bytes};
    if (usable[CPU_AMX] && cpu_isa_of_machine()->amx_multiplies_bytes && cpu_int8_dot_amx())
        variants[count++] = (variant){avx512, cpu_int8_dot_amx()};
#endif
    return count;
}

/* ---- Sums ---- */

typedef struct problem {
    int64_t images, size[2], channels, filters, kernel;
    int64_t pad;
    int32_t zero;
} problem;

/* Returns the operand bytes: those of `pattern`, repeated. */
static uint8_t *repeat(size_t count, const uint8_t *pattern, size_t length) {
    uint8_t *bytes = malloc(count);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++) bytes[i] = pattern[i % length];
    return bytes;
}

static int32_t expected_sum(const problem *p, const uint8_t *x, const int8_t *filter, int64_t n, int64_t row,
                            int64_t column, int64_t o) {
    int64_t sum = 0;
    for (int64_t i = 0; i < p->kernel; i++)
        for (int64_t j = 0; j < p->kernel; j++) {
            const int64_t r = row + i - p->pad, q = column + j - p->pad;
            if (r < 0 || r >= p->size[0] || q < 0 || q >= p->size[1]) continue;
            for (int64_t c = 0; c < p->channels; c++)
                sum += (x[((n * p->size[0] + r) * p->size[1] + q) * p->channels + c] - p->zero) *
                       filter[((o * p->kernel + i) * p->kernel + j) * p->channels + c];
        }
    assert_true(sum >= INT32_MIN && sum <= INT32_MAX);
    return (int32_t)sum;
}

static void assert_sums(const variant *v, const problem *p, int threads, const uint8_t *x,
                        const int8_t *filter) {
    tu__arena arena = {.purpose = "a test"};
    cpu_int8_conv *plan;
    const int64_t size[2] = {p->size[0] + 2 * p->pad - p->kernel + 1,
                             p->size[1] + 2 * p->pad - p->kernel + 1};
    const cpu_convolution shape = {.windows = {.size = {p->kernel, p->kernel},
                                               .stride = {1, 1},
                                               .dilation = {1, 1},
                                               .pad = {p->pad, p->pad, p->pad, p->pad}},
                                   .images = p->images,
                                   .x_size = {p->size[0], p->size[1]},
                                   .y_size = {size[0], size[1]},
                                   .groups = 1,
                                   .x_channels = p->channels,
                                   .y_channels = p->filters};
    tu__parallel_setting before = tu__parallel_begin(threads);
    assert_int_equal(cpu_int8_conv_new(&arena, v->loops, v->dot, &shape, p->zero, threads, &plan), TU_OK);
    assert_non_null(plan);
    const cpu_packed_layout *layout = cpu_int8_conv_layout(plan);
    void *packed = aligned_alloc(64, (layout->bytes + 63) / 64 * 64);
    void *workspace = aligned_alloc(64, (cpu_int8_conv_workspace(plan) + 63) / 64 * 64);
    layout->pack(layout, filter, packed);
    int32_t *sums = malloc((size_t)(p->images * size[0] * size[1] * p->filters) * sizeof *sums);
    cpu_int8_conv_run(
        plan, &(cpu_int8_operands){
                  .x = x, .filter = cpu_int8_filter_at(layout, packed), .out = sums, .workspace = workspace});
    tu__parallel_end(before);
    for (int64_t i = 0; i < p->images * size[0] * size[1]; i++)
        for (int64_t o = 0; o < p->filters; o++) {
            const int64_t row = i / size[1] % size[0], column = i % size[1], n = i / size[1] / size[0];
            const int32_t expected = expected_sum(p, x, filter, n, row, column, o);
            if (sums[i * p->filters + o] != expected)
                fail_msg("%s: pixel %d, filter %d: %d, expected %d", v->dot->name, (int)i, (int)o,
                         sums[i * p->filters + o], expected);
        }
    free(packed);
    free(workspace);
    free(sums);
    tu__arena_free(&arena);
}

static void assert_sums_everywhere(const problem *p, const uint8_t *x_pattern, size_t x_length,
                                   const int8_t *filter_pattern, size_t filter_length) {
    variant variants[MAX_VARIANTS];
    const int count = list_variants(variants);
    uint8_t *x = repeat((size_t)(p->images * p->size[0] * p->size[1] * p->channels), x_pattern, x_length);
    uint8_t *filter = repeat((size_t)(p->filters * p->kernel * p->kernel * p->channels),
                             (const uint8_t *)filter_pattern, filter_length);
    for (int i = 0; i < count; i++)
        for (int threads = 1; threads <= 3; threads += 2)
            assert_sums(&variants[i], p, threads, x, (const int8_t *)filter);
    free(x);
    free(filter);
}

/* 65,536 products of 255 * -128 are -2,139,095,040. */
static void the_largest_sums_do_not_saturate(void **state) {
    (void)state;
    const problem product = {5, {1, 1}, 65536, 3, 1, 0, 0};
    assert_sums_everywhere(&product, (const uint8_t[]){255}, 1, (const int8_t[]){-128}, 1);
    assert_sums_everywhere(&product, (const uint8_t[]){255}, 1, (const int8_t[]){127}, 1);
    const problem shifted = {2, {1, 1}, 65536, 2, 1, 0, 255};
    assert_sums_everywhere(&shifted, (const uint8_t[]){0}, 1, (const int8_t[]){-128}, 1);
    assert_sums_everywhere(&shifted, (const uint8_t[]){0, 255}, 2, (const int8_t[]){127, -128}, 2);
    const problem image = {1, {4, 5}, 300, 70, 3, 1, 13};
    assert_sums_everywhere(&image, (const uint8_t[]){255, 255, 0}, 3,
                           (const int8_t[]){-128, 127, -128, 127, 127}, 5);
}

/* Padding is worth the zero point, whatever it is; blocks of one to five bytes do not fill words of four. */
static void padding_and_incomplete_words_add_nothing(void **state) {
    (void)state;
    for (int32_t zero = 0; zero <= 255; zero += 85)
        for (int64_t channels = 1; channels <= 5; channels++) {
            const problem p = {3, {6, 7}, channels, 19, 3, 2, zero};
            assert_sums_everywhere(&p, (const uint8_t[]){3, 250, 255, 0, 77, 128, 1}, 7,
                                   (const int8_t[]){-128, 5, 127, -1, 0, 99, -77, 1, 64, -64, 12}, 11);
        }
}

/* Tiles of 16 rows and 32, equally spaced and not, and fewer rows; one column tile to four; blocks that fill their tiles of
 * 64 bytes, and some that do not. */
static void tiles_of_all_sizes_are_summed(void **state) {
    (void)state;
    const uint8_t x[] = {3, 250, 255, 0, 77, 128, 1, 9, 200, 31, 64};
    const int8_t filter[] = {-128, 5, 127, -1, 0, 99, -77, 1, 64, -64, 12, 33, -2};
    static const problem problems[] = {{1, {8, 8}, 64, 64, 1, 0, 3},   {1, {8, 5}, 128, 17, 1, 0, 0},
                                       {1, {7, 7}, 64, 96, 3, 1, 128}, {2, {4, 4}, 192, 33, 1, 0, 77},
                                       {1, {9, 33}, 48, 50, 1, 0, 12}, {3, {1, 1}, 300, 130, 1, 0, 5},
                                       {1, {6, 18}, 24, 40, 3, 0, 9},  {1, {17, 3}, 16, 64, 2, 1, 200}};
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        assert_sums_everywhere(&problems[i], x, sizeof x, filter, sizeof filter);
}

/* ---- Requantization ---- */

static uint8_t requantized(const struct cpu_loops_int8 *loops, int32_t sum, int32_t bias, float factor,
                           cpu_requantization to) {
    /* Many equal columns, so that the vectors and what is left over compute alike. */
    enum { COLUMNS = 37 };
    int32_t sums[COLUMNS], biases[COLUMNS];
    float factors[COLUMNS];
    uint8_t out[COLUMNS];
    for (int j = 0; j < COLUMNS; j++) {
        sums[j] = sum;
        biases[j] = bias;
        factors[j] = factor;
    }
    to.factors = factors;
    to.bias = biases;
    loops->requantize(&to, &(cpu_int8_rows){.rows = 1, .columns = COLUMNS, .sums = sums, .out = out});
    for (int j = 1; j < COLUMNS; j++) assert_int_equal(out[j], out[0]);
    return out[0];
}

static void requantization_rounds_to_even_and_clamps(void **state) {
    (void)state;
    const cpu_requantization full = {.zero = 10, .low = 0, .high = 255},
                             relu = {.zero = 10, .low = 10, .high = 20};
    static const struct {
        int32_t sum, bias;
        float factor;
        int full, relu;
    } rows[] = {
        {1, 0, 0.5f, 10, 10},     /* 0.5 -> 0 */
        {3, 0, 0.5f, 12, 12},     /* 1.5 -> 2 */
        {5, 0, 0.5f, 12, 12},     /* 2.5 -> 2 */
        {-1, 0, 0.5f, 10, 10},    /* -0.5 -> 0 */
        {-3, 0, 0.5f, 8, 10},     /* -1.5 -> -2 */
        {1000, -999, 1, 11, 11},  /* the bias is added before the factor */
        {1 << 24, 1, 1, 255, 20}, /* 2^24 + 1 is rounded to f32 */
        {INT32_MAX, 1, 1, 0, 10}, /* wraps around */
        {7, 0, INFINITY, 255, 20},
        {-7, 0, INFINITY, 0, 10},
        {0, 0, INFINITY, 0, 10}, /* NaN: low */
        {7, 0, NAN, 0, 10},
        {7, 0, -1, 3, 10},
        {300, 0, 1, 255, 20},
        {16777217, 0, 5.9604644775390625e-08f, 11, 11}, /* 2^-24 * (2^24 + 1), the sum rounded to 2^24 */
    };
    variant variants[MAX_VARIANTS];
    const int count = list_variants(variants);
    for (int v = 0; v < count; v++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            assert_int_equal(requantized(variants[v].loops, rows[i].sum, rows[i].bias, rows[i].factor, full),
                             rows[i].full);
            assert_int_equal(requantized(variants[v].loops, rows[i].sum, rows[i].bias, rows[i].factor, relu),
                             rows[i].relu);
        }
}

/* The product and the residual are rounded before they are added: a fused multiply-add would give another number. */
static void nothing_is_contracted(void **state) {
    (void)state;
    const float third = 1.0f / 3;
    const float product = 3 * third; /* exactly 1 when rounded; 1 + 2^-25 before */
    assert_true((double)product == 1);
    variant variants[MAX_VARIANTS];
    const int count = list_variants(variants);
    for (int v = 0; v < count; v++) {
        enum { COLUMNS = 40 };
        int32_t sums[COLUMNS], bias[COLUMNS] = {0};
        float factors[COLUMNS];
        uint8_t residual[COLUMNS], out[COLUMNS];
        for (int j = 0; j < COLUMNS; j++) {
            sums[j] = 3;
            factors[j] = third;
            residual[j] = 11;
        }
        /* 1 + 1.5 = 2.5, a tie: rounds to 2. With 1 + 2^-25 it would not be a tie. */
        const cpu_requantization to = {.factors = factors,
                                       .bias = bias,
                                       .low = 0,
                                       .high = 255,
                                       .residual_factor = 1.5f,
                                       .residual_zero = 10};
        variants[v].loops->requantize_add(
            &to,
            &(cpu_int8_rows){.rows = 1, .columns = COLUMNS, .sums = sums, .residual = residual, .out = out});
        for (int j = 0; j < COLUMNS; j++) assert_int_equal(out[j], 2);
    }
}

/* Every instruction set computes the same bits for numbers of all sizes. */
static void all_instruction_sets_quantize_alike(void **state) {
    (void)state;
    enum { COUNT = 4099 };
    static float x[COUNT], back[2][COUNT];
    static uint8_t q[2][COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = ldexpf((float)(i * 2654435761u % 2000003u) / 1000001 - 1, i % 40 - 20);
    x[7] = NAN, x[8] = INFINITY, x[9] = -INFINITY, x[10] = 1e-40f;
    variant variants[MAX_VARIANTS];
    const int count = list_variants(variants);
    for (int v = 0; v < count; v++) {
        const int to = v > 0;
        variants[v].loops->quantize(COUNT, x, 7.3f, 77, q[to]);
        variants[v].loops->dequantize(COUNT, q[to], 0.0123f, 77, back[to]);
        if (v == 0) continue;
        assert_memory_equal(q[1], q[0], sizeof q[0]);
        assert_memory_equal(back[1], back[0], sizeof back[0]);
    }
    assert_int_equal(q[0][7], 0);
    assert_int_equal(q[0][8], 255);
    assert_int_equal(q[0][9], 0);
    assert_int_equal(q[0][10], 77);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_sums_do_not_saturate),
        cmocka_unit_test(padding_and_incomplete_words_add_nothing),
        cmocka_unit_test(tiles_of_all_sizes_are_summed),
        cmocka_unit_test(requantization_rounds_to_even_and_clamps),
        cmocka_unit_test(nothing_is_contracted),
        cmocka_unit_test(all_instruction_sets_quantize_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
