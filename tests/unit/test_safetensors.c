/* safetensors files: exact bytes, reading back, and errors. */
#include "fake_disk.h"

#include "base/alloc.h"
#include "base/text.h"
#include "io/safetensors.h"
#include "own_folder.h"

static size_t read_all(const char *path, unsigned char *bytes, size_t capacity) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(bytes, 1, capacity, file);
    fclose(file);
    return size;
}

static tu_type type_of(tu_dtype dtype, tu_shape shape) {
    return (tu_type){dtype, shape};
}

/* ---- Writing ---- */

static const float weights[2] = {1.0F, -2.0F};
static const int64_t step = 258;
static const uint8_t mask[3] = {1, 0, 1};

static tu_status save_known(const char *path) {
    const tu__named_tensor tensors[] = {
        {"mask", type_of(TU_U8, TU_SHAPE(3)), mask},
        {"b\"w", type_of(TU_F32, TU_SHAPE(1, 2)), weights},
        {"step", type_of(TU_I64, TU_SCALAR), &step},
        {"a", type_of(TU_F32, TU_SHAPE(2)), weights},
    };
    const tu__metadata metadata[] = {{"format", "pt"}, {"made by", "Tutti"}};
    return tu__safetensors_save(path, 4, tensors, 2, metadata);
}

static void a_small_file_has_known_bytes(void **state) {
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\",\"made by\":\"Tutti\"},"
                                 "\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                                 "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
                                 "\"b\\\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[16,24]},"
                                 "\"mask\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[24,27]}}    ";
    static const unsigned char data[] = {2, 1,    0, 0, 0,    0,    0, 0, 0, 0,    0x80, 0x3F, 0, 0,
                                         0, 0xC0, 0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0, 1,    0,    1};
    folder f = new_folder("a.safetensors");
    unsigned char bytes[1024];
    assert_int_equal(save_known(f.file), TU_OK);
    size_t size = read_all(f.file, bytes, sizeof bytes), length = sizeof header - 1;
    assert_int_equal(length % 8, 0);
    assert_int_equal(size, 8 + length + sizeof data);
    assert_int_equal(bytes[0] | bytes[1] << 8, length);
    for (int i = 2; i < 8; i++) assert_int_equal(bytes[i], 0);
    assert_memory_equal(bytes + 8, header, length);
    assert_memory_equal(bytes + 8 + length, data, sizeof data);
    remove_folder(&f);
}

static void a_file_is_read_back(void **state) {
    (void)state;
    folder f = new_folder("a.safetensors");
    tu__safetensors file;
    assert_int_equal(save_known(f.file), TU_OK);
    assert_int_equal(tu__safetensors_open(f.file, &file), TU_OK);
    assert_int_equal(file.tensor_count, 4);
    static const char *const order[] = {"step", "a", "b\"w", "mask"};
    for (size_t i = 0; i < 4; i++) assert_string_equal(file.tensors[i].name, order[i]);
    const tu__named_tensor *t = tu__safetensors_find(&file, "b\"w");
    assert_non_null(t);
    assert_int_equal(t->type.dtype, TU_F32);
    assert_true(tu_shape_equal(t->type.shape, TU_SHAPE(1, 2)));
    assert_memory_equal(t->data, weights, sizeof weights);
    assert_memory_equal(tu__safetensors_find(&file, "step")->data, &step, sizeof step);
    assert_int_equal(tu__safetensors_find(&file, "step")->type.shape.rank, 0);
    assert_string_equal(tu__safetensors_metadata(&file, "made by"), "Tutti");
    assert_null(tu__safetensors_metadata(&file, "nothing"));
    assert_null(tu__safetensors_find(&file, "nothing"));
    assert_non_null(strstr(tu_message(), "has no tensor 'nothing'"));
    tu__safetensors_close(&file);
    tu__safetensors_close(&file);
    remove_folder(&f);
}

static void every_element_type_is_read_back(void **state) {
    (void)state;
    folder f = new_folder("a.safetensors");
    static const unsigned char bytes[8 * 8] = {1, 2, 3, 4, 5, 6, 7, 8};
    tu__named_tensor tensors[TU_DTYPE_COUNT];
    for (int d = 0; d < TU_DTYPE_COUNT; d++)
        tensors[d] =
            (tu__named_tensor){tu_dtype_name((tu_dtype)d), type_of((tu_dtype)d, TU_SHAPE(2, 4)), bytes};
    assert_int_equal(tu__safetensors_save(f.file, TU_DTYPE_COUNT, tensors, 0, NULL), TU_OK);
    tu__safetensors file;
    assert_int_equal(tu__safetensors_open(f.file, &file), TU_OK);
    assert_int_equal(file.tensor_count, TU_DTYPE_COUNT);
    assert_int_equal(file.metadata_count, 0);
    for (int d = 0; d < TU_DTYPE_COUNT; d++) {
        const tu__named_tensor *t = tu__safetensors_find(&file, tu_dtype_name((tu_dtype)d));
        assert_non_null(t);
        assert_int_equal(t->type.dtype, d);
        assert_memory_equal(t->data, bytes, tu_type_bytes(t->type));
        assert_int_equal((uintptr_t)t->data % tu_dtype_size((tu_dtype)d), 0);
    }
    tu__safetensors_close(&file);
    remove_folder(&f);
}

static void a_file_without_tensors_is_valid(void **state) {
    (void)state;
    folder f = new_folder("a.safetensors");
    tu__safetensors file;
    unsigned char bytes[32];
    assert_int_equal(tu__safetensors_save(f.file, 0, NULL, 0, NULL), TU_OK);
    assert_int_equal(read_all(f.file, bytes, sizeof bytes), 16);
    assert_memory_equal(bytes + 8, "{}      ", 8);
    assert_int_equal(tu__safetensors_open(f.file, &file), TU_OK);
    assert_int_equal(file.tensor_count, 0);
    tu__safetensors_close(&file);
    remove_folder(&f);
}

static void invalid_tensors_and_metadata_fail_to_save(void **state) {
    (void)state;
    folder f = new_folder("a.safetensors");
    tu_type type = type_of(TU_U8, TU_SHAPE(1));
    const tu__named_tensor twice[] = {
        {"a", type, mask}, {"b", type, mask}, {"a", type_of(TU_BOOL, TU_SHAPE(1)), mask}};
    assert_int_equal(tu__safetensors_save(f.file, 3, twice, 0, NULL), TU_INVALID);
    assert_non_null(strstr(tu_message(), "two tensors have the name 'a'"));
    assert_int_equal(
        tu__safetensors_save(f.file, 1, &(tu__named_tensor){"__metadata__", type, mask}, 0, NULL),
        TU_INVALID);
    assert_int_equal(tu__safetensors_save(f.file, 1, &(tu__named_tensor){"\xFF", type, mask}, 0, NULL),
                     TU_INVALID);
    const tu__metadata same[] = {{"k", "1"}, {"k", "2"}};
    assert_int_equal(tu__safetensors_save(f.file, 0, NULL, 2, same), TU_INVALID);
    assert_non_null(strstr(tu_message(), "the metadata has the key 'k' twice"));
    assert_int_equal(access(f.file, F_OK), -1);
    assert_int_equal(tu__safetensors_save("/no-such-folder/x", 0, NULL, 0, NULL), TU_IO);
    remove_folder(&f);
}

/* After any failed call, either the old or the new file is complete. */
static void a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    folder f = new_folder("a.safetensors");
    assert_int_equal(tu__safetensors_save(f.file, 0, NULL, 0, NULL), TU_OK);
    for (unsigned nth = 1;; nth++) {
        fake_disk_fail_at(nth, ENOSPC);
        tu_status status = save_known(f.file);
        bool reached = fake_disk_calls >= nth;
        fake_disk_remove();
        tu__safetensors file;
        assert_int_equal(tu__safetensors_open(f.file, &file), TU_OK);
        assert_true(file.tensor_count == 0 || file.tensor_count == 4);
        tu__safetensors_close(&file);
        if (!reached) break;
        assert_int_equal(status, TU_IO);
    }
    remove_folder(&f);
}

/* Removes all files from the folder. */
static void empty_folder(const char *path) {
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char name[512];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        unlink(name); /* fails for "." and ".." */
    }
    closedir(dir);
}

/* After a power failure at any call, either the old or the new file is complete; after the save has returned, the new
 * one. */
static void a_power_failure_leaves_the_old_or_the_new_file(void **state) {
    (void)state;
    folder f = new_folder("a.safetensors"), after = new_folder("a.safetensors");
    assert_int_equal(tu__safetensors_save(f.file, 0, NULL, 0, NULL), TU_OK);
    fake_disk_record(f.path);
    assert_int_equal(save_known(f.file), TU_OK);
    fake_disk_remove();
    assert_true(fake_disk_calls > 10);
    for (unsigned n = 0; n <= fake_disk_calls; n++)
        for (int choice = 0; choice < FAKE_DISK_CHOICES; choice++) {
            tu__safetensors file;
            fake_disk_crash(n, choice, after.path);
            if (tu__safetensors_open(after.file, &file) != TU_OK)
                fail_msg("after call %u, choice %d: %s", n, choice, tu_message());
            assert_true(file.tensor_count == 4 || (file.tensor_count == 0 && n < fake_disk_calls));
            tu__safetensors_close(&file);
            empty_folder(after.path);
        }
    fake_disk_forget();
    remove_folder(&after);
    remove_folder(&f);
}

static void running_out_of_memory_is_reported(void **state) {
    (void)state;
    folder f = new_folder("a.safetensors");
    assert_int_equal(save_known(f.file), TU_OK);
    int64_t live = tu__alloc_live();
    for (int reading = 0; reading < 2; reading++) {
        tu_status status = TU_NO_MEMORY;
        for (uint64_t n = 1; status != TU_OK; n++) {
            tu__safetensors file = {0};
            tu__alloc_fail_at(n);
            status = reading ? tu__safetensors_open(f.file, &file) : save_known(f.file);
            tu__alloc_fail_at(0);
            if (status == TU_OK)
                assert_true(n > 2);
            else
                assert_int_equal(status, TU_NO_MEMORY);
            tu__safetensors_close(&file);
            assert_int_equal(tu__alloc_live(), live);
        }
    }
    remove_folder(&f);
}

/* ---- Reading foreign files ---- */

/* Parses a file with this header and `data` bytes, in a block of exactly that size. */
static tu_status parse(const char *header, size_t data, tu__safetensors *file, unsigned char **block) {
    size_t length = strlen(header);
    *block = calloc(1, 8 + length + data);
    assert_non_null(*block);
    for (int i = 0; i < 8; i++) (*block)[i] = (unsigned char)(length >> (8 * i));
    memcpy(*block + 8, header, length);
    return tu__safetensors_parse("x.safetensors", *block, 8 + length + data, file);
}

static void assert_parse_fails(const char *header, size_t data, const char *expected) {
    tu__safetensors file;
    unsigned char *block;
    tu_status status = parse(header, data, &file, &block);
    if (status != TU_CORRUPT) fail_msg("'%s': status %d", header, status);
    if (!strstr(tu_message(), expected) || !strstr(tu_message(), "x.safetensors"))
        fail_msg("'%s': the message '%s' does not say '%s'", header, tu_message(), expected);
    assert_null(file.contents);
    free(block);
}

static void too_short_files_fail(void **state) {
    (void)state;
    static const unsigned char zeros[16] = {0};
    tu__safetensors file;
    for (size_t size = 0; size < 8; size++) {
        assert_int_equal(tu__safetensors_parse("x", zeros, size, &file), TU_CORRUPT);
        assert_non_null(strstr(tu_message(), "bytes, expected at least 8"));
    }
    assert_int_equal(tu__safetensors_parse("x", zeros, 8, &file), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "does not start with '{'"));
    static const unsigned char large[16] = {1, 0xE1, 0xF5, 5};
    assert_int_equal(tu__safetensors_parse("x", large, 16, &file), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "header size is 100000001 bytes: expected at most 100000000"));
    static const unsigned char largest[16] = {255, 255, 255, 255, 255, 255, 255, 255};
    assert_int_equal(tu__safetensors_parse("x", largest, 16, &file), TU_CORRUPT);
    static const unsigned char beyond[16] = {9};
    assert_int_equal(tu__safetensors_parse("x", beyond, 16, &file), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "header size is 9 bytes, but only 8 bytes follow"));
}

#define TENSOR(dtype, shape, offsets)                                                                        \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void invalid_headers_fail(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } cases[] = {
        {" {}", 0, "does not start with '{'"},
        {"[]", 0, "does not start with '{'"},
        {"{", 0, "line 1: the text ends"},
        {"{}x", 0, "expected the end"},
        {"{\"a\":1}", 0, "tensor 'a' has no \"dtype\""},
        {"{\"a\":" TENSOR("F32", "[1]", "[0,4]") ",\"a\":" TENSOR("F32", "[1]", "[4,8]") "}", 8,
         "occurs twice"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no \"dtype\" string"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no \"shape\" (a list of integers)"},
        {"{\"a\":" TENSOR("F32", "[-1]", "[0,4]") "}", 4, "no \"shape\""},
        {"{\"a\":" TENSOR("F32", "[1.0]", "[0,4]") "}", 4, "no \"shape\""},
        {"{\"a\":" TENSOR("F32", "[1]", "[0]") "}", 4, "no \"data_offsets\" (a list of two integers)"},
        {"{\"a\":" TENSOR("F32", "[1]", "[0,4,8]") "}", 4, "no \"data_offsets\""},
        {"{\"a\":" TENSOR("F32", "[1]", "[0,99999999999999999999]") "}", 4, "no \"data_offsets\""},
        {"{\"a\":" TENSOR("F33", "[1]", "[0,4]") "}", 4, "unknown dtype 'F33'"},
        {"{\"a\":" TENSOR("f32", "[1]", "[0,4]") "}", 4, "unknown dtype 'f32'"},
        {"{\"a\":" TENSOR("F32", "[1]", "[4,8]") "}", 8, "has bytes 4 to 8, expected to start at 0"},
        {"{\"a\":" TENSOR("F32", "[1]", "[4,0]") "}", 4, "expected to start at 0"},
        {"{\"a\":" TENSOR("F32", "[1]", "[0,4]") ",\"b\":" TENSOR("F32", "[1]", "[8,12]") "}", 12,
         "'b' has bytes 8 to 12, expected to start at 4"},
        {"{\"a\":" TENSOR("F32", "[1]", "[0,4]") ",\"b\":" TENSOR("F32", "[1]", "[0,4]") "}", 4,
         "expected to start at 4"},
        {"{\"a\":" TENSOR("F32", "[2]", "[0,4]") "}", 4,
         "has 4 bytes, which does not match its dtype and shape"},
        {"{\"a\":" TENSOR("F32", "[4294967296,4294967296]", "[0,0]") "}", 0,
         "does not match its dtype and shape"},
        {"{\"a\":" TENSOR("F4", "[3]", "[0,1]") "}", 1, "does not match its dtype and shape"},
        {"{\"a\":" TENSOR("F32", "[1]", "[0,4]") "}", 5, "its tensors have 4 bytes, but 5 follow"},
        {"{\"a\":" TENSOR("F32", "[1]", "[0,4]") "}", 3, "its tensors have 4 bytes, but 3 follow"},
        {"{}", 1, "its tensors have 0 bytes, but 1 follow"},
        {"{\"__metadata__\":[]}", 0, "its \"__metadata__\" is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "the metadata entry 'a' is not a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_parse_fails(cases[i].header, cases[i].data, cases[i].says);
}

static void unsupported_tensors_fail_only_when_requested(void **state) {
    (void)state;
    static const char header[] = "{\"eight\":" TENSOR("F8_E4M3", "[2]", "[0,2]") //
        ",\"none\":" TENSOR("F32", "[3,0]", "[2,2]")                             //
        ",\"nine\":" TENSOR("U8", "[1,1,1,1,1,1,1,1,1]", "[2,3]")                //
        ",\"good\":{\"dtype\":\"F32\",\"new\":[1],\"shape\":[1],\"data_offsets\":[3,7]}}";
    static const struct {
        const char *name, *says;
    } wanted[] = {
        {"eight", "x.safetensors: tensor 'eight' has dtype F8_E4M3, which Tutti does not support"},
        {"none", "tensor 'none' is empty"},
        {"nine", "tensor 'nine' has 9 dimensions: expected at most 8"},
    };
    tu__safetensors file;
    unsigned char *block;
    assert_int_equal(parse(header, 7, &file, &block), TU_OK);
    assert_int_equal(file.tensor_count, 1);
    assert_ptr_equal(tu__safetensors_find(&file, "good"), file.tensors);
    assert_ptr_equal(file.tensors[0].data, block + 8 + sizeof header - 1 + 3);
    for (size_t i = 0; i < 3; i++) {
        assert_null(tu__safetensors_find(&file, wanted[i].name));
        assert_non_null(strstr(tu_message(), wanted[i].says));
    }
    tu__safetensors_close(&file);
    free(block);
}

static void tensors_may_be_listed_in_any_order(void **state) {
    (void)state;
    tu__safetensors file;
    unsigned char *block;
    assert_int_equal(parse("{\"b\":" TENSOR("U8", "[2]", "[1,3]") ",\"a\":" TENSOR("BOOL", "[]", "[0,1]") "}",
                           3, &file, &block),
                     TU_OK);
    assert_string_equal(file.tensors[0].name, "a");
    assert_string_equal(file.tensors[1].name, "b");
    tu__safetensors_close(&file);
    free(block);
}

static void unreadable_paths_are_reported(void **state) {
    (void)state;
    tu__safetensors file;
    assert_int_equal(tu__safetensors_open("/no-such-folder/x", &file), TU_NOT_FOUND);
    assert_non_null(strstr(tu_message(), "cannot read '/no-such-folder/x': No such file"));
    assert_int_equal(tu__safetensors_open("/tmp", &file), TU_INVALID);
    assert_non_null(strstr(tu_message(), "cannot read '/tmp': it is not a regular file"));
    folder f = new_folder("a.safetensors");
    fclose(fopen(f.file, "w"));
    assert_int_equal(tu__safetensors_open(f.file, &file), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "it has 0 bytes"));
    remove_folder(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_file_has_known_bytes),
        cmocka_unit_test(a_file_is_read_back),
        cmocka_unit_test(every_element_type_is_read_back),
        cmocka_unit_test(a_file_without_tensors_is_valid),
        cmocka_unit_test(invalid_tensors_and_metadata_fail_to_save),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(a_power_failure_leaves_the_old_or_the_new_file),
        cmocka_unit_test(running_out_of_memory_is_reported),
        cmocka_unit_test(too_short_files_fail),
        cmocka_unit_test(invalid_headers_fail),
        cmocka_unit_test(unsupported_tensors_fail_only_when_requested),
        cmocka_unit_test(tensors_may_be_listed_in_any_order),
        cmocka_unit_test(unreadable_paths_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
