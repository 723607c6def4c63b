/* The CPU device's convolutions and matrix products, for cases that the small shapes of tests/ops do not cover: tiles
 * of every width, several panels, skipped border taps, bands, divided taps, deep panels; for every instruction set of
 * this machine; and the adapter to oneDNN. test_cpu_tiles.c has those with AMX. */
#include <math.h>

#include "conv_case.h"
#include "device/cpu/dnnl.h"
#include "device/cpu/gemm.h"
#include "device/cpu/isa/instruction_sets.h"
#include "device/cpu/isa/loops.h"

static const char *const isas[] = {"baseline", "avx2", "avx512"};
enum { ISAS = 3 };

static const struct cpu_loops_gemm *loops_of(int isa) {
    setenv("TUTTI_ISA", isas[isa], 1);
    const struct cpu_loops_gemm *loops = cpu_loops_for_this_machine()->gemm;
    unsetenv("TUTTI_ISA"); /* the rest of the test uses the best instruction set */
    return loops;
}

/* ---- Direct convolution ---- */

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
