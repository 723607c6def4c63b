/* Images: every kind of PNG, a GIF and a WebP decode to their pixels, JPEGs come close, damaged files fail.
 * tests/data/generate_pictures.py created the files and describes their contents. */
#include "test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "io/image.h"

/* ---- Files ---- */

static char *data_path(const char *name) {
    static char path[4096];
    const char *folder = getenv("TUTTI_TEST_DATA"), *here = strrchr(__FILE__, '/');
    if (folder)
        snprintf(path, sizeof path, "%s/pictures/%s", folder, name);
    else
        snprintf(path, sizeof path, "%.*s/../data/pictures/%s", here ? (int)(here - __FILE__) : 1,
                 here ? __FILE__ : ".", name);
    return path;
}

static unsigned char *read_image_file(const char *name, size_t *size) {
    FILE *file = fopen(data_path(name), "rb");
    if (!file) fail_msg("cannot read %s", data_path(name));
    unsigned char *bytes = malloc(65536);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 65536, file);
    fclose(file);
    return bytes;
}

/* Skips the test in a build without the library that the file needs. */
static tu__image load(const char *name, int channels) {
    tu__image image;
    tu_status status = tu__image_load(data_path(name), channels, &image);
    if (status == TU_UNSUPPORTED) {
        assert_non_null(strstr(tu_message(), "-dev and rebuild"));
        skip();
    }
    if (status != TU_OK) fail_msg("%s", tu_message());
    return image;
}

/* ---- Contents of the files ---- */

static int red(int x, int y) {
    (void)y;
    return 50 * x;
}
static int green(int x, int y) {
    (void)x;
    return 100 * y;
}
static int blue(int x, int y) {
    return 10 * (x + y);
}
static int grey(int x, int y) {
    return 20 * x + 60 * y;
}
static int blend_with_black(int sample, int x) {
    return (sample * (255 - 50 * x) + 127) / 255;
}

static void assert_pixel(const char *name, const tu__image *image, int x, int y, int channel, int expected) {
    int found = image->pixels[((int64_t)y * image->width + x) * image->channels + channel];
    if (found != expected)
        fail_msg("%s: pixel (%d,%d).%d is %d, expected %d", name, x, y, channel, found, expected);
}

static void every_kind_of_png_is_decoded(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int channels;
        bool transparent;
    } files[] = {
        {"grey8.png", 1, false},
        {"grey16.png", 1, false},
        {"grey8_interlaced.png", 1, false},
        {"grey_alpha8.png", 1, true},
        {"grey_alpha16.png", 1, true},
        {"colour8.png", 3, false},
        {"colour16.png", 3, false},
        {"colour8_interlaced.png", 3, false},
        {"colour_alpha8.png", 3, true},
        {"colour_alpha16_interlaced.png", 3, true},
        {"palette8.png", 3, false},
        {"palette4.png", 3, false},
        {"palette4_interlaced.png", 3, false},
        {"palette_alpha.png", 3, true},
    };
    static int (*const colour[])(int, int) = {red, green, blue};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        tu__image image = load(files[i].name, 0);
        assert_int_equal(image.width, 5);
        assert_int_equal(image.height, 3);
        assert_int_equal(image.channels, files[i].channels);
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 5; x++)
                for (int k = 0; k < files[i].channels; k++) {
                    int sample = files[i].channels == 1 ? grey(x, y) : colour[k](x, y);
                    if (files[i].transparent) sample = blend_with_black(sample, x);
                    assert_pixel(files[i].name, &image, x, y, k, sample);
                }
        tu__image_free(&image);
    }
}

static void grey_of_few_bits_spans_black_to_white(void **state) {
    (void)state;
    static const char *const names[] = {"grey1.png", "grey2.png", "grey4.png"};
    static const int levels[] = {2, 4, 16};
    for (int i = 0; i < 3; i++) {
        tu__image image = load(names[i], 0);
        assert_int_equal(image.channels, 1);
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 5; x++)
                assert_pixel(names[i], &image, x, y, 0, (x + y) % levels[i] * 255 / (levels[i] - 1));
        tu__image_free(&image);
    }
}

static void a_transparent_colour_is_black(void **state) {
    (void)state;
    tu__image image = load("grey_transparent.png", 0);
    assert_pixel("grey", &image, 4, 0, 0, 0); /* 80 is the transparent value, like at (1,1) */
    assert_pixel("grey", &image, 1, 1, 0, 0);
    assert_pixel("grey", &image, 3, 0, 0, 60);
    tu__image_free(&image);
    image = load("colour_transparent.png", 0);
    for (int k = 0; k < 3; k++) assert_pixel("colour", &image, 1, 1, k, 0);
    assert_pixel("colour", &image, 2, 1, 0, 100);
    tu__image_free(&image);
}

static void channels_are_converted(void **state) {
    (void)state;
    tu__image image = load("grey8.png", 3);
    assert_int_equal(image.channels, 3);
    for (int k = 0; k < 3; k++) assert_pixel("grey8.png", &image, 3, 2, k, grey(3, 2));
    tu__image_free(&image);
    image = load("colour8.png", 1);
    assert_int_equal(image.channels, 1);
    assert_pixel("colour8.png", &image, 4, 2, 0, (299 * 200 + 587 * 200 + 114 * 60 + 500) / 1000);
    tu__image_free(&image);
    assert_int_equal(tu__image_load(data_path("colour8.png"), 2, &image), TU_INVALID);
    assert_non_null(strstr(tu_message(), "cannot decode to 2 channels: expected 1, 3, or 0"));
}

static void jpegs_are_decoded_approximately(void **state) {
    (void)state;
    static const char *const names[] = {"colour.jpg", "subsampled.jpg", "progressive.jpg", "oriented.jpg"};
    for (int i = 0; i < 4; i++) {
        tu__image image = load(names[i], 0);
        assert_int_equal(image.width, 40); /* also the one with an EXIF orientation */
        assert_int_equal(image.height, 24);
        assert_int_equal(image.channels, 3);
        for (int y = 0; y < 24; y++)
            for (int x = 0; x < 40; x++) {
                const uint8_t *pixel = image.pixels + 3 * (40 * y + x);
                assert_in_range(pixel[0] + 12 - 6 * x, 0, 24);
                assert_in_range(pixel[1] + 12 - 10 * y, 0, 24);
                assert_in_range(pixel[2] + 12 - 128, 0, 24);
            }
        tu__image_free(&image);
    }
    tu__image image = load("grey.jpg", 0);
    assert_int_equal(image.channels, 1);
    assert_in_range(image.pixels[0], 10, 20); /* 0.114 * 128 */
    tu__image_free(&image);
    image = load("grey.jpg", 3);
    assert_int_equal(image.channels, 3);
    tu__image_free(&image);
}

static void check_exact_colours(const char *name) {
    static int (*const colour[])(int, int) = {red, green, blue};
    tu__image image = load(name, 0);
    assert_int_equal(image.width, 5);
    assert_int_equal(image.height, 3);
    assert_int_equal(image.channels, 3);
    for (int y = 0; y < 3; y++)
        for (int x = 0; x < 5; x++)
            for (int k = 0; k < 3; k++) assert_pixel(name, &image, x, y, k, colour[k](x, y));
    tu__image_free(&image);
}

static void the_first_frame_of_a_gif_is_decoded(void **state) {
    (void)state;
    check_exact_colours("palette.gif");
}

static void a_webp_is_decoded(void **state) {
    (void)state;
    check_exact_colours("colour.webp");
}

static void a_cmyk_jpeg_fails(void **state) {
    (void)state;
    tu__image image = load("grey.jpg", 0);
    tu__image_free(&image);
    assert_int_equal(tu__image_load(data_path("cmyk.jpg"), 0, &image), TU_INVALID);
    assert_non_null(
        strstr(tu_message(), "is a JPEG file in CMYK, which is not supported: convert it to RGB"));
}

/* ---- Invalid files ---- */

static void bytes_that_are_not_an_image_fail(void **state) {
    (void)state;
    tu__image image;
    static const char *const texts[] = {"", "x", "GIF90a", "\x89PN", "\xFF\xD8", "<svg/>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(tu__image_decode("cat.png", texts[i], strlen(texts[i]), 0, &image), TU_INVALID);
        assert_string_equal(tu_message(), "cat.png is not an image: expected a PNG, JPEG, GIF or WebP file");
    }
}

static void a_truncated_image_fails(void **state) {
    (void)state;
    static const char *const names[] = {"colour8.png", "palette4_interlaced.png", "colour.jpg",
                                        "progressive.jpg"};
    for (int i = 0; i < 4; i++) {
        tu__image image = load(names[i], 0);
        tu__image_free(&image);
        size_t size;
        unsigned char *bytes = read_image_file(names[i], &size);
        int64_t live = tu__alloc_live();
        for (size_t cut = 0; cut < size; cut++) {
            unsigned char *block =
                malloc(cut ? cut : 1); /* of exactly this size, to detect reads beyond it */
            assert_non_null(block);
            memcpy(block, bytes, cut);
            if (tu__image_decode("cut", block, cut, 0, &image) != TU_INVALID)
                fail_msg("%s cut to %zu bytes did not fail", names[i], cut);
            assert_null(image.pixels);
            assert_int_equal(strncmp(tu_message(), "cut", 3), 0);
            free(block);
        }
        assert_int_equal(tu__alloc_live(), live);
        free(bytes);
    }
}

static void a_damaged_png_fails(void **state) {
    (void)state;
    tu__image image = load("colour8.png", 0);
    tu__image_free(&image);
    size_t size;
    unsigned char *bytes = read_image_file("colour8.png", &size);
    for (size_t offset = 8; offset < size; offset++) {
        bytes[offset] ^= 0x10;
        if (tu__image_decode("damaged", bytes, size, 0, &image) != TU_INVALID)
            fail_msg("byte %zu was changed without an error", offset);
        bytes[offset] ^= 0x10;
    }
    free(bytes);
}

/* Signature and header of a PNG with this size, with a valid checksum. */
static void an_excessive_size_fails(void **state) {
    (void)state;
    tu__image image = load("colour8.png", 0);
    tu__image_free(&image);
    static const unsigned char large[] =
        "\x89PNG\r\n\x1A\n\0\0\0\x0DIHDR\0\0\x80\0\0\0\x80\0\x08\0\0\0\0\xE1\x17\xFC\xA3"
        "\0\0\0\0IDAT\x35\xAF\x06\x1E";
    assert_int_equal(tu__image_decode("large", large, sizeof large - 1, 0, &image), TU_INVALID);
    assert_string_equal(
        tu_message(),
        "large: an image of 32768x32768 pixels is too large: expected at most 268435456 pixels");
    static const unsigned char hollow[] =
        "\x89PNG\r\n\x1A\n\0\0\0\x0DIHDR\0\0\x20\0\0\0\x20\0\x08\0\0\0\0\x57\xC1\x95\x85"
        "\0\0\0\0IDAT\x35\xAF\x06\x1E";
    assert_int_equal(tu__image_decode("hollow", hollow, sizeof hollow - 1, 0, &image), TU_INVALID);
    assert_non_null(strstr(tu_message(), "hollow: truncated: 45 bytes are too few for 8192x8192 pixels"));
}

static void the_message_names_a_missing_file(void **state) {
    (void)state;
    tu__image image;
    assert_int_equal(tu__image_load("/no-such-folder/cat.png", 0, &image), TU_NOT_FOUND);
    assert_non_null(strstr(tu_message(), "cannot read '/no-such-folder/cat.png': No such file"));
    assert_int_equal(tu__image_load("/tmp", 0, &image), TU_INVALID);
    assert_non_null(strstr(tu_message(), "it is not a regular file"));
}

/* ---- Writing ---- */

static tu__image make_image(uint8_t *pixels, int64_t channels) {
    for (int64_t i = 0; i < 7 * 11 * channels; i++) pixels[i] = (uint8_t)(i * i);
    return (tu__image){.height = 7, .width = 11, .channels = channels, .pixels = pixels};
}

static void a_written_png_is_read_back(void **state) {
    (void)state;
    for (int64_t channels = 1; channels <= 3; channels += 2) {
        uint8_t pixels[7 * 11 * 3];
        tu__image image = make_image(pixels, channels), again;
        void *bytes;
        size_t size;
        tu_status status = tu__image_encode_png(&image, &bytes, &size);
        if (status == TU_UNSUPPORTED) skip();
        assert_int_equal(status, TU_OK);
        assert_int_equal(tu__image_decode("again", bytes, size, 0, &again), TU_OK);
        assert_int_equal(again.width, 11);
        assert_int_equal(again.height, 7);
        assert_int_equal(again.channels, channels);
        assert_memory_equal(again.pixels, pixels, (size_t)(7 * 11 * channels));
        tu__image_free(&again);
        tu__free(bytes);
    }
    void *bytes;
    size_t size;
    assert_int_equal(
        tu__image_encode_png(&(tu__image){.height = 1, .width = 0, .channels = 1}, &bytes, &size),
        TU_INVALID);
    assert_int_equal(
        tu__image_encode_png(&(tu__image){.height = 1, .width = 1, .channels = 2}, &bytes, &size),
        TU_INVALID);
    assert_non_null(strstr(tu_message(), "1x1 pixels and 2 channels"));
}

static tu_status load_all_kinds(void) {
    static const char *const names[] = {"colour_alpha16_interlaced.png", "palette8.png", "grey.jpg",
                                        "colour.jpg"};
    tu__image image;
    for (int i = 0; i < 4; i++) {
        TU_TRY(tu__image_load(data_path(names[i]), 3, &image));
        void *bytes;
        size_t size;
        tu_status status = tu__image_encode_png(&image, &bytes, &size);
        tu__free(bytes);
        tu__image_free(&image);
        if (status != TU_OK) return status;
    }
    return TU_OK;
}

static void running_out_of_memory_is_reported(void **state) {
    (void)state;
    if (load_all_kinds() == TU_UNSUPPORTED) skip();
    int64_t live = tu__alloc_live();
    uint64_t n = 1;
    for (tu_status status = TU_NO_MEMORY; status != TU_OK; n++) {
        tu__alloc_fail_at(n);
        status = load_all_kinds();
        tu__alloc_fail_at(0);
        if (status != TU_OK && status != TU_NO_MEMORY) fail_msg("allocation %d: %s", (int)n, tu_message());
        assert_int_equal(tu__alloc_live(), live);
    }
    assert_true(n > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_png_is_decoded),
        cmocka_unit_test(grey_of_few_bits_spans_black_to_white),
        cmocka_unit_test(a_transparent_colour_is_black),
        cmocka_unit_test(channels_are_converted),
        cmocka_unit_test(jpegs_are_decoded_approximately),
        cmocka_unit_test(the_first_frame_of_a_gif_is_decoded),
        cmocka_unit_test(a_webp_is_decoded),
        cmocka_unit_test(a_cmyk_jpeg_fails),
        cmocka_unit_test(bytes_that_are_not_an_image_fail),
        cmocka_unit_test(a_truncated_image_fails),
        cmocka_unit_test(a_damaged_png_fails),
        cmocka_unit_test(an_excessive_size_fails),
        cmocka_unit_test(the_message_names_a_missing_file),
        cmocka_unit_test(a_written_png_is_read_back),
        cmocka_unit_test(running_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
