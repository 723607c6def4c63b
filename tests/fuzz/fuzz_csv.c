/* Reads arbitrary bytes as a CSV file. The rows must not depend on how the file is divided among threads, and a table that
 * is opened as a data set must have them all. The first byte chooses the target and the columns that are categories. */
#include <stdint.h>

#include "base/alloc.h"
#include "data/csv_layout.h"
#include "fuzz/input_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (condition) return;
    fprintf(stderr, "%s\n", tu_message());
    abort();
}

/* ---- Rows ---- */

typedef struct table {
    tu__csv_row row;
    int64_t rows;
    uint64_t digest; /* of all rows that were read */
    tu_status status;
    char message[1024];
} table;

static int32_t hash_category(void *context, size_t field, const char *at, const char *text, size_t length) {
    (void)context, (void)field, (void)at;
    uint32_t hash = 1;
    for (size_t i = 0; i < length; i++) hash = hash * 31 + (unsigned char)text[i];
    return (int32_t)(hash >> 1);
}

static void add(table *t, const void *elements, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        t->digest = (t->digest ^ ((const uint8_t *)elements)[i]) * 1099511628211u;
}

static size_t target_bytes(const tu__csv_layout *l) {
    return l->class_target ? sizeof(int32_t) : l->targets * sizeof(float);
}

static void read_block(const tu__csv *csv, const tu__csv_layout *l, const tu__csv_block *block, table *t) {
    const char *end = csv->bytes + csv->size, *next;
    for (const char *at = block->first; at && at < end && at <= block->end && t->status == TU_OK;) {
        if (tu__csv_is_blank(at, end, &next)) {
            at = next;
            continue;
        }
        const char *before = at;
        t->status = tu__csv_read_row(l, &at, hash_category, NULL, &t->row);
        if (t->status != TU_OK) {
            snprintf(t->message, sizeof t->message, "%s", tu_message());
            return;
        }
        require(at > before && at <= end);
        add(t, t->row.numbers, l->numbers * sizeof(float));
        add(t, t->row.categories, l->categories * sizeof(int32_t));
        add(t, l->class_target ? (const void *)t->row.class_target : t->row.targets, target_bytes(l));
        t->rows++;
    }
}

/* Reads all rows, in blocks of `bytes`. */
static void read_table(const tu__csv *csv, const tu__csv_layout *l, size_t bytes, int threads, table *t) {
    tu__csv_blocks blocks = {0};
    *t = (table){.row = {.numbers = malloc(l->numbers * sizeof(float) + 1),
                         .categories = malloc(l->categories * sizeof(int32_t) + 1),
                         .targets = malloc(target_bytes(l) + 1)}};
    require(t->row.numbers && t->row.categories && t->row.targets);
    if (l->class_target) t->row.class_target = (int32_t *)(void *)t->row.targets;
    require(tu__csv_divide(csv, bytes, threads, &blocks) == TU_OK);
    int64_t counted = 0;
    for (size_t i = 0; i < blocks.count; i++) {
        read_block(csv, l, &blocks.block[i], t);
        counted += blocks.block[i].rows;
    }
    require(counted == blocks.rows && t->rows <= counted && (t->status != TU_OK || t->rows == counted));
    tu__free(blocks.block);
    free(t->row.numbers);
    free(t->row.categories);
    free(t->row.targets);
}

static void compare_blocks(const tu__csv *csv, const tu_dataset_options *options) {
    tu__csv_layout layout = {0};
    tu__text notice = {0};
    table whole, parts;
    if (tu__csv_choose_layout(csv, options, &layout, &notice) == TU_OK) {
        for (size_t i = 0; i < csv->field_count; i++)
            require(!layout.fields[i].is_target || layout.fields[i].role != TU__CSV_DROP);
        read_table(csv, &layout, (size_t)1 << 20, 1, &whole);
        read_table(csv, &layout, 16, 2, &parts);
        require(whole.rows == parts.rows && whole.digest == parts.digest && whole.status == parts.status);
        require(strcmp(whole.message, parts.message) == 0);
    }
    tu__free(layout.fields);
    tu__text_free(&notice);
}

/* ---- Data sets ---- */

static void open_table(const char *path, const tu_dataset_options *options) {
    tu_dataset *set;
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    if (tu_dataset_open_with(path, &set, options) == TU_OK) {
        require(tu_dataset_describe(set, &info) == TU_OK);
        require(info.count[TU_TRAIN] >= 1 && info.count[TU_TEST] >= 0);
        require(tu_dataset_verify(set) == TU_OK);
        tu_dataset_free(set);
    }
    remove_inputs(input_folder());
}

/* ---- Inputs ---- */

/* Returns the name of a field, in quotes. */
static const char *name_of(const tu__csv *csv, size_t index, char name[200]) {
    if (index >= csv->field_count) return NULL;
    snprintf(name, 200, "\"%s\"", csv->names[index]);
    return name;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char target[200], categories[200], drop[200];
    tu__csv csv;
    if (size < 1) return 0;
    setenv("TUTTI_DATA", input_folder(), 1);
    struct input_path path = write_input("input.csv", data + 1, size - 1);
    static const char *const headers[] = {NULL, "no", "yes", NULL};
    tu_dataset_options options = TU_SIZED(tu_dataset_options);
    options.header = headers[data[0] >> 6];
    if (tu__csv_open(path.text, options.header, &csv) == TU_OK) {
        options.target = name_of(&csv, data[0] & 3U, target);
        options.categories = name_of(&csv, data[0] >> 2 & 3U, categories);
        options.drop = name_of(&csv, data[0] >> 4 & 3U, drop);
        compare_blocks(&csv, &options);
        if (data[0] >> 6 < 2) open_table(path.text, &options);
    }
    tu__csv_close(&csv);
    return 0;
}
