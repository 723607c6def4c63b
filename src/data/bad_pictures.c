/* Gathering pictures that cannot be read. See bad_pictures.h. */
#include "data/bad_pictures.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { MAX_NAMES = 20, MAX_TEXT = 600 }; /* a message is one line, of at most about a thousand bytes */

bool tu__is_bad_picture(tu_status status) {
    return status == TU_INVALID || status == TU_CORRUPT;
}

void tu__bad_pictures_add(tu__bad_pictures *bad, tu__listed_image *image) {
    image->bad = true;
    if (bad->count++ == 0) snprintf(bad->message, sizeof bad->message, "%s", tu_message());
}

/* The first few names into `text`; how many they are. */
static size_t list_names(const tu__listing *listing, char text[MAX_TEXT]) {
    size_t named = 0, length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < listing->image_count && named < MAX_NAMES; i++) {
        const tu__listed_image *image = &listing->images[i];
        if (!image->bad) continue;
        size_t more = strlen(image->path) + 2;
        if (length + more >= MAX_TEXT) break;
        snprintf(text + length, MAX_TEXT - length, "%s%s", named ? ", " : "", image->path);
        length += strlen(text + length);
        named++;
    }
    return named;
}

tu_status tu__bad_pictures_refuse(const tu__bad_pictures *bad, const char *folder,
                                  const tu__listing *listing) {
    if (bad->count == 1)
        return tu_fail(TU_INVALID, "%s; fix or remove it, or leave it out with --skip-bad", bad->message);
    char names[MAX_TEXT], more[48] = "";
    size_t named = list_names(listing, names);
    if (named < bad->count) snprintf(more, sizeof more, " and %zu more", bad->count - named);
    return tu_fail(TU_INVALID,
                   "%zu pictures in '%.200s' cannot be read: %s%s; fix or remove them, or leave them out "
                   "with --skip-bad",
                   bad->count, folder, names, more);
}

/* Every class needs pictures to learn from. */
static tu_status check_classes(const tu__bad_pictures *bad, const char *folder, const tu__listing *listing) {
    int64_t *counts = tu__alloc_array(listing->class_count, sizeof *counts, "the pictures of each class");
    if (!counts) return TU_NO_MEMORY;
    for (size_t i = 0; i < listing->image_count; i++) {
        const tu__listed_image *image = &listing->images[i];
        if (image->split == TU_TRAIN && !image->validation) counts[image->label]++;
    }
    tu_status status = TU_OK;
    for (size_t i = 0; i < listing->class_count && status == TU_OK; i++)
        if (counts[i] == 0)
            status = tu_fail(TU_INVALID,
                             "--skip-bad leaves class '%s' of '%.200s' no picture to train on (%zu cannot be "
                             "read, the first: %.300s)",
                             listing->classes[i], folder, bad->count, bad->message);
    tu__free(counts);
    return status;
}

/* A part that had pictures and has none any more would be taken from the training images, or be missing, unnoticed. */
static tu_status check_parts(const tu__bad_pictures *bad, const char *folder, const tu__listing *listing,
                             bool had_validation, bool had_test) {
    if (had_validation && listing->validation == 0)
        return tu_fail(TU_INVALID,
                       "--skip-bad leaves '%.200s/val' no picture to validate with (%zu cannot be read, the "
                       "first: %.300s); to train without val/, give --validation SHARE, "
                       "as in 0.1",
                       folder, bad->count, bad->message);
    if (had_test && listing->count[TU_TEST] == 0)
        return tu_fail(
            TU_INVALID,
            "--skip-bad leaves '%.200s' no picture to test with (%zu cannot be read, the first: %.300s)",
            folder, bad->count, bad->message);
    return TU_OK;
}

tu_status tu__bad_pictures_drop(const tu__bad_pictures *bad, const char *folder, tu__listing *listing) {
    size_t kept = 0;
    bool had_validation = listing->validation > 0, had_test = listing->count[TU_TEST] > 0;
    for (size_t i = 0; i < listing->image_count; i++) {
        const tu__listed_image *image = &listing->images[i];
        if (!image->bad) {
            listing->images[kept++] = *image;
            continue;
        }
        listing->count[image->split]--;
        if (image->validation) listing->validation--;
    }
    listing->image_count = kept;
    TU_TRY(check_classes(bad, folder, listing));
    return check_parts(bad, folder, listing, had_validation, had_test);
}
