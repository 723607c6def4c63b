/* Small files that would take gigabytes or minutes: they are read in memory of their own size, or rejected. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jpeglib.h>
#include <zlib.h>

#include "test.h"

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/text.h"
#include "data/tar.h"
#include "io/image.h"
#include "io/safetensors.h"

/* ---- Measuring ---- */

enum { MEBIBYTE = 1 << 20 };

static size_t peak_memory(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss * 1024;
}

/* Runs `work` in a process of its own and expects `expected`, with at most 64 MiB + 3 times `size` of memory. */
static void expect_modest(tu_status (*work)(const tu__text *bytes), const tu__text *bytes,
                          tu_status expected) {
    assert_false(bytes->failed);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        size_t before = peak_memory(), limit = 64 * (size_t)MEBIBYTE + 3 * bytes->length;
        tu_status status = work(bytes);
        size_t used = peak_memory() - before;
        if (status != expected)
            fprintf(stderr, "status %d, expected %d: %s\n", status, expected, tu_message());
        if (used > limit)
            fprintf(stderr, "%zu MiB, expected at most %zu\n", used / MEBIBYTE, limit / MEBIBYTE);
        _exit(status != expected || used > limit);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- Pictures ---- */

static tu_status decode(const tu__text *bytes) {
    tu__image image;
    TU_TRY(tu__image_decode("bomb", bytes->data, bytes->length, 3, &image));
    tu__image_free(&image);
    return TU_OK;
}

static void append_u32(tu__text *text, uint32_t value) {
    const char bytes[4] = {(char)(value >> 24), (char)(value >> 16), (char)(value >> 8), (char)value};
    tu__text_append(text, bytes, 4);
}

static void append_chunk(tu__text *png, const char *type, const char *bytes, size_t size) {
    append_u32(png, (uint32_t)size);
    size_t from = png->length;
    tu__text_append(png, type, 4);
    tu__text_append(png, bytes, size);
    append_u32(png,
               (uint32_t)crc32(0, (const unsigned char *)png->data + from, (unsigned)(png->length - from)));
}

/* A PNG file of 4 x 4 pixels with many chunks after its header, each of which is 7.9 MB of compressed letters. */
static void png_with_texts(tu__text *png, const char *type) {
    enum { CHUNKS = 90, TEXT = 7900000, HEADER = 8 + 25 };
    uint8_t pixels[4 * 4 * 3] = {0};
    const tu__image image = {.height = 4, .width = 4, .channels = 3, .pixels = pixels};
    void *plain;
    size_t size;
    assert_int_equal(tu__image_encode_png(&image, &plain, &size), TU_OK);
    unsigned char *letters = malloc(TEXT);
    char chunk[64 + TEXT / 500] = "text\0";
    unsigned long length = sizeof chunk - 6;
    assert_non_null(letters);
    memset(letters, 'a', TEXT);
    assert_int_equal(compress2((unsigned char *)chunk + 6, &length, letters, TEXT, 9), Z_OK);
    free(letters);
    tu__text_append(png, plain, HEADER);
    for (int i = 0; i < CHUNKS; i++) append_chunk(png, type, chunk, 6 + length);
    tu__text_append(png, (char *)plain + HEADER, size - HEADER);
    tu__free(plain);
}

static void compressed_texts_of_a_png_are_skipped(void **state) {
    (void)state;
    static const char *const types[] = {"zTXt", "iCCP"};
    for (size_t i = 0; i < 2; i++) {
        tu__text png = {0};
        png_with_texts(&png, types[i]);
        expect_modest(decode, &png, TU_OK);
        tu__text_free(&png);
    }
}

/* Returns a script of 499 scans: the bits of each coefficient one by one. */
static int write_scans(jpeg_scan_info *scans) {
    enum { SCANS = 499, BITS = 8 };
    int count = 0;
    for (int bit = BITS - 1; bit >= 0; bit--)
        scans[count++] = (jpeg_scan_info){.comps_in_scan = 1, .Ah = bit == BITS - 1 ? 0 : bit + 1, .Al = bit};
    for (int k = 1; k < 64; k++)
        for (int bit = BITS - 1; bit >= 0 && count < SCANS; bit--)
            scans[count++] = (jpeg_scan_info){
                .comps_in_scan = 1, .Ss = k, .Se = k, .Ah = bit == BITS - 1 ? 0 : bit + 1, .Al = bit};
    return count;
}

static void a_jpeg_with_too_many_scans_for_its_size_is_rejected(void **state) {
    (void)state;
    enum { SIDE = 1600 };
    jpeg_scan_info scans[512] = {0};
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL, row[SIDE] = {0};
    unsigned long size = 0;
    JSAMPROW rows[] = {row};
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &bytes, &size);
    jpeg.image_width = jpeg.image_height = SIDE;
    jpeg.input_components = 1;
    jpeg.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&jpeg);
    jpeg.scan_info = scans;
    jpeg.num_scans = write_scans(scans);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < SIDE) jpeg_write_scanlines(&jpeg, rows, 1);
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    const tu__text text = {.data = (char *)bytes, .length = size};
    assert_int_equal(decode(&text), TU_INVALID);
    assert_non_null(strstr(tu_message(), "more than 419 scans of 1600x1600 pixels"));
    free(bytes);
}

/* ---- Headers ---- */

static tu_status read_header(const tu__text *bytes) {
    tu__safetensors file;
    TU_TRY(tu__safetensors_parse("bomb", bytes->data, bytes->length, &file));
    tu__safetensors_close(&file);
    return TU_OK;
}

/* Appends the header after its length, and as many bytes of data. */
static void put_header(tu__text *file, const tu__text *header, size_t data) {
    static const char zeros[4096];
    uint64_t length = header->length;
    tu__text_append(file, (const char *)&length, sizeof length);
    tu__text_append(file, header->data, header->length);
    for (size_t left = data; left > 0; left -= left < sizeof zeros ? left : sizeof zeros)
        tu__text_append(file, zeros, left < sizeof zeros ? left : sizeof zeros);
}

enum { HEADER = 20 * MEBIBYTE };

static void a_long_shape_takes_no_memory(void **state) {
    (void)state;
    tu__text header = {0}, file = {0};
    tu__text_printf(&header, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1");
    while (header.length < HEADER) tu__text_append(&header, ",1", 2);
    tu__text_printf(&header, "],\"data_offsets\":[0,4]}}");
    put_header(&file, &header, 4);
    tu__text_free(&header);
    expect_modest(read_header, &file, TU_CORRUPT);
    tu__text_free(&file);
}

static void many_tensors_take_memory_like_their_names(void **state) {
    (void)state;
    tu__text header = {0}, file = {0};
    size_t count = 0;
    for (; header.length < HEADER; count++)
        tu__text_printf(&header, "%c\"%zx\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                        count ? ',' : '{', count, count, count + 1);
    tu__text_append(&header, "}", 1);
    put_header(&file, &header, count);
    tu__text_free(&header);
    expect_modest(read_header, &file, TU_OK);
    tu__text_free(&file);
}

static tu_status parse_json(const tu__text *text) {
    tu__arena arena = {.purpose = "a test"};
    const tu__json_value *value;
    tu_status status = tu__json_parse(&arena, "bomb", text->data, text->length, &value);
    tu__arena_free(&arena);
    return status;
}

static void a_text_of_short_values_is_rejected(void **state) {
    (void)state;
    static const char *const values[] = {"1,", "[],", "{},", "\"\","};
    for (size_t i = 0; i < 4; i++) {
        tu__text text = {0};
        tu__text_append(&text, "[", 1);
        while (text.length < HEADER) tu__text_printf(&text, "%s", values[i]);
        tu__text_append(&text, "1]", 2);
        expect_modest(parse_json, &text, TU_CORRUPT);
        tu__text_free(&text);
    }
}

/* ---- Archives ---- */

/* Writes the header of a member of `size` bytes. */
static void write_member(gzFile file, const char *name, unsigned long long size) {
    char block[512] = "";
    unsigned sum = 0;
    snprintf(block, 100, "%s", name);
    snprintf(block + 124, 12, "%011llo", size);
    memset(block + 148, ' ', 8);
    block[156] = '0';
    for (int i = 0; i < 512; i++) sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    gzwrite(file, block, sizeof block);
}

static void members_of_an_archive_have_a_limit(void **state) {
    (void)state;
    static const char *const names[] = {"wanted", NULL};
    static const struct {
        const char *name, *reason;
        unsigned long long size;
    } rows[] = {{"wanted", "'wanted' in", 1ULL << 29}, {"other", "contains more than 2 GiB", 1ULL << 32}};
    char folder[] = "/tmp/tutti-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.tar.gz", folder);
    for (size_t i = 0; i < 2; i++) {
        gzFile file = gzopen(path, "wb");
        assert_non_null(file);
        write_member(file, rows[i].name, rows[i].size);
        gzclose(file);
        assert_int_equal(tu__tar_extract(path, folder, names, NULL), TU_CORRUPT);
        assert_non_null(strstr(tu_message(), rows[i].reason));
    }
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_texts_of_a_png_are_skipped),
        cmocka_unit_test(a_jpeg_with_too_many_scans_for_its_size_is_rejected),
        cmocka_unit_test(a_long_shape_takes_no_memory),
        cmocka_unit_test(many_tensors_take_memory_like_their_names),
        cmocka_unit_test(a_text_of_short_values_is_rejected),
        cmocka_unit_test(members_of_an_archive_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
