/* tu_npy_load and tu_npy_save. test_data_formats.c tests the parser. */
#include "temp_folder.h"

#include <tutti/data.h>

static tu_type type_of(tu_dtype dtype, tu_shape shape) {
    return (tu_type){dtype, shape};
}

static size_t read_all(const char *path, char *bytes, size_t capacity) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(bytes, 1, capacity, file);
    fclose(file);
    return size;
}

static void a_small_array_has_known_bytes(void **state) {
    (void)state;
    static const float numbers[6] = {1, 2, 3, 4, 5, 6};
    static const char header[] =
        "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    folder f = new_folder("a.npy");
    char bytes[512];
    assert_int_equal(tu_npy_save(f.file, type_of(TU_F32, TU_SHAPE(2, 3)), numbers), TU_OK);
    assert_int_equal(read_all(f.file, bytes, sizeof bytes), 128 + sizeof numbers);
    assert_memory_equal(bytes, header, sizeof header - 1);
    for (size_t i = sizeof header - 1; i < 127; i++) assert_int_equal(bytes[i], ' ');
    assert_int_equal(bytes[127], '\n');
    assert_memory_equal(bytes + 128, numbers, sizeof numbers);
    remove_folder(&f);
}

static void arrays_are_read_back(void **state) {
    (void)state;
    static const tu_dtype dtypes[] = {TU_U8, TU_I8, TU_I32, TU_I64, TU_F32, TU_F64};
    static const unsigned char bytes[8 * 6] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const tu_shape shapes[] = {TU_SCALAR, TU_SHAPE(6), TU_SHAPE(3, 2), TU_SHAPE(1, 1, 1, 1, 1, 1, 2, 3)};
    folder f = new_folder("a.npy");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            tu_type type = type_of(dtypes[i], shapes[k]), read;
            void *data;
            assert_int_equal(tu_npy_save(f.file, type, bytes), TU_OK);
            assert_int_equal(tu_npy_load(f.file, &read, &data), TU_OK);
            assert_int_equal(read.dtype, type.dtype);
            assert_true(tu_shape_equal(read.shape, type.shape));
            assert_memory_equal(data, bytes, tu_type_bytes(type));
            tu_bytes_free(data);
        }
    remove_folder(&f);
}

static void bf16_is_written_as_f32(void **state) {
    (void)state;
    enum { COUNT = 10000 }; /* more than are converted at once */
    static uint16_t numbers[COUNT];
    folder f = new_folder("a.npy");
    for (int i = 0; i < COUNT; i++) numbers[i] = (uint16_t)(0x3f00 + i % 256);
    assert_int_equal(tu_npy_save(f.file, type_of(TU_BF16, TU_SHAPE(COUNT)), numbers), TU_OK);
    tu_type type;
    void *data;
    assert_int_equal(tu_npy_load(f.file, &type, &data), TU_OK);
    assert_int_equal(type.dtype, TU_F32);
    for (int i = 0; i < COUNT; i++) {
        float expected;
        tu_f32_from_bf16(&numbers[i], 1, &expected);
        assert_true(((const float *)data)[i] == expected);
    }
    tu_bytes_free(data);
    remove_folder(&f);
}

static void other_files_are_refused(void **state) {
    (void)state;
    folder f = new_folder("a.npy");
    tu_type type;
    void *data;
    assert_int_equal(tu_npy_load(f.file, &type, &data), TU_NOT_FOUND);
    assert_null(data);
    assert_int_equal(tu_npy_load(f.path, &type, &data), TU_INVALID);
    static const uint16_t half[2] = {0};
    assert_int_equal(tu_npy_save(f.file, type_of(TU_F16, TU_SHAPE(2)), half), TU_OK);
    assert_int_equal(tu_npy_load(f.file, &type, &data), TU_UNSUPPORTED);
    FILE *file = fopen(f.file, "wb");
    assert_non_null(file);
    fputs("text", file);
    fclose(file);
    assert_int_equal(tu_npy_load(f.file, &type, &data), TU_CORRUPT);
    assert_int_equal(tu_npy_save(f.file, type_of(TU_F32, TU_SHAPE(-1)), half), TU_INVALID);
    assert_int_equal(tu_npy_save("/no/such/folder/a.npy", type_of(TU_F16, TU_SHAPE(2)), half), TU_IO);
    remove_folder(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_array_has_known_bytes),
        cmocka_unit_test(arrays_are_read_back),
        cmocka_unit_test(bf16_is_written_as_f32),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
