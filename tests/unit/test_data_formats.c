/* File formats of data sets: IDX, CIFAR's records, .npy, tar, gzip. Valid files are read, others fail. */
#include "test.h"

#include <math.h>

#include <tutti/data.h>

#include "base/alloc.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/inflate.h"
#include "data/npy.h"
#include "data/tar.h"
#include "data_folder.h"

/* ---- IDX ---- */

static const unsigned char idx_bytes[] = {0, 0, 8, 3, 0, 0,  0,  2,  0,  0,  0,
                                          1, 0, 0, 0, 3, 10, 11, 12, 20, 21, 22};

static void idx_dimensions_are_parsed(void **state) {
    (void)state;
    tu__idx idx;
    assert_int_equal(tu__idx_parse("t", idx_bytes, sizeof idx_bytes, 3, &idx), TU_OK);
    assert_int_equal(idx.dim[0], 2);
    assert_int_equal(idx.dim[1], 1);
    assert_int_equal(idx.dim[2], 3);
    assert_int_equal(idx.elements[3], 20);
}

static void invalid_idx_fails(void **state) {
    (void)state;
    tu__idx idx;
    for (size_t size = 0; size < sizeof idx_bytes; size++)
        assert_int_equal(tu__idx_parse("t", idx_bytes, size, 3, &idx), TU_CORRUPT);
    assert_string_equal(tu_message(), "'t' is truncated or damaged: it has 5 bytes of elements, expected 6");
    assert_int_equal(tu__idx_parse("t", idx_bytes, sizeof idx_bytes, 1, &idx), TU_CORRUPT);
    assert_string_equal(tu_message(), "'t': it has 3 dimensions: expected 1");
    unsigned char floats[sizeof idx_bytes];
    memcpy(floats, idx_bytes, sizeof floats);
    floats[2] = 0x0d;
    assert_int_equal(tu__idx_parse("t", floats, sizeof floats, 3, &idx), TU_CORRUPT);
    /* Sizes whose product overflows. */
    static const unsigned char overflowing[] = {0,   0,   8,   3,   255, 255, 255, 255,
                                                255, 255, 255, 255, 255, 255, 255, 255};
    assert_int_equal(tu__idx_parse("t", overflowing, sizeof overflowing, 3, &idx), TU_CORRUPT);
}

/* ---- CIFAR ---- */

typedef struct last_image {
    int count;
    int32_t label;
    uint8_t first[6];
} last_image;

static tu_status store_image(void *context, const uint8_t *image, int32_t label) {
    last_image *t = context;
    t->count++;
    t->label = label;
    memcpy(t->first, image, sizeof t->first);
    return TU_OK;
}

static void cifar_planes_are_interleaved(void **state) {
    (void)state;
    static uint8_t record[TU__CIFAR_RECORD_BYTES];
    record[0] = 7;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 2; i++) record[1 + c * TU__CIFAR_PIXELS + i] = (uint8_t)(10 * (i + 1) + c);
    last_image t = {0};
    assert_int_equal(tu__cifar_parse("t", record, sizeof record, store_image, &t), TU_OK);
    assert_int_equal(t.count, 1);
    assert_int_equal(t.label, 7);
    assert_memory_equal(t.first, ((uint8_t[]){10, 11, 12, 20, 21, 22}), 6);
    assert_int_equal(tu__cifar_parse("t", record, sizeof record - 1, store_image, &t), TU_CORRUPT);
    assert_int_equal(tu__cifar_parse("t", record, 0, store_image, &t), TU_CORRUPT);
    record[0] = 10;
    assert_int_equal(tu__cifar_parse("t", record, sizeof record, store_image, &t), TU_CORRUPT);
    assert_string_equal(tu_message(), "'t': image 0 has label 10: expected 0 to 9");
}

/* ---- .npy ---- */

/* Builds a .npy file with this version, dictionary and data. */
static size_t make_npy(unsigned char *out, int version, const char *dictionary, const void *data,
                       size_t size) {
    size_t length = strlen(dictionary), field = version == 1 ? 2 : 4, offset = 8;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)version;
    out[7] = 0;
    for (size_t i = 0; i < field; i++) out[offset++] = (unsigned char)(length >> 8 * i);
    memcpy(out + offset, dictionary, length);
    memcpy(out + offset + length, data, size);
    return offset + length + size;
}

static void npy_files_of_every_version_and_type_are_read(void **state) {
    (void)state;
    static const struct {
        const char *type;
        size_t bytes;
        unsigned char data[16];
    } cases[] = {
        {"|u1", 1, {200, 3}},
        {"|i1", 1, {200, 3}},
        {"<i4", 4, {200, 0, 0, 0, 3, 0, 0, 0}},
        {"<i8", 8, {200, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}},
        {"<f4", 4, {0, 0, 0x48, 0x43, 0, 0, 0x40, 0x40}},
        {"<f8", 8, {0, 0, 0, 0, 0, 0, 0x69, 0x40, 0, 0, 0, 0, 0, 0, 8, 0x40}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int version = 1; version <= 3; version++) {
            unsigned char bytes[256];
            char dictionary[128];
            tu__npy npy;
            snprintf(dictionary, sizeof dictionary,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }   \n", cases[i].type);
            size_t size = make_npy(bytes, version, dictionary, cases[i].data, 2 * cases[i].bytes);
            assert_int_equal(tu__npy_parse("t", bytes, size, &npy), TU_OK);
            assert_int_equal(npy.rank, 1);
            assert_int_equal(npy.dim[0], 2);
            assert_true(tu__npy_number(&npy, 0) == (npy.type == TU__NPY_I1 ? -56 : 200));
            assert_true(tu__npy_number(&npy, 1) == 3);
        }
    }
}

static void unsupported_npy_files_fail(void **state) {
    (void)state;
    static const struct {
        const char *dictionary;
        tu_status status;
        const char *message;
    } cases[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", TU_UNSUPPORTED,
         "'t' has elements of type '>f4': expected u1, i1, i4, i8, f4 or f8, little-endian"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}", TU_UNSUPPORTED, NULL},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", TU_UNSUPPORTED,
         "'t' is in Fortran order: expected C order; save numpy.ascontiguousarray(x)"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", TU_CORRUPT, NULL},
        {"{'descr': '<f4', 'fortran_order': False}", TU_CORRUPT, NULL},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", TU_CORRUPT, NULL},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,", TU_CORRUPT, NULL},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", TU_CORRUPT, NULL},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", TU_CORRUPT, NULL},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", TU_CORRUPT,
         "'t' is truncated or damaged: it has 8 bytes of elements, but its shape needs 3 elements of 4 bytes"},
        {"", TU_CORRUPT, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[256];
        tu__npy npy;
        size_t size = make_npy(bytes, 1, cases[i].dictionary, "12345678", 8);
        assert_int_equal(tu__npy_parse("t", bytes, size, &npy), cases[i].status);
        if (cases[i].message) assert_string_equal(tu_message(), cases[i].message);
    }
    unsigned char complete[256];
    tu__npy npy;
    size_t size =
        make_npy(complete, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "12345678", 8);
    for (size_t length = 0; length < size; length++)
        assert_true(tu__npy_parse("t", complete, length, &npy) != TU_OK);
}

/* ---- tar and gzip ---- */

static size_t add_member(unsigned char *archive, size_t offset, const char *name, const char *text) {
    unsigned char *header = archive + offset;
    size_t length = strlen(text);
    memset(header, 0, 512);
    snprintf((char *)header, 100, "%s", name);
    snprintf((char *)header + 124, 12, "%011o", (unsigned)length);
    memset(header + 148, ' ', 8);
    header[156] = '0';
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
    memset(archive + offset + 512, 0, (length + 511) / 512 * 512);
    for (size_t i = 0; i < length; i++) archive[offset + 512 + i] = (unsigned char)text[i];
    return offset + 512 + (length + 511) / 512 * 512;
}

static const char *const names[] = {"a.txt", "b.txt", NULL};

static void only_expected_names_are_extracted(void **state) {
    (void)state;
    static unsigned char archive[8192];
    size_t size = add_member(archive, 0, "set/a.txt", "first");
    size = add_member(archive, size, "../../../escaped", "never");
    size = add_member(archive, size, "/absolute/b.txt", "second");
    memset(archive + size, 0, 1024);
    write_file("t.tar", archive, size + 1024);
    make_folder("out");
    assert_int_equal(tu__tar_extract(in_folder("t.tar"), in_folder("out"), names, NULL), TU_OK);
    assert_int_equal(count_entries("out"), 2);
    size_t length;
    char *text = (char *)read_file("out/b.txt", &length);
    assert_int_equal(length, 6);
    assert_memory_equal(text, "second", 6);
    free(text);
}

static void invalid_archives_fail(void **state) {
    (void)state;
    static unsigned char archive[8192];
    size_t size = add_member(archive, 0, "a.txt", "first");
    memset(archive + size, 0, 1024);
    make_folder("bad");
    write_file("one.tar", archive, size + 1024);
    assert_int_equal(tu__tar_extract(in_folder("one.tar"), in_folder("bad"), names, NULL), TU_NOT_FOUND);
    assert_non_null(strstr(tu_message(), "'b.txt' is not in "));
    write_file("cut.tar", archive, 700);
    assert_int_equal(tu__tar_extract(in_folder("cut.tar"), in_folder("bad"), names, NULL), TU_CORRUPT);
    write_file("head.tar", archive, 100);
    assert_int_equal(tu__tar_extract(in_folder("head.tar"), in_folder("bad"), names, NULL), TU_CORRUPT);
    archive[0] ^= 1;
    write_file("sum.tar", archive, size + 1024);
    assert_int_equal(tu__tar_extract(in_folder("sum.tar"), in_folder("bad"), names, NULL), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "a header has a wrong checksum"));
    assert_int_equal(tu__tar_extract(in_folder("none.tar"), in_folder("bad"), names, NULL), TU_NOT_FOUND);
}

/* printf 'compressed' | gzip -n */
static const unsigned char gzipped[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03,
                                        0x4b, 0xce, 0xcf, 0x2d, 0x28, 0x4a, 0x2d, 0x2e, 0x4e, 0x4d,
                                        0x01, 0x00, 0x1e, 0x4b, 0x56, 0x97, 0x0a, 0x00, 0x00, 0x00};

static void compressed_files_are_decompressed(void **state) {
    (void)state;
    unsigned char *bytes;
    size_t size;
    write_file("plain", "plain", 5);
    assert_int_equal(tu__inflate_file(in_folder("plain"), 100, &bytes, &size), TU_OK);
    assert_int_equal(size, 5);
    tu__free(bytes);
    write_file("whole.gz", gzipped, sizeof gzipped);
    tu_status status = tu__inflate_file(in_folder("whole.gz"), 100, &bytes, &size);
    if (status == TU_UNSUPPORTED) skip(); /* this build has no zlib */
    assert_int_equal(status, TU_OK);
    assert_int_equal(size, 10);
    assert_memory_equal(bytes, "compressed", 10);
    tu__free(bytes);
    write_file("cut.gz", gzipped, sizeof gzipped - 9);
    assert_int_equal(tu__inflate_file(in_folder("cut.gz"), 100, &bytes, &size), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "cut.gz' is truncated or damaged"));
    assert_int_equal(tu__inflate_file(in_folder("none.gz"), 100, &bytes, &size), TU_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idx_dimensions_are_parsed),
        cmocka_unit_test(invalid_idx_fails),
        cmocka_unit_test(cifar_planes_are_interleaved),
        cmocka_unit_test(npy_files_of_every_version_and_type_are_read),
        cmocka_unit_test(unsupported_npy_files_fail),
        cmocka_unit_test(only_expected_names_are_extracted),
        cmocka_unit_test(invalid_archives_fail),
        cmocka_unit_test(compressed_files_are_decompressed),
    };
    return cmocka_run_group_tests(tests, make_data_folder, remove_data_folder);
}
