/* Data sets from a pair of .npy files: images [n,h,w] or [n,h,w,c] and labels [n].
 *
 * u8 images stay u8; all other types are converted to f32. The number of classes is the largest label + 1. The seed
 * selects the test images; both splits keep the order of the file. Images with the ignored label are in neither
 * split. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map_file.h"
#include "data/converted.h"
#include "data/npy.h"
#include "data/permutation.h"
#include "data/progress.h"

typedef struct array {
    char path[PATH_MAX];
    struct stat info;
    tu__mapped_file file;
    tu__npy npy;
} array;

/* ---- Mapping the files ---- */

static tu_status map_array(const char *path, array *a) {
    if (!realpath(path, a->path)) return tu_fail(TU_NOT_FOUND, "cannot open '%s': %s", path, strerror(errno));
    TU_TRY(tu__map_file(a->path, &a->file));
    a->info = a->file.info;
    if (a->file.size == 0) return tu_fail(TU_CORRUPT, "'%s' is not a .npy file: it is empty", path);
    return tu__npy_parse(path, a->file.bytes, a->file.size, &a->npy);
}

static void unmap_array(array *a) {
    tu__unmap_file(&a->file);
}

/* ---- Checks ---- */

static tu_status check_images(const array *images, tu_dataset_info *info) {
    const tu__npy *npy = &images->npy;
    if (npy->rank != 3 && npy->rank != 4)
        return tu_fail(TU_INVALID, "'%s' has %d dimensions: expected images [n,h,w] or [n,h,w,c]",
                       images->path, npy->rank);
    info->height = npy->dim[1];
    info->width = npy->dim[2];
    info->channels = npy->rank == 4 ? npy->dim[3] : 1;
    info->dtype = npy->type == TU__NPY_U1 ? TU_U8 : TU_F32;
    if (npy->dim[0] < 2)
        return tu_fail(TU_INVALID, "'%s' has %lld images: expected at least two", images->path,
                       (long long)npy->dim[0]);
    return TU_OK;
}

static bool is_ignored(int64_t label, const tu_dataset_options *options) {
    return options->ignore_label && *options->ignore_label == label;
}

/* A largest label far above all others is often not a class but marks images to ignore, for example 255 in u8
 * labels. */
enum { MIN_GAP = 2 };

static void report_label_gap(int64_t largest, int64_t second, char notice[160]) {
    if (second < 0 || largest - second - 1 < MIN_GAP) return;
    snprintf(notice, 160,
             "no image has the labels %lld to %lld; if %lld marks images to ignore, use --ignore-label %lld",
             (long long)second + 1, (long long)largest - 1, (long long)largest, (long long)largest);
}

static tu_status check_ignored(const array *labels, const tu_dataset_options *options,
                               const tu_dataset_info *info) {
    if (!options->ignore_label) return TU_OK;
    if (info->ignored == 0)
        return tu_fail(TU_INVALID, "--ignore-label %lld: no image in '%s' has that label",
                       (long long)*options->ignore_label, labels->path);
    int64_t left = labels->npy.elements - info->ignored;
    if (left >= 2) return TU_OK;
    return tu_fail(TU_INVALID, "'%s': --ignore-label %lld leaves %lld images: expected at least two",
                   labels->path, (long long)*options->ignore_label, (long long)left);
}

static tu_status check_labels(const array *labels, const array *images, const tu_dataset_options *options,
                              tu_dataset_info *info, char notice[160]) {
    const tu__npy *npy = &labels->npy;
    if (npy->rank != 1 || npy->dim[0] != images->npy.dim[0])
        return tu_fail(
            TU_INVALID,
            "'%s' has %d dimensions and %lld labels: expected one dimension and %lld labels, one per image",
            labels->path, npy->rank, (long long)npy->elements, (long long)images->npy.dim[0]);
    if (!tu__npy_is_integer(npy->type))
        return tu_fail(TU_INVALID, "'%s' has labels that are not integers: expected u1, i1, i4 or i8",
                       labels->path);
    int64_t largest = -1, second = -1;
    for (int64_t i = 0; i < npy->elements; i++) {
        int64_t label = tu__npy_integer(npy, i);
        if (is_ignored(label, options)) {
            info->ignored++;
            continue;
        }
        if (label < 0 || label >= TU__MAX_CLASSES)
            return tu_fail(
                TU_INVALID,
                "'%s': label %lld is %lld: expected 0 to %d; to skip images with this label, use --ignore-label %lld",
                labels->path, (long long)i, (long long)label, TU__MAX_CLASSES - 1, (long long)label);
        if (label > largest) {
            second = largest;
            largest = label;
        } else if (label < largest && label > second) {
            second = label;
        }
    }
    info->classes = largest + 1;
    report_label_gap(largest, second, notice);
    return check_ignored(labels, options, info);
}

/* ---- Conversion ---- */

static tu_status read_floats(const array *images, int64_t index, int64_t elements, float *out) {
    for (int64_t i = 0; i < elements; i++) {
        out[i] = (float)tu__npy_number(&images->npy, index * elements + i);
        if (!isfinite(out[i]))
            return tu_fail(TU_INVALID, "'%s': image %lld has a pixel that is not finite in f32", images->path,
                           (long long)index);
    }
    return TU_OK;
}

/* Writes the images of one split. The images that the permutation maps to the lowest positions are the test split. */
static tu_status add_split(const array *images, const array *labels, const tu_dataset_info *info,
                           tu_split split, const tu__permutation *order, float *floats,
                           tu__data_writer *writer, const tu_dataset_options *options) {
    int64_t count = images->npy.dim[0], elements = info->height * info->width * info->channels, position = 0;
    for (int64_t i = 0; i < count; i++) {
        if (is_ignored(tu__npy_integer(&labels->npy, i), options)) continue;
        bool is_test = tu__permute(order, position++) < info->count[TU_TEST];
        if (is_test != (split == TU_TEST)) continue;
        const void *image = images->npy.data + i * elements;
        if (info->dtype == TU_F32) {
            TU_TRY(read_floats(images, i, elements, floats));
            image = floats;
        }
        TU_TRY(tu__data_writer_add(writer, image, (int32_t)tu__npy_integer(&labels->npy, i)));
        if (i % 1024 == 0) tu__report_progress(options, "reading arrays", i, count);
    }
    return TU_OK;
}

static tu_status convert_arrays(const array *images, const array *labels, const tu_dataset_info *info,
                                const char *path, const tu_dataset_options *options) {
    tu__data_writer *writer;
    tu__permutation order = tu__permutation_of(options->seed, 0, images->npy.dim[0] - info->ignored);
    size_t elements = (size_t)(info->height * info->width * info->channels);
    float *floats = tu__alloc_array(elements, sizeof *floats, "an image");
    if (!floats) return TU_NO_MEMORY;
    tu_status status = tu__data_writer_new(path, info, &writer);
    if (status == TU_OK) {
        for (int split = TU_TRAIN; split <= TU_TEST && status == TU_OK; split++)
            status = add_split(images, labels, info, (tu_split)split, &order, floats, writer, options);
        if (status == TU_OK) status = tu__check_mapping(&images->file, images->path);
        if (status == TU_OK) status = tu__check_mapping(&labels->file, labels->path);
        if (status == TU_OK) status = tu__data_writer_finish(writer, NULL);
        tu__data_writer_free(writer);
    }
    tu__free(floats);
    return status;
}

static void append_file_key(tu__text *key, const array *a) {
    tu__text_printf(key, ", %s %lld %lld.%09ld", a->path, (long long)a->info.st_size,
                    (long long)a->info.st_mtim.tv_sec, a->info.st_mtim.tv_nsec);
}

static tu_status find_path(const array *images, const array *labels, const tu_dataset_info *info,
                           const tu_dataset_options *options, tu__path *path) {
    tu__text key = {0};
    tu__text_printf(&key, "arrays 1: %lld held out by %llu", (long long)info->count[TU_TEST],
                    (unsigned long long)options->seed);
    if (options->ignore_label)
        tu__text_printf(&key, ", without label %lld", (long long)*options->ignore_label);
    append_file_key(&key, images);
    append_file_key(&key, labels);
    tu_status status = tu__converted_path(images->path, &key, path);
    tu__text_free(&key);
    return status;
}

/* ---- Opening ---- */

static tu_status open_mapped(const array *images, const array *labels, const tu_dataset_options *options,
                             tu_dataset **dataset) {
    char name[64], notice[160] = "";
    tu__path path;
    tu__last_component(images->path, name);
    tu_dataset_info info = {.name = name, .origin = images->path};
    TU_TRY(check_images(images, &info));
    TU_TRY(check_labels(labels, images, options, &info, notice));
    int64_t count = images->npy.dim[0] - info.ignored;
    double share = options->test_share > 0 ? options->test_share : 0.1;
    int64_t test_count = (int64_t)((double)count * share + 0.5);
    info.count[TU_TEST] = test_count < 1 ? 1 : test_count >= count ? count - 1 : test_count;
    info.count[TU_TRAIN] = count - info.count[TU_TEST];
    TU_TRY(tu__dataset_check(&info, NULL));
    TU_TRY(find_path(images, labels, &info, options, &path));
    int lock;
    TU_TRY(tu__converted_begin(path.text, options, &lock));
    tu_status status = lock < 0 ? TU_OK : convert_arrays(images, labels, &info, path.text, options);
    tu__converted_end(lock);
    TU_TRY(status);
    tu_dataset *opened;
    TU_TRY(tu__data_file_open(path.text, &opened));
    status = tu__dataset_notice(opened, notice);
    if (status == TU_OK)
        *dataset = opened;
    else
        tu_dataset_free(opened);
    return status;
}

tu_status tu__open_arrays(const char *images, const char *labels, const tu_dataset_options *options,
                          tu_dataset **dataset) {
    array *pair = tu__alloc_array(2, sizeof *pair, "a pair of arrays");
    if (!pair) return TU_NO_MEMORY;
    tu_status status = map_array(images, &pair[0]);
    if (status == TU_OK) status = map_array(labels, &pair[1]);
    if (status == TU_OK) status = open_mapped(&pair[0], &pair[1], options, dataset);
    unmap_array(&pair[0]);
    unmap_array(&pair[1]);
    tu__free(pair);
    return status;
}
