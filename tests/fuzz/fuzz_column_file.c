/* Opens data files of version 2 with arbitrary descriptions: tables and token files. The description must be rejected, or
 * every sample must be readable. The first byte is the size of the sections, in units of 64 bytes, the second one the
 * tokens of a window; the other bytes are the description. The sections are filled with a pattern of small integers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/column_file.h"
#include "data/data_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (condition) return;
    fprintf(stderr, "%s\n", tu_message());
    abort();
}

static void keep_mapping(void *mapping) {
    (void)mapping; /* freed below */
}

/* Reads the first, a middle and the last sample of each split. */
static void read_samples(const tu_dataset *set) {
    void *elements[TU_MAX_COLUMNS];
    for (size_t c = 0; c < set->columns.count; c++) {
        require(set->columns.column[c].bytes > 0);
        elements[c] = malloc(set->columns.column[c].bytes);
        require(elements[c] != NULL);
    }
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        int64_t count = tu__dataset_indices(set, (tu_split)split);
        int64_t indices[] = {0, count / 2, count - 1};
        for (size_t i = 0; i < 3 && count > 0; i++) {
            tu_status status = tu_dataset_read_columns(set, (tu_split)split, indices[i], elements);
            require(status == TU_OK || status == TU_CORRUPT);
        }
        require(tu_dataset_read_columns(set, (tu_split)split, count, elements) != TU_OK);
    }
    for (size_t c = 0; c < set->columns.count; c++) free(elements[c]);
}

static void describe(const tu_dataset *set) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    tu_column column = TU_SIZED(tu_column);
    tu_field field = TU_SIZED(tu_field);
    require(tu_dataset_describe(set, &info) == TU_OK && info.count[TU_TRAIN] >= 1);
    for (size_t c = 0; c < tu_dataset_columns(set); c++) {
        require(tu_dataset_column(set, c, &column) == TU_OK && *column.name && column.classes >= 0);
        for (int64_t i = 0; i < column.fields; i++) {
            require(tu_dataset_field(set, c, (size_t)i, &field) == TU_OK);
            for (int64_t k = 0; k < field.categories; k++) require(strlen(field.category_names[k]) < 1 << 20);
        }
    }
}

static void open_description(const unsigned char *bytes, size_t sections, int64_t window, const char *text,
                             size_t length) {
    tu_dataset *set;
    tu__column_mapping file = {.path = "input",
                               .bytes = bytes,
                               .description = sections,
                               .text = text,
                               .length = length,
                               .unmap = keep_mapping};
    if (tu__column_file_open(&file, window, &set) != TU_OK) return;
    describe(set);
    read_samples(set);
    tu_status status = tu_dataset_verify(set);
    require(status == TU_OK || status == TU_CORRUPT);
    tu_dataset_free(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t sections = (1 + (size_t)data[0]) * TU__DATA_FILE_ALIGNMENT, length = size - 2;
    unsigned char *bytes = aligned_alloc(TU__DATA_FILE_ALIGNMENT, sections);
    char *text = malloc(length + 1);
    require(bytes && text);
    for (size_t i = 0; i < sections; i++) bytes[i] = i % 4 ? 0 : (unsigned char)(i / 4 % 3);
    memcpy(text, data + 2, length);
    open_description(bytes, sections, data[1], text, length);
    free(bytes);
    free(text);
    return 0;
}
