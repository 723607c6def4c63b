/* Sets from folders of pictures: decoded and fitted once, then a data file like any other.
 *
 * The conversion is found again by a digest of the listing (names, sizes, times), the wanted size, the split and whether
 * pictures that cannot be read are left out, so a folder to which a picture was added is converted anew, and nothing is
 * ever out of date. Bad pictures are known only when all were looked at: a folder that has some is gone through again
 * without them. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "data/bad_pictures.h"
#include "data/converted.h"
#include "data/fit.h"
#include "data/listing.h"
#include "data/progress.h"

enum { CHANNELS = 3, SIDE = 64 };

static tu_status read_picture(const char *folder, const tu__listed_image *listed, const tu_dataset_info *info,
                              uint8_t *pixels) {
    tu__path path;
    tu__image picture;
    TU_TRY(tu__join_path(folder, listed->path, &path));
    TU_TRY(tu__image_load(path.text, CHANNELS, &picture));
    tu_status status = tu__fit_image(&picture, info->height, info->width, CHANNELS, pixels);
    tu__image_free(&picture);
    return status;
}

/* After a bad picture the others are only looked at: nothing comes of this file. */
static tu_status add_picture(const char *folder, tu__listed_image *listed, const tu_dataset_info *info,
                             uint8_t *pixels, tu__data_writer *writer, tu__bad_pictures *bad) {
    tu_status status = read_picture(folder, listed, info, pixels);
    if (tu__is_bad_picture(status)) {
        tu__bad_pictures_add(bad, listed);
        return TU_OK;
    }
    if (status != TU_OK || bad->count) return status;
    return tu__data_writer_add(writer, pixels, listed->label);
}

static tu_status add_pictures(const char *folder, const tu__listing *listing, const tu_dataset_info *info,
                              uint8_t *pixels, tu__data_writer *writer, tu__bad_pictures *bad,
                              const tu_dataset_options *options) {
    int64_t done = 0;
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        for (size_t i = 0; i < listing->image_count; i++) {
            if ((int)listing->images[i].split != split) continue;
            tu__tell(options, "reading pictures", done++, (int64_t)listing->image_count);
            TU_TRY(add_picture(folder, &listing->images[i], info, pixels, writer, bad));
        }
    }
    tu__tell(options, "reading pictures", done, done);
    return TU_OK;
}

/* Writes the file unless there are bad pictures, which are gathered then. */
static tu_status convert(const char *folder, const tu__listing *listing, const tu_dataset_info *info,
                         const char *path, tu__bad_pictures *bad, const tu_dataset_options *options) {
    tu__data_writer *writer;
    uint8_t *pixels = tu__alloc((size_t)(info->height * info->width * CHANNELS), "a picture");
    if (!pixels) return TU_NO_MEMORY;
    tu_status status = tu__data_writer_new(path, info, &writer);
    if (status == TU_OK) {
        status = add_pictures(folder, listing, info, pixels, writer, bad, options);
        if (status == TU_OK && bad->count == 0) status = tu__data_writer_finish(writer, NULL);
        tu__data_writer_free(writer);
    }
    tu__free(pixels);
    return status;
}

/* Once more, without the pictures that could not be read. */
static tu_status convert_rest(const char *folder, const tu__bad_pictures *bad, tu__listing *listing,
                              tu_dataset_info *info, const char *path, const tu_dataset_options *options) {
    tu__bad_pictures worse = {0};
    TU_TRY(tu__bad_pictures_drop(bad, folder, listing));
    info->count[TU_TRAIN] = listing->count[TU_TRAIN];
    info->count[TU_TEST] = listing->count[TU_TEST];
    info->validation = listing->validation;
    info->skipped = (int64_t)bad->count;
    TU_TRY(tu__dataset_check(info, NULL));
    tu_status status = convert(folder, listing, info, path, &worse, options);
    if (status != TU_OK || worse.count == 0) return status;
    return tu__bad_pictures_refuse(&worse, folder, listing); /* broken in the meantime */
}

static tu_status convert_all(const char *folder, tu__listing *listing, tu_dataset_info *info,
                             const char *path, const tu_dataset_options *options) {
    tu__bad_pictures bad = {0};
    tu_status status = convert(folder, listing, info, path, &bad, options);
    if (status != TU_OK || bad.count == 0) return status;
    if (!options->skip_bad) return tu__bad_pictures_refuse(&bad, folder, listing);
    return convert_rest(folder, &bad, listing, info, path, options);
}

/* The conversion's path: all that it depends on is in the key. */
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
                             tu_dataset **set) {
    char name[64];
    tu__path path;
    tu__last_name(folder, name);
    tu_dataset_info info = {.name = name,
                            .origin = folder,
                            .count = {listing->count[0], listing->count[1]},
                            .height = options->height ? options->height : SIDE,
                            .width = options->width ? options->width : SIDE,
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
    return status == TU_OK ? tu__data_file_open(path.text, set) : status;
}

tu_status tu__open_folder(const char *folder, const tu_dataset_options *options, tu_dataset **set) {
    char resolved[PATH_MAX];
    tu__listing listing;
    if (!realpath(folder, resolved)) return tu_fail(TU_NOT_FOUND, "there is no folder '%s'", folder);
    TU_TRY(tu__list_images(resolved, options->test_share > 0 ? options->test_share : 0.1, options->seed,
                           options->validation, &listing));
    tu_status status = open_listed(resolved, &listing, options, set);
    tu__listing_free(&listing);
    return status;
}
