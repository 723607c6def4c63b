/* Data files: a written file is read back, a damaged one fails to open, a failed write leaves nothing. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>

#include <tutti/data.h>

#include "base/alloc.h"
#include "base/disk.h"
#include "data/data_file.h"
#include "data_folder.h"

enum { TRAIN = 5, TEST = 3, PIXELS = 2 * 3 * 3 };

static const char *const names[] = {"cat", "dog \"rex\"", "\xC3\xBC"};

static tu_dataset_info description(tu_dtype dtype) {
    return (tu_dataset_info){.name = "pets",
                             .origin = "a test",
                             .count = {TRAIN, TEST},
                             .height = 2,
                             .width = 3,
                             .channels = 3,
                             .dtype = dtype,
                             .classes = 3,
                             .class_names = names};
}

static void fill_image(int index, uint8_t *image) {
    for (int i = 0; i < PIXELS; i++) image[i] = (uint8_t)(index * 31 + i * 7);
}

static tu_status write_pets(const char *path, int images, const char *digest) {
    tu__data_writer *writer;
    tu_dataset_info info = description(TU_U8);
    TU_TRY(tu__data_writer_new(path, &info, &writer));
    tu_status status = TU_OK;
    for (int i = 0; i < images && status == TU_OK; i++) {
        uint8_t image[PIXELS];
        fill_image(i, image);
        status = tu__data_writer_add(writer, image, i % 3);
    }
    if (status == TU_OK) status = tu__data_writer_finish(writer, digest);
    tu__data_writer_free(writer);
    return status;
}

static void a_written_file_is_read_back(void **state) {
    (void)state;
    assert_int_equal(write_pets(in_folder("pets.tutti"), TRAIN + TEST, NULL), TU_OK);
    tu_dataset *set = NULL;
    assert_int_equal(tu_dataset_open(in_folder("pets.tutti"), &set), TU_OK);
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    assert_int_equal(tu_dataset_describe(set, &info), TU_OK);
    assert_string_equal(info.name, "pets");
    assert_int_equal(info.count[TU_TRAIN], TRAIN);
    assert_int_equal(info.count[TU_TEST], TEST);
    assert_int_equal(info.classes, 3);
    for (int i = 0; i < 3; i++) assert_string_equal(info.class_names[i], names[i]);
    for (int i = 0; i < TRAIN + TEST; i++) {
        uint8_t image[PIXELS], expected[PIXELS];
        int32_t label;
        tu_split split = i < TRAIN ? TU_TRAIN : TU_TEST;
        assert_int_equal(tu_dataset_read(set, split, i < TRAIN ? i : i - TRAIN, image, &label), TU_OK);
        fill_image(i, expected);
        assert_memory_equal(image, expected, PIXELS);
        assert_int_equal(label, i % 3);
    }
    assert_int_equal(tu_dataset_verify(set), TU_OK);
    assert_int_equal(tu_dataset_read(set, TU_TRAIN, TRAIN, (uint8_t[PIXELS]){0}, &(int32_t){0}), TU_INVALID);
    assert_int_equal(tu_dataset_read(set, TU_TEST, -1, (uint8_t[PIXELS]){0}, &(int32_t){0}), TU_INVALID);
    tu_dataset_free(set);
}

/* Known values: a channel with equal numbers of 0 and 255. */
static void means_are_computed_from_the_training_images(void **state) {
    (void)state;
    tu_dataset_info info = description(TU_U8);
    info.count[TU_TRAIN] = 2;
    info.count[TU_TEST] = 1;
    tu__data_writer *writer = NULL;
    assert_int_equal(tu__data_writer_new(in_folder("two.tutti"), &info, &writer), TU_OK);
    static const uint8_t fills[3] = {0, 255, 77};
    for (int n = 0; n < 3; n++) {
        uint8_t image[PIXELS];
        for (int i = 0; i < PIXELS; i++) image[i] = i % 3 == 1 ? fills[n] : 51;
        assert_int_equal(tu__data_writer_add(writer, image, 0), TU_OK);
    }
    assert_int_equal(tu__data_writer_finish(writer, NULL), TU_OK);
    tu__data_writer_free(writer);
    tu_dataset *set = NULL;
    assert_int_equal(tu__data_file_open(in_folder("two.tutti"), &set), TU_OK);
    info = TU_SIZED(tu_dataset_info);
    assert_int_equal(tu_dataset_describe(set, &info), TU_OK);
    assert_true(info.mean[0] == 0.2 && info.deviation[0] == 0);
    assert_true(info.mean[1] == 0.5 && info.deviation[1] == 0.5);
    tu_dataset_free(set);
}

static void invalid_labels_counts_and_digests_leave_no_file(void **state) {
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("none.tutti"));
    int before = count_entries(".");
    assert_int_equal(write_pets(path, TRAIN + TEST - 1, NULL), TU_CORRUPT);
    assert_string_equal(tu_message(), "data set 'pets' has 7 images: expected 8");
    assert_int_equal(write_pets(path, TRAIN + TEST + 1, NULL), TU_CORRUPT);
    assert_int_equal(write_pets(path, TRAIN + TEST, "00"), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "expected 00"));
    tu__data_writer *writer = NULL;
    tu_dataset_info info = description(TU_U8);
    assert_int_equal(tu__data_writer_new(path, &info, &writer), TU_OK);
    assert_int_equal(tu__data_writer_add(writer, (uint8_t[PIXELS]){0}, 3), TU_CORRUPT);
    tu__data_writer_free(writer);
    assert_int_equal(count_entries("."), before);
}

/* Flips every byte in turn: the file does not open. If only pixels or labels differ, their digest does; padding is not
 * covered. */
static void a_changed_byte_is_detected(void **state) {
    (void)state;
    assert_int_equal(write_pets(in_folder("whole.tutti"), TRAIN + TEST, NULL), TU_OK);
    size_t size;
    int found = 0;
    unsigned char *bytes = read_file("whole.tutti", &size);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x40;
        write_file("flipped.tutti", bytes, size);
        bytes[i] ^= 0x40;
        tu_dataset *set = NULL;
        tu_status status = tu__data_file_open(in_folder("flipped.tutti"), &set);
        if (status == TU_OK) {
            tu_dataset_free(set);
            continue;
        }
        assert_true(status == TU_CORRUPT || status == TU_UNSUPPORTED);
        assert_non_null(strstr(tu_message(), "flipped.tutti"));
        found += strstr(tu_message(), "images and labels have SHA-256") != NULL;
    }
    assert_in_range(found, PIXELS * (TRAIN + TEST), PIXELS * (TRAIN + TEST) + 4 * (TRAIN + TEST));
    free(bytes);
}

static void a_truncated_file_fails(void **state) {
    (void)state;
    assert_int_equal(write_pets(in_folder("long.tutti"), TRAIN + TEST, NULL), TU_OK);
    size_t size;
    unsigned char *bytes = read_file("long.tutti", &size);
    for (size_t length = 0; length < size; length += 13) {
        tu_dataset *set = NULL;
        write_file("short.tutti", bytes, length);
        assert_int_equal(tu__data_file_open(in_folder("short.tutti"), &set), TU_CORRUPT);
    }
    free(bytes);
}

/* ---- Failing disk ---- */

static int calls_left;

static bool call_must_fail(void) {
    if (calls_left == 0 || --calls_left > 0) return false;
    errno = ENOSPC;
    return true;
}

static int open_or_fail(int folder, const char *name, int flags, mode_t mode) {
    return call_must_fail() ? -1 : openat(folder, name, flags, mode);
}
static ssize_t write_or_fail(int fd, const void *bytes, size_t size) {
    return call_must_fail() ? -1 : write(fd, bytes, size);
}
static int fsync_or_fail(int fd) {
    return call_must_fail() ? -1 : fsync(fd);
}
static int rename_or_fail(int folder, const char *from, const char *to) {
    return call_must_fail() ? -1 : renameat(folder, from, folder, to);
}
static int remove_file(int folder, const char *name) {
    return unlinkat(folder, name, 0);
}

static void a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    static const tu__disk failing = {.open = open_or_fail,
                                     .write = write_or_fail,
                                     .fsync = fsync_or_fail,
                                     .close = close,
                                     .rename = rename_or_fail,
                                     .unlink = remove_file,
                                     .truncate = ftruncate,
                                     .mkdir = mkdirat};
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("kept.tutti"));
    assert_int_equal(write_pets(path, TRAIN + TEST, NULL), TU_OK);
    int before = count_entries("."), n = 1;
    for (tu__disk_replace(&failing);; n++) {
        calls_left = n;
        tu_status status = write_pets(path, TRAIN + TEST, NULL);
        if (calls_left > 0) break; /* the write made fewer than n calls */
        assert_int_equal(status, TU_IO);
        assert_non_null(strstr(tu_message(), "No space left"));
        assert_int_equal(count_entries("."), before);
        tu_dataset *set = NULL;
        assert_int_equal(tu__data_file_open(path, &set), TU_OK);
        assert_int_equal(tu_dataset_verify(set), TU_OK);
        tu_dataset_free(set);
    }
    calls_left = 0;
    tu__disk_replace(NULL);
    assert_true(n > 4);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    int64_t live = tu__alloc_live();
    for (uint64_t n = 1;; n++) {
        tu_dataset *set = NULL;
        tu__alloc_fail_at(n);
        tu_status status = write_pets(in_folder("lean.tutti"), TRAIN + TEST, NULL);
        if (status == TU_OK) status = tu__data_file_open(in_folder("lean.tutti"), &set);
        tu__alloc_fail_at(0);
        tu_dataset_free(set);
        assert_int_equal(tu__alloc_live(), live);
        if (status == TU_OK) break;
        assert_true(n < 200);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_file_is_read_back),
        cmocka_unit_test(means_are_computed_from_the_training_images),
        cmocka_unit_test(invalid_labels_counts_and_digests_leave_no_file),
        cmocka_unit_test(a_changed_byte_is_detected),
        cmocka_unit_test(a_truncated_file_fails),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_data_folder, remove_data_folder);
}
