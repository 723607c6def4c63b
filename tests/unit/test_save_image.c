/* Saving images of a data set as PNG: u8 pixels are unchanged, f32 pixels are rescaled, other channel counts fail. */
#include "test.h"

#include <math.h>

#include <tutti/data.h>

#include "data_folder.h"
#include "io/image.h"

static tu_status read_numbers(void *context, tu_split split, int64_t index, void *image, int32_t *label) {
    const float numbers[4] = {-1, 0, 3, split == TU_TEST ? NAN : 0};
    (void)context, (void)index;
    memcpy(image, numbers, sizeof numbers);
    *label = 0;
    return TU_OK;
}

/* Creates a data set of four f32 pixels per image: -1, 0, 3 and, in the test split, NaN. */
static tu_dataset *new_float_set(int64_t width, int64_t channels) {
    tu_dataset *set = NULL;
    tu_source source = {.struct_size = sizeof source,
                        .name = "numbers",
                        .count = {1, 1},
                        .height = 2,
                        .width = width,
                        .channels = channels,
                        .dtype = TU_F32,
                        .classes = 1,
                        .read = read_numbers};
    assert_int_equal(tu_dataset_from(&source, &set), TU_OK);
    return set;
}

static void u8_pixels_are_unchanged(void **state) {
    (void)state;
    tu_dataset *set = NULL;
    uint8_t stored[32 * 32 * 3];
    int32_t label;
    tu__image image;
    assert_int_equal(tu_dataset_open("generated", &set), TU_OK);
    assert_int_equal(tu_dataset_read(set, TU_TEST, 17, stored, &label), TU_OK);
    assert_int_equal(tu_dataset_save_image(set, TU_TEST, 17, in_folder("17.png")), TU_OK);
    assert_int_equal(tu__image_load(in_folder("17.png"), 0, &image), TU_OK);
    assert_int_equal(image.height, 32);
    assert_int_equal(image.width, 32);
    assert_int_equal(image.channels, 3);
    assert_memory_equal(image.pixels, stored, sizeof stored);
    tu__image_free(&image);
    tu_dataset_free(set);
}

static void f32_pixels_are_rescaled(void **state) {
    (void)state;
    tu_dataset *set = new_float_set(2, 1);
    tu__image image;
    assert_int_equal(tu_dataset_save_image(set, TU_TEST, 0, in_folder("numbers.png")), TU_OK);
    assert_int_equal(tu__image_load(in_folder("numbers.png"), 0, &image), TU_OK);
    const uint8_t expected[4] = {0, 64, 255, 0};
    assert_memory_equal(image.pixels, expected, sizeof expected);
    tu__image_free(&image);
    tu_dataset_free(set);
}

static void expect_error(const tu_dataset *set, int64_t index, const char *path, tu_status status,
                         const char *part) {
    assert_int_equal(tu_dataset_save_image(set, TU_TEST, index, path), status);
    if (!strstr(tu_message(), part)) fail_msg("'%s' is not in: %s", part, tu_message());
}

static void a_failed_save_leaves_no_file(void **state) {
    (void)state;
    tu_dataset *grey = new_float_set(2, 1), *pairs = new_float_set(1, 2);
    make_folder("empty");
    expect_error(pairs, 0, in_folder("empty/a.png"), TU_UNSUPPORTED, "cannot save images with 2 channels");
    expect_error(grey, 1, in_folder("empty/a.png"), TU_INVALID, "image 1 of the test split");
    expect_error(grey, 0, in_folder("none/a.png"), TU_IO, "none/a.png");
    assert_int_equal(count_entries("empty"), 0);
    tu_dataset_free(grey);
    tu_dataset_free(pairs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(u8_pixels_are_unchanged),
        cmocka_unit_test(f32_pixels_are_rescaled),
        cmocka_unit_test(a_failed_save_leaves_no_file),
    };
    return cmocka_run_group_tests(tests, make_data_folder, remove_data_folder);
}
