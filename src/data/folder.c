/* Data sets from folders of images: decoded and resized once, then stored as a data file.
 *
 * The cached conversion is identified by a digest of the listing (names, sizes, times), the target size, the splits
 * and whether unreadable images are skipped. If an image is added to the folder, it is therefore converted again.
 * Unreadable images are known only after all were read, so a folder with some is converted in a second pass without
 * them. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "data/bad_images.h"
#include "data/converted.h"
#include "data/fit.h"
#include "data/listing.h"
#include "data/progress.h"

enum { CHANNELS = 3, DEFAULT_SIDE = 64 };

static tu_status read_image(const char *folder, const tu__listed_image *listed, const tu_dataset_info *info,
                            uint8_t *pixels) {
    tu__path path;
    tu__image image;
    TU_TRY(tu__join_path(folder, listed->path, &path));
    TU_TRY(tu__image_load(path.text, CHANNELS, &image));
    tu_status status = tu__fit_image(&image, info->height, info->width, CHANNELS, pixels);
    tu__image_free(&image);
    return status;
}

/* Adds an image. After a damaged one the others are only checked, because this file is not kept. */
static tu_status add_image(const char *folder, tu__listed_image *listed, const tu_dataset_info *info,
                           uint8_t *pixels, tu__data_writer *writer, tu__bad_images *bad) {
    tu_status status = read_image(folder, listed, info, pixels);
    if (tu__is_bad_image(status)) {
        tu__bad_images_add(bad, listed);
        return TU_OK;
    }
    if (status != TU_OK || bad->count) return status;
    return tu__data_writer_add(writer, pixels, listed->label);
}

static tu_status add_images(const char *folder, const tu__listing *listing, const tu_dataset_info *info,
                            uint8_t *pixels, tu__data_writer *writer, tu__bad_images *bad,
                            const tu_dataset_options *options) {
    int64_t done = 0;
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        for (size_t i = 0; i < listing->image_count; i++) {
            if ((int)listing->images[i].split != split) continue;
            tu__report_progress(options, "reading images", done++, (int64_t)listing->image_count);
            TU_TRY(add_image(folder, &listing->images[i], info, pixels, writer, bad));
        }
    }
    tu__report_progress(options, "reading images", done, done);
    return TU_OK;
}

/* Writes the file, unless there are damaged images, which are collected in `bad`. */
static tu_status convert(const char *folder, const tu__listing *listing, const tu_dataset_info *info,
                         const char *path, tu__bad_images *bad, const tu_dataset_options *options) {
    tu__data_writer *writer;
    uint8_t *pixels = tu__alloc((size_t)(info->height * info->width * CHANNELS), "an image");
    if (!pixels) return TU_NO_MEMORY;
    tu_status status = tu__data_writer_new(path, info, &writer);
    if (status == TU_OK) {
        status = add_images(folder, listing, info, pixels, writer, bad, options);
        if (status == TU_OK && bad->count == 0) status = tu__data_writer_finish(writer, NULL);
        tu__data_writer_free(writer);
    }
    tu__free(pixels);
    return status;
}

/* Converts the folder again without the damaged images. */
static tu_status convert_without_bad(const char *folder, const tu__bad_images *bad, tu__listing *listing,
                                     tu_dataset_info *info, const char *path,
                                     const tu_dataset_options *options) {
    tu__bad_images new_bad = {0};
    TU_TRY(tu__bad_images_drop(bad, folder, listing));
    info->count[TU_TRAIN] = listing->count[TU_TRAIN];
    info->count[TU_TEST] = listing->count[TU_TEST];
    info->validation = listing->validation;
    info->skipped = (int64_t)bad->count;
    TU_TRY(tu__dataset_check(info, NULL));
    tu_status status = convert(folder, listing, info, path, &new_bad, options);
    if (status != TU_OK || new_bad.count == 0) return status;
    return tu__bad_images_fail(&new_bad, folder, listing); /* damaged since the first pass */
}

static tu_status convert_all(const char *folder, tu__listing *listing, tu_dataset_info *info,
                             const char *path, const tu_dataset_options *options) {
    tu__bad_images bad = {0};
    tu_status status = convert(folder, listing, info, path, &bad, options);
    if (status != TU_OK || bad.count == 0) return status;
    if (!options->skip_bad) return tu__bad_images_fail(&bad, folder, listing);
    return convert_without_bad(folder, &bad, listing, info, path, options);
}

/* Returns the cache path of the conversion. The key contains everything it depends on. */
static tu_status find_path(const char *folder, const tu__listing *listing, const tu_dataset_info *info,
                           bool skip_bad, tu__path *path) {
    tu__text key = {0};
    tu__text_printf(&key, "folder 1: %s, %s, %lldx%lld", folder, listing->digest, (long long)info->height,
                    (long long)info->width);
    if (listing->validation) tu__text_printf(&key, ", %lld to validate", (long long)listing->validation);
    if (skip_bad) tu__text_printf(&key, ", without bad pictures");
    tu_status status = tu__converted_path(folder, &key, path);
    tu__text_free(&key);
    return status;
}

static tu_status open_listed(const char *folder, tu__listing *listing, const tu_dataset_options *options,
                             tu_dataset **dataset) {
    char name[64];
    tu__path path;
    tu__last_component(folder, name);
    tu_dataset_info info = {.name = name,
                            .origin = folder,
                            .count = {listing->count[0], listing->count[1]},
                            .height = options->height ? options->height : DEFAULT_SIDE,
                            .width = options->width ? options->width : DEFAULT_SIDE,
                            .channels = CHANNELS,
                            .dtype = TU_U8,
                            .classes = (int64_t)listing->class_count,
                            .class_names = listing->classes,
                            .validation = listing->validation};
    TU_TRY(tu__dataset_check(&info, NULL));
    TU_TRY(find_path(folder, listing, &info, options->skip_bad, &path));
    int lock;
    TU_TRY(tu__converted_begin(path.text, options, &lock));
    tu_status status = lock < 0 ? TU_OK : convert_all(folder, listing, &info, path.text, options);
    tu__converted_end(lock);
    return status == TU_OK ? tu__data_file_open(path.text, dataset) : status;
}

tu_status tu__open_folder(const char *folder, const tu_dataset_options *options, tu_dataset **dataset) {
    char resolved[PATH_MAX];
    tu__listing listing;
    if (!realpath(folder, resolved)) return tu_fail(TU_NOT_FOUND, "folder '%s' does not exist", folder);
    TU_TRY(tu__list_images(resolved, options->test_share > 0 ? options->test_share : 0.1, options->seed,
                           options->validation, &listing));
    tu_status status = open_listed(resolved, &listing, options, dataset);
    tu__listing_free(&listing);
    return status;
}
