/* Tests the assignment of kernels to CUDA streams: a kernel waits for all earlier kernels that access the same
 * memory, independent chains run in parallel, and if that saves no time all kernels stay in one stream. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/runtime/streams.c" /* NOLINT(bugprone-suspicious-include): the plug-in is not linked here */

enum { TEST_KERNELS = 200, MAX_EXTENTS = 3 };

static cuda_work work[TEST_KERNELS];
static cuda_extent extents[TEST_KERNELS][MAX_EXTENTS];
static cuda_stream_assignment assignments[TEST_KERNELS];
static bool comes_after[TEST_KERNELS][TEST_KERNELS]; /* [b][a]: b starts after a has finished */

static void add_kernel(uint32_t index, double seconds, uint32_t count, const cuda_extent *given) {
    memcpy(extents[index], given, count * sizeof *given);
    work[index] = (cuda_work){.extents = extents[index], .extent_count = count, .seconds = seconds};
}

/* Records that kernel `index` starts after kernel `before`, and so after all kernels before that. */
static void add_order(uint32_t index, uint32_t before) {
    comes_after[index][before] = true;
    for (uint32_t i = 0; i < before; i++)
        comes_after[index][i] = comes_after[index][i] || comes_after[before][i];
}

/* Computes comes_after from streams and waits. */
static void compute_order(uint32_t count) {
    memset(comes_after, 0, sizeof comes_after);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = i; k-- > 0;)
            if (assignments[k].stream == assignments[i].stream) {
                add_order(i, k);
                break;
            }
        for (int s = 0; s < CUDA_STREAMS; s++) {
            int wait = assignments[i].waits[s];
            if (wait == CUDA_NO_KERNEL) continue;
            assert_true(wait < (int)i && assignments[wait].stream == s && assignments[wait].waited_for);
            add_order(i, (uint32_t)wait);
        }
    }
}

static void expect_conflicts_in_order(uint32_t count) {
    compute_order(count);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (conflicts_with(&work[k], &work[i]) && !comes_after[i][k])
                fail_msg("kernel %u does not wait for %u", i, k);
}

static void kernels_wait_for_conflicting_earlier_kernels(void **state) {
    (void)state;
    int parallel_rounds = 0;
    srand(7);
    for (int round = 0; round < 200; round++) {
        uint32_t count = 2 + (uint32_t)rand() % (TEST_KERNELS - 2);
        for (uint32_t i = 0; i < count; i++) {
            cuda_extent e[MAX_EXTENTS];
            for (int k = 0; k < MAX_EXTENTS; k++) {
                uintptr_t from = (uintptr_t)(rand() % 3000);
                e[k] = (cuda_extent){from, from + 1 + (uintptr_t)(rand() % 20), k == 0};
            }
            add_kernel(i, 1e-6 * (1 + rand() % 20), MAX_EXTENTS, e);
        }
        parallel_rounds += cuda_assign_streams(count, work, assignments);
        expect_conflicts_in_order(count);
    }
    assert_true(parallel_rounds > 20); /* otherwise the test has checked nothing */
}

/* Adds `chains` chains of `length` kernels, interleaved. Each kernel reads the output of its predecessor in the
 * chain. */
static uint32_t add_chains(uint32_t chains, uint32_t length, double seconds) {
    for (uint32_t i = 0; i < length; i++)
        for (uint32_t c = 0; c < chains; c++) {
            uintptr_t address = 1000 * c + i;
            add_kernel(i * chains + c, seconds, 2,
                       (cuda_extent[]){{address, address + 1, false}, {address + 1, address + 2, true}});
        }
    return chains * length;
}

static void independent_chains_run_in_parallel(void **state) {
    (void)state;
    uint32_t count = add_chains(4, 10, 3e-6);
    assert_true(cuda_assign_streams(count, work, assignments));
    expect_conflicts_in_order(count);
    for (uint32_t i = 0; i < count;
         i++) { /* each chain stays in one stream, and no chain waits for another */
        assert_int_equal(assignments[i].stream, assignments[i % 4].stream);
        for (int s = 0; s < CUDA_STREAMS; s++) assert_int_equal(assignments[i].waits[s], CUDA_NO_KERNEL);
    }
}

static void one_chain_and_large_kernels_use_one_stream(void **state) {
    (void)state;
    assert_false(cuda_assign_streams(add_chains(1, 40, 3e-6), work, assignments));
    for (int i = 0; i < 40; i++) assert_int_equal(assignments[i].stream, 0);
    assert_false(cuda_assign_streams(add_chains(4, 10, 100e-6), work, assignments));
    for (int i = 0; i < 40; i++) assert_int_equal(assignments[i].stream, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_wait_for_conflicting_earlier_kernels),
        cmocka_unit_test(independent_chains_run_in_parallel),
        cmocka_unit_test(one_chain_and_large_kernels_use_one_stream),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
