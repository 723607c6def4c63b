/* Loaders: the order of samples depends only on seed and epoch. */
#include "test.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/data.h>

#include "base/alloc.h"
#include "data/permutation.h"

/* ---- A data set whose images contain their index ---- */

enum { TRAIN = 103, TEST = 20, CLASSES = 7, FAULTY = 40 };

static tu_status read_numbered_image(void *context, tu_split split, int64_t index, void *image,
                                     int32_t *label) {
    const atomic_bool *faulty = context;
    if (faulty && atomic_load(faulty) && split == TU_TRAIN && index == FAULTY)
        return tu_fail(TU_IO, "image %lld cannot be read today", (long long)index);
    float pixels[6] = {(float)index, (float)split, 1, 2, 3, 4};
    memcpy(image, pixels, sizeof pixels);
    *label = (int32_t)(index % CLASSES);
    return TU_OK;
}

static tu_dataset *numbered_images(atomic_bool *faulty) {
    tu_source source = {.struct_size = sizeof source,
                        .name = "numbers",
                        .count = {TRAIN, TEST},
                        .height = 1,
                        .width = 2,
                        .channels = 3,
                        .dtype = TU_F32,
                        .classes = CLASSES,
                        .context = faulty,
                        .read = read_numbered_image};
    tu_dataset *set = NULL;
    assert_int_equal(tu_dataset_from(&source, &set), TU_OK);
    assert_non_null(set);
    return set;
}

static void expect_batch(const tu_batch *batch, tu_split split) {
    const float *pixels = batch->images;
    assert_int_equal((uintptr_t)batch->images % 64, 0);
    for (int64_t i = 0; i < batch->count; i++) {
        assert_int_equal(batch->ordinals[i], batch->first + i);
        assert_true(pixels[6 * i] == (float)batch->indices[i]);
        assert_true(pixels[6 * i + 1] == (float)split);
        assert_int_equal(batch->labels[i], batch->indices[i] % CLASSES);
    }
}

/* Reads the indices of `count` samples, starting at options->start. */
static void read_indices(const tu_dataset *set, const tu_loader_options *options, int64_t count,
                         int64_t *indices) {
    tu_loader *loader = NULL;
    assert_int_equal(tu_loader_new_with(set, &loader, options), TU_OK);
    for (int64_t done = 0; done < count;) {
        tu_batch batch = TU_SIZED(tu_batch);
        assert_int_equal(tu_loader_next(loader, &batch), TU_OK);
        assert_int_equal(batch.first, options->start + done);
        expect_batch(&batch, options->split);
        for (int64_t i = 0; i < batch.count && done < count; i++) indices[done++] = batch.indices[i];
    }
    tu_loader_free(loader);
}

/* ---- The permutation ---- */

static void every_index_occurs_once_per_epoch(void **state) {
    (void)state;
    for (int64_t count = 1; count < 300; count++) {
        tu__permutation order = tu__permutation_of(7, 3, count);
        bool seen[300] = {false};
        for (int64_t i = 0; i < count; i++) {
            int64_t index = tu__permute(&order, i);
            assert_in_range(index, 0, count - 1);
            assert_false(seen[index]);
            seen[index] = true;
        }
    }
}

/* Runs of earlier versions must continue with the same samples. */
static void the_order_is_stable_across_versions(void **state) {
    (void)state;
    static const int64_t known[8] = {25723, 39826, 25390, 49721, 2385, 30917, 15707, 48600};
    tu__permutation order = tu__permutation_of(1, 0, 50000);
    for (int i = 0; i < 8; i++) assert_int_equal(tu__permute(&order, i), known[i]);
}

/* Each index occurs at each position about equally often: 2000 epochs, 10 positions. */
static void positions_are_uniformly_distributed(void **state) {
    (void)state;
    int hits[10][10] = {{0}};
    for (uint64_t epoch = 0; epoch < 2000; epoch++) {
        tu__permutation order = tu__permutation_of(5, epoch, 10);
        for (int64_t i = 0; i < 10; i++) hits[i][tu__permute(&order, i)]++;
    }
    for (int i = 0; i < 10; i++)
        for (int j = 0; j < 10; j++)
            assert_in_range(hits[i][j], 140, 260); /* 200 +- 4.5 standard deviations */
}

/* ---- The loader ---- */

static void samples_do_not_depend_on_the_number_of_threads(void **state) {
    (void)state;
    tu_dataset *set = numbered_images(NULL);
    int64_t expected[5 * TRAIN], got[5 * TRAIN];
    tu_loader_options options = {
        .struct_size = sizeof options, .batch = 8, .seed = 11, .shuffle = true, .threads = -1};
    read_indices(set, &options, 5 * TRAIN, expected);
    for (int threads = 1; threads <= 7; threads += 2) {
        for (int depth = 1; depth <= 9; depth += 4) {
            options.threads = threads;
            options.depth = depth;
            read_indices(set, &options, 5 * TRAIN, got);
            assert_memory_equal(got, expected, sizeof got);
        }
    }
    tu_dataset_free(set);
}

static void a_loader_can_start_at_any_sample(void **state) {
    (void)state;
    tu_dataset *set = numbered_images(NULL);
    int64_t expected[3 * TRAIN], found[3 * TRAIN];
    tu_loader_options options = {.struct_size = sizeof options, .batch = 8, .seed = 2, .shuffle = true};
    read_indices(set, &options, 3 * TRAIN, expected);
    for (int64_t start = 0; start < 3 * TRAIN; start += 31) {
        options.start = start;
        read_indices(set, &options, 3 * TRAIN - start, found);
        assert_memory_equal(found, expected + start, (size_t)(3 * TRAIN - start) * sizeof *found);
    }
    tu_dataset_free(set);
}

static void the_last_batch_of_an_epoch_is_short(void **state) {
    (void)state;
    tu_dataset *set = numbered_images(NULL);
    tu_loader *loader = NULL;
    assert_int_equal(tu_loader_new(set, &loader, .batch = 50, .threads = 2), TU_OK);
    static const int64_t sizes[] = {50, 50, 3, 50, 50, 3};
    for (int i = 0; i < 6; i++) {
        tu_batch batch = TU_SIZED(tu_batch);
        assert_int_equal(tu_loader_next(loader, &batch), TU_OK);
        assert_int_equal(batch.count, sizes[i]);
        assert_int_equal(batch.epoch, i / 3);
        assert_int_equal(batch.indices[0], i % 3 * 50); /* not shuffled: in the order of the data set */
    }
    tu_loader_free(loader);
    tu_dataset_free(set);
}

static void epochs_and_seeds_have_different_orders(void **state) {
    (void)state;
    tu_dataset *set = numbered_images(NULL);
    int64_t one[2 * TRAIN], other[TRAIN];
    tu_loader_options options = {.struct_size = sizeof options, .seed = 1, .shuffle = true};
    read_indices(set, &options, 2 * TRAIN, one);
    assert_memory_not_equal(one, one + TRAIN, TRAIN * sizeof *one);
    options.seed = 2;
    read_indices(set, &options, TRAIN, other);
    assert_memory_not_equal(one, other, TRAIN * sizeof *one);
    tu_dataset_free(set);
}

/* A bootstrap sample contains about a fraction 1 - 1/e of the images; every epoch uses the same sample. */
static void a_bootstrap_sample_has_duplicates_and_is_the_same_every_epoch(void **state) {
    (void)state;
    tu_dataset *set = numbered_images(NULL);
    int64_t sampled[2 * TRAIN], occurrences[2][TRAIN] = {{0}}, other[TRAIN];
    tu_loader_options options = {
        .struct_size = sizeof options, .seed = 5, .shuffle = true, .bootstrap = true};
    read_indices(set, &options, 2 * TRAIN, sampled);
    for (int i = 0; i < 2 * TRAIN; i++) occurrences[i / TRAIN][sampled[i]]++;
    assert_memory_equal(occurrences[0], occurrences[1], sizeof occurrences[0]);
    assert_memory_not_equal(sampled, sampled + TRAIN, TRAIN * sizeof *sampled);
    int distinct = 0;
    for (int i = 0; i < TRAIN; i++) distinct += occurrences[0][i] > 0;
    assert_true(distinct > TRAIN / 2 && distinct < TRAIN * 3 / 4);
    options.seed = 6;
    read_indices(set, &options, TRAIN, other);
    assert_memory_not_equal(sampled, other, TRAIN * sizeof *sampled);
    tu_dataset_free(set);
}

static void indices_only_reads_no_images(void **state) {
    (void)state;
    atomic_bool faulty = false;
    tu_dataset *set = numbered_images(&faulty);
    tu_loader *reader, *index_reader;
    assert_int_equal(tu_loader_new(set, &reader, .batch = 10, .shuffle = true, .seed = 4, .threads = -1),
                     TU_OK);
    assert_int_equal(
        tu_loader_new(set, &index_reader, .batch = 10, .shuffle = true, .seed = 4, .indices_only = true),
        TU_OK);
    for (int i = 0; i < 25; i++) {
        tu_batch a = TU_SIZED(tu_batch), b = TU_SIZED(tu_batch);
        assert_int_equal(tu_loader_next(reader, &a), TU_OK);
        atomic_store(&faulty, true);
        assert_int_equal(tu_loader_next(index_reader, &b), TU_OK);
        atomic_store(&faulty, false);
        assert_true(a.count == b.count && a.epoch == b.epoch && a.first == b.first);
        assert_memory_equal(a.indices, b.indices, (size_t)a.count * sizeof *a.indices);
        assert_memory_equal(a.ordinals, b.ordinals, (size_t)a.count * sizeof *a.ordinals);
        assert_null(b.images);
        assert_null(b.labels);
    }
    tu_loader_free(reader);
    tu_loader_free(index_reader);
    tu_dataset_free(set);
}

static void the_error_of_a_failed_read_is_returned(void **state) {
    (void)state;
    for (int threads = -1; threads <= 3; threads += 2) {
        atomic_bool faulty = false;
        tu_dataset *set = numbered_images(&faulty);
        atomic_store(&faulty, true);
        tu_loader *loader = NULL;
        tu_batch batch = TU_SIZED(tu_batch);
        assert_int_equal(tu_loader_new(set, &loader, .batch = 16, .threads = threads), TU_OK);
        for (int i = 0; i < FAULTY / 16; i++) assert_int_equal(tu_loader_next(loader, &batch), TU_OK);
        for (int i = 0; i < 2; i++) { /* fails again: a batch is not skipped */
            tu_fail(TU_OK, "something else");
            assert_int_equal(tu_loader_next(loader, &batch), TU_IO);
            assert_string_equal(tu_message(), "image 40 cannot be read today");
        }
        tu_loader_free(loader);
        tu_dataset_free(set);
    }
}

static void loaders_can_be_freed_at_any_time(void **state) {
    (void)state;
    tu_dataset *set = numbered_images(NULL);
    for (int batches = 0; batches < 20; batches++) {
        tu_loader *loader = NULL;
        tu_batch batch = TU_SIZED(tu_batch);
        assert_int_equal(tu_loader_new(set, &loader, .batch = 4, .threads = 4, .depth = 3), TU_OK);
        for (int i = 0; i < batches; i++) assert_int_equal(tu_loader_next(loader, &batch), TU_OK);
        tu_loader_free(loader);
    }
    tu_dataset_free(set);
}

static void invalid_options_fail(void **state) {
    (void)state;
    tu_dataset *set = numbered_images(NULL);
    tu_loader *loader = NULL;
    assert_int_equal(tu_loader_new(set, &loader, .batch = -1), TU_INVALID);
    assert_string_equal(tu_message(),
                        "loader: batch of -1: expected a number of samples that fits into memory");
    assert_int_equal(tu_loader_new(set, &loader, .batch = INT64_MAX / 2), TU_INVALID);
    assert_int_equal(tu_loader_new(set, &loader, .start = -5), TU_INVALID);
    assert_int_equal(tu_loader_new(set, &loader, .depth = -1), TU_INVALID);
    assert_int_equal(tu_loader_new(set, &loader, .threads = 5000), TU_INVALID);
    assert_null(loader);
    tu_dataset_free(set);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    tu_dataset *set = numbered_images(NULL);
    int64_t live = tu__alloc_live();
    for (uint64_t n = 1;; n++) {
        tu_loader *loader = NULL;
        tu__alloc_fail_at(n);
        tu_status status = tu_loader_new(set, &loader, .batch = 4, .threads = 2, .depth = 2);
        tu__alloc_fail_at(0);
        if (status == TU_OK) {
            tu_loader_free(loader);
            assert_true(n > 10);
            break;
        }
        assert_int_equal(status, TU_NO_MEMORY);
        assert_int_equal(tu__alloc_live(), live);
    }
    tu_dataset_free(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_occurs_once_per_epoch),
        cmocka_unit_test(the_order_is_stable_across_versions),
        cmocka_unit_test(positions_are_uniformly_distributed),
        cmocka_unit_test(samples_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(a_loader_can_start_at_any_sample),
        cmocka_unit_test(the_last_batch_of_an_epoch_is_short),
        cmocka_unit_test(epochs_and_seeds_have_different_orders),
        cmocka_unit_test(a_bootstrap_sample_has_duplicates_and_is_the_same_every_epoch),
        cmocka_unit_test(indices_only_reads_no_images),
        cmocka_unit_test(the_error_of_a_failed_read_is_returned),
        cmocka_unit_test(loaders_can_be_freed_at_any_time),
        cmocka_unit_test(invalid_options_fail),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
