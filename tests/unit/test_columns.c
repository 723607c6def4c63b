/* Columns: token files and windows, sets of a program's columns, balanced batches, and damaged descriptions. */
#include <stdarg.h>
#include <stdlib.h>

#include "base/json.h"
#include "data/column_file.h"
#include "data/data_file.h"
#include "temp_folder.h"

enum { TRAIN = 1000, VALIDATION = 101, TEST = 57, WINDOW = 10 };

/* ---- Token files ---- */

static void write_tokens(const char *path, int64_t vocabulary) {
    int32_t tokens[TRAIN + VALIDATION + TEST];
    for (int i = 0; i < TRAIN + VALIDATION + TEST; i++) tokens[i] = (int32_t)(i % vocabulary);
    tu_token_file *file;
    assert_int_equal(
        tu_token_file_new(path, &file, .vocabulary = vocabulary, .tokenizer = "{\"kind\":\"test\"}"), TU_OK);
    assert_int_equal(tu_token_file_add(file, TU_TOKENS_TRAIN, tokens, 400), TU_OK);
    assert_int_equal(tu_token_file_add(file, TU_TOKENS_TRAIN, tokens + 400, TRAIN - 400), TU_OK);
    assert_int_equal(tu_token_file_add(file, TU_TOKENS_VALIDATION, tokens + TRAIN, VALIDATION), TU_OK);
    assert_int_equal(tu_token_file_add(file, TU_TOKENS_TEST, tokens + TRAIN + VALIDATION, TEST), TU_OK);
    assert_int_equal(tu_token_file_finish(file), TU_OK);
}

static void tokens_are_read_as_they_were_written(void **state) {
    (void)state;
    static const int64_t vocabularies[] = {200, 1200, 70000}; /* 1, 2 and 4 bytes per token */
    for (int v = 0; v < 3; v++) {
        folder f = new_folder("text.tutti");
        tu_dataset *set;
        int32_t window[WINDOW + 1];
        write_tokens(f.file, vocabularies[v]);
        assert_int_equal(tu_dataset_open(f.file, &set, .window = WINDOW), TU_OK);
        assert_string_equal(tu_dataset_tokenizer(set), "{\"kind\":\"test\"}");
        assert_int_equal(set->info.count[TU_TRAIN], (TRAIN - 1) / WINDOW + (VALIDATION - 1) / WINDOW);
        assert_int_equal(set->info.validation, (VALIDATION - 1) / WINDOW);
        assert_int_equal(set->info.count[TU_TEST], (TEST - 1) / WINDOW);
        assert_int_equal(set->columns.column[0].classes, vocabularies[v]);
        for (int64_t start = 0; start < TRAIN + VALIDATION - WINDOW; start += 13) {
            assert_int_equal(tu_dataset_read_columns(set, TU_TRAIN, start, (void *[]){window}), TU_OK);
            for (int i = 0; i <= WINDOW; i++) assert_int_equal(window[i], (start + i) % vocabularies[v]);
        }
        assert_int_equal(tu_dataset_read_columns(set, TU_TEST, 3, (void *[]){window}), TU_OK);
        assert_int_equal(window[0], (TRAIN + VALIDATION + 3) % vocabularies[v]);
        assert_int_equal(
            tu_dataset_read_columns(set, TU_TRAIN, TRAIN + VALIDATION - WINDOW, (void *[]){window}),
            TU_INVALID);
        assert_int_equal(tu_dataset_verify(set), TU_OK);
        tu_dataset_free(set);
        remove_folder(&f);
    }
}

/* Windows of training start anywhere in the training part; the sample with an ordinal is always the same. */
static void windows_depend_on_seed_and_ordinal_only(void **state) {
    (void)state;
    folder f = new_folder("text.tutti");
    tu_dataset *set;
    write_tokens(f.file, 1200);
    assert_int_equal(tu_dataset_open(f.file, &set, .window = WINDOW), TU_OK);
    int64_t starts[400], distinct = 0;
    bool seen[TRAIN] = {0};
    for (int start = 0; start < 400; start += 100) { /* loaders that begin later see the same samples */
        tu_loader *loader;
        tu_batch batch = TU_SIZED(tu_batch);
        assert_int_equal(tu_loader_new(set, &loader, .split = TU_TRAIN, .batch = 20, .shuffle = true,
                                       .seed = 5, .validation = set->info.validation, .start = start,
                                       .threads = 1 + start / 100),
                         TU_OK);
        for (int64_t at = start; at < 400;) {
            assert_int_equal(tu_loader_next(loader, &batch), TU_OK);
            for (int64_t i = 0; i < batch.count && at < 400; i++, at++) {
                assert_int_equal(batch.ordinals[i], at);
                const int32_t *tokens = (const int32_t *)batch.columns[0] + i * (WINDOW + 1);
                assert_int_equal(tokens[0], batch.indices[i]);
                assert_int_equal(tokens[WINDOW], batch.indices[i] + WINDOW);
                assert_true(batch.indices[i] + WINDOW < TRAIN);
                if (start == 0)
                    starts[at] = batch.indices[i];
                else
                    assert_int_equal(starts[at], batch.indices[i]);
            }
        }
        tu_loader_free(loader);
    }
    for (int i = 0; i < 400; i++) {
        distinct += !seen[starts[i]];
        seen[starts[i]] = true;
    }
    assert_true(distinct > 250); /* of 990; draws with replacement */
    tu_dataset_free(set);
    remove_folder(&f);
}

/* Validation reads its part once, without overlap. */
static void validation_windows_follow_each_other(void **state) {
    (void)state;
    folder f = new_folder("text.tutti");
    tu_dataset *set;
    tu_loader *loader;
    tu_batch batch = TU_SIZED(tu_batch);
    write_tokens(f.file, 1200);
    assert_int_equal(tu_dataset_open(f.file, &set, .window = WINDOW), TU_OK);
    assert_int_equal(tu_loader_new(set, &loader, .split = TU_TRAIN, .batch = 4,
                                   .validation = set->info.validation, .validation_only = true),
                     TU_OK);
    for (int64_t next = TRAIN; next < TRAIN + 10 * WINDOW;) {
        assert_int_equal(tu_loader_next(loader, &batch), TU_OK);
        for (int64_t i = 0; i < batch.count; i++, next += WINDOW) assert_int_equal(batch.indices[i], next);
    }
    tu_loader_free(loader);
    assert_int_equal(tu_loader_new(set, &loader, .split = TU_TRAIN, .validation = 3), TU_INVALID);
    assert_non_null(strstr(tu_message(), "has its own validation tokens"));
    tu_dataset_free(set);
    remove_folder(&f);
}

static void invalid_tokens_are_refused(void **state) {
    (void)state;
    folder f = new_folder("text.tutti");
    tu_token_file *file;
    tu_dataset *set;
    const int32_t tokens[] = {1, 2, 5, 1};
    assert_int_equal(tu_token_file_new(f.file, &file, .vocabulary = 0), TU_INVALID);
    assert_int_equal(tu_token_file_new(f.file, &file, .vocabulary = 5), TU_OK);
    assert_int_equal(tu_token_file_add(file, TU_TOKENS_TRAIN, tokens, 4), TU_INVALID);
    assert_non_null(strstr(tu_message(), "token 2 is 5: expected 0 to 4"));
    assert_int_equal(tu_token_file_add(file, TU_TOKENS_TEST, tokens, 2), TU_OK);
    assert_int_equal(tu_token_file_add(file, TU_TOKENS_TRAIN, tokens, 2), TU_INVALID);
    assert_int_equal(tu_token_file_finish(file), TU_INVALID); /* no training tokens */
    assert_int_equal(count_files(&f), 0);
    write_tokens(f.file, 100);
    assert_int_equal(tu_dataset_open(f.file, &set, .window = TRAIN), TU_INVALID);
    assert_non_null(strstr(tu_message(), "choose a smaller --context"));
    remove_folder(&f);
}

/* ---- Columns of a program ---- */

static tu_status read_pair(void *context, tu_split split, int64_t index, void *const *elements) {
    const int *classes = context;
    (void)split;
    if (elements[0]) ((float *)elements[0])[0] = (float)index;
    if (elements[0]) ((float *)elements[0])[1] = -(float)index;
    if (elements[1]) *(int32_t *)elements[1] = (int32_t)(index % 10 ? 0 : index / 10 % *classes);
    return TU_OK;
}

static tu_dataset *pairs(int *classes) {
    const tu_column columns[] = {
        {.struct_size = sizeof(tu_column), .name = "point", .type = {TU_F32, TU_SHAPE(2)}},
        {.struct_size = sizeof(tu_column),
         .name = "side",
         .kind = TU_COLUMN_CLASS,
         .type = {TU_I32, TU_SCALAR},
         .classes = 3,
         .is_target = true}};
    const tu_source source = {.struct_size = sizeof source,
                              .name = "pairs",
                              .count = {200, 20},
                              .columns = columns,
                              .column_count = 2,
                              .context = classes,
                              .read_columns = read_pair};
    tu_dataset *set;
    assert_int_equal(tu_dataset_from(&source, &set), TU_OK);
    return set;
}

static void batches_have_the_columns_of_the_program(void **state) {
    (void)state;
    int classes = 3;
    tu_dataset *set = pairs(&classes);
    tu_loader *loader;
    tu_batch batch = TU_SIZED(tu_batch);
    assert_int_equal(tu_loader_new(set, &loader, .batch = 30, .shuffle = true), TU_OK);
    assert_int_equal(tu_loader_next(loader, &batch), TU_OK);
    assert_null(batch.images);
    for (int64_t i = 0; i < batch.count; i++) {
        assert_float_equal(((const float *)batch.columns[0])[2 * i + 1], -(float)batch.indices[i], 0);
        assert_int_equal(((const int32_t *)batch.columns[1])[i],
                         batch.indices[i] % 10 ? 0 : batch.indices[i] / 10 % 3);
    }
    tu_loader_free(loader);
    int32_t label;
    float image[2];
    assert_int_equal(tu_dataset_read(set, TU_TRAIN, 0, image, &label), TU_INVALID);
    classes = 5; /* the function returns classes that the set does not have */
    assert_int_equal(tu_dataset_read_columns(set, TU_TRAIN, 40, (void *[]){image, &label}), TU_CORRUPT);
    tu_dataset_free(set);
}

/* 187 samples of class 0, 7 of class 1 and 6 of class 2: each is a third of the batches. */
static void balanced_batches_have_all_classes_alike(void **state) {
    (void)state;
    int classes = 3;
    tu_dataset *set = pairs(&classes);
    tu_loader *loader;
    tu_batch batch = TU_SIZED(tu_batch);
    int64_t counts[3] = {0}, samples = 0;
    bool seen[200] = {0};
    assert_int_equal(tu_loader_new(set, &loader, .batch = 20, .shuffle = true, .seed = 3, .balanced = true),
                     TU_OK);
    for (int i = 0; i < 100; i++) { /* ten epochs */
        assert_int_equal(tu_loader_next(loader, &batch), TU_OK);
        for (int64_t k = 0; k < batch.count; k++) {
            counts[((const int32_t *)batch.columns[1])[k]]++;
            seen[batch.indices[k]] = true;
        }
        samples += batch.count;
    }
    for (int c = 0; c < 3; c++) assert_true(llabs(counts[c] - samples / 3) <= 10);
    for (int i = 0; i < 200; i++) assert_true(seen[i]);
    tu_loader_free(loader);
    assert_int_equal(tu_loader_new(set, &loader, .balanced = true), TU_INVALID);
    tu_dataset_free(set);
}

static void invalid_columns_are_refused(void **state) {
    (void)state;
    const struct {
        tu_column column;
        const char *message;
    } cases[] = {
        {{.name = "a b", .type = {TU_F32, TU_SHAPE(2)}}, "a column is called 'a b'"},
        {{.name = "share", .type = {TU_F32, TU_SHAPE(2)}}, "a column is called 'share'"},
        {{.name = "a", .type = {TU_F32, TU_SHAPE(0)}}, "invalid type"},
        {{.name = "a", .type = {TU_F32, TU_SHAPE(1 << 20, 1 << 20)}}, "invalid type"},
        {{.name = "a", .kind = TU_COLUMN_CLASS, .type = {TU_F32, TU_SCALAR}}, "expected i32 for class"},
        {{.name = "a", .kind = TU_COLUMN_CLASS, .type = {TU_I32, TU_SCALAR}}, "has 0 classes"},
        {{.name = "a", .kind = (tu_column_kind)9, .type = {TU_I32, TU_SCALAR}}, "has kind 9"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tu_column column = cases[i].column;
        tu_dataset *set;
        column.struct_size = sizeof column;
        const tu_source source = {.struct_size = sizeof source,
                                  .name = "bad",
                                  .count = {2, 0},
                                  .columns = &column,
                                  .column_count = 1,
                                  .read_columns = read_pair};
        assert_int_equal(tu_dataset_from(&source, &set), TU_INVALID);
        if (!strstr(tu_message(), cases[i].message)) print_message("%s\n", tu_message());
        assert_non_null(strstr(tu_message(), cases[i].message));
    }
}

/* ---- Descriptions ---- */

static void descriptions_are_read_as_they_were_written(void **state) {
    (void)state;
    const char *const names[] = {"red", "gr\"een", "bl\\ue, pale"};
    const tu__field numbers[] = {
        {.name = "x", .mean = 1.5, .deviation = 0.25, .min = -1e30, .max = 3, .missing = 7}, {.name = "y\n"}};
    const tu__field colours[] = {{.name = "colour", .categories = 3, .category_names = names, .missing = 1}};
    tu__columns written = {.count = 2}, read;
    written.column[0] = (tu__column){.name = "numbers",
                                     .kind = TU_COLUMN_NUMBERS,
                                     .type = {TU_F32, TU_SHAPE(2)},
                                     .field_count = 2,
                                     .fields = numbers};
    written.column[1] = (tu__column){.name = "target",
                                     .kind = TU_COLUMN_CLASS,
                                     .type = {TU_I32, TU_SCALAR},
                                     .classes = 3,
                                     .is_target = true,
                                     .field_count = 1,
                                     .fields = colours};
    assert_int_equal(tu__columns_check("a test", &written), TU_OK);
    tu__text text = {0};
    tu_json json = tu__json_to_text(&text);
    tu__columns_write(&json, NULL, &written);
    assert_true(tu_json_finish(&json));
    tu__arena arena = {.purpose = "a test"};
    const tu__json_value *array;
    assert_int_equal(tu__json_parse(&arena, "test", text.data, text.length, &array), TU_OK);
    assert_int_equal(tu__columns_read("test", array, &arena, &read), TU_OK);
    assert_int_equal(read.count, 2);
    assert_float_equal(read.column[0].fields[0].mean, 1.5, 0);
    assert_int_equal(read.column[0].fields[0].missing, 7);
    assert_string_equal(read.column[0].fields[1].name, "y\n");
    assert_true(read.column[1].is_target);
    assert_string_equal(read.column[1].fields[0].category_names[2], names[2]);
    assert_int_equal(read.column[1].bytes, 4);
    tu__arena_free(&arena);
    tu__text_free(&text);
}

static void damaged_files_are_refused(void **state) {
    (void)state;
    folder f = new_folder("text.tutti");
    write_tokens(f.file, 1200);
    FILE *file = fopen(f.file, "rb");
    static unsigned char bytes[1 << 16];
    assert_non_null(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    /* A bit of the tokens is found by verify, a bit of anything else when the file is opened. */
    for (size_t at = 0; at < size; at += 7) {
        tu_dataset *set;
        bytes[at] ^= 4;
        file = fopen(f.file, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(bytes, 1, size, file), size);
        assert_int_equal(fclose(file), 0);
        bytes[at] ^= 4;
        tu_status status = tu_dataset_open(f.file, &set, .window = WINDOW);
        if (status == TU_OK) {
            bool in_head = at >= 12 && at < 64, in_padding = at >= 64;
            tu_status verified = tu_dataset_verify(set);
            assert_true(verified == TU_CORRUPT || (verified == TU_OK && (in_head || in_padding)));
            tu_dataset_free(set);
        }
    }
    for (size_t cut = 1; cut < size; cut += 97) {
        tu_dataset *set;
        assert_int_equal(truncate(f.file, (off_t)(size - cut)), 0);
        assert_int_not_equal(tu_dataset_open(f.file, &set), TU_OK);
    }
    remove_folder(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_read_as_they_were_written),
        cmocka_unit_test(windows_depend_on_seed_and_ordinal_only),
        cmocka_unit_test(validation_windows_follow_each_other),
        cmocka_unit_test(invalid_tokens_are_refused),
        cmocka_unit_test(batches_have_the_columns_of_the_program),
        cmocka_unit_test(balanced_batches_have_all_classes_alike),
        cmocka_unit_test(invalid_columns_are_refused),
        cmocka_unit_test(descriptions_are_read_as_they_were_written),
        cmocka_unit_test(damaged_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
