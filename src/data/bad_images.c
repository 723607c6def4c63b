/* Collects unreadable images. See bad_images.h. */
#include "data/bad_images.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { MAX_NAMES = 20, MAX_TEXT = 600 }; /* limits a message to about a thousand bytes */

bool tu__is_bad_image(tu_status status) {
    return status == TU_INVALID || status == TU_CORRUPT;
}

void tu__bad_images_add(tu__bad_images *bad, tu__listed_image *image) {
    image->is_damaged = true;
    if (bad->count++ == 0) snprintf(bad->message, sizeof bad->message, "%s", tu_message());
}

/* Writes the first few names to `text`. Returns their number. */
static size_t list_names(const tu__listing *listing, char text[MAX_TEXT]) {
    size_t named = 0, length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < listing->image_count && named < MAX_NAMES; i++) {
        const tu__listed_image *image = &listing->images[i];
        if (!image->is_damaged) continue;
        size_t more = strlen(image->path) + 2;
        if (length + more >= MAX_TEXT) break;
        snprintf(text + length, MAX_TEXT - length, "%s%s", named ? ", " : "", image->path);
        length += strlen(text + length);
        named++;
    }
    return named;
}

tu_status tu__bad_images_fail(const tu__bad_images *bad, const char *folder, const tu__listing *listing) {
    if (bad->count == 1)
        return tu_fail(TU_INVALID, "%s; fix or remove it, or skip it with --skip-bad", bad->message);
    char names[MAX_TEXT], more[48] = "";
    size_t named = list_names(listing, names);
    if (named < bad->count) snprintf(more, sizeof more, " and %zu more", bad->count - named);
    return tu_fail(
        TU_INVALID,
        "cannot read %zu images in '%.200s': %s%s; fix or remove them, or skip them with --skip-bad",
        bad->count, folder, names, more);
}

/* Fails if a class has no training image left. */
static tu_status check_classes(const tu__bad_images *bad, const char *folder, const tu__listing *listing) {
    int64_t *counts = tu__alloc_array(listing->class_count, sizeof *counts, "the images of each class");
    if (!counts) return TU_NO_MEMORY;
    for (size_t i = 0; i < listing->image_count; i++) {
        const tu__listed_image *image = &listing->images[i];
        if (image->split == TU_TRAIN && !image->validation) counts[image->label]++;
    }
    tu_status status = TU_OK;
    for (size_t i = 0; i < listing->class_count && status == TU_OK; i++)
        if (counts[i] == 0)
            status = tu_fail(
                TU_INVALID,
                "--skip-bad leaves class '%s' of '%.200s' without training images (%zu are unreadable, the first: %.300s)",
                listing->classes[i], folder, bad->count, bad->message);
    tu__free(counts);
    return status;
}

/* Fails if a split that had images is empty now. Otherwise validation images would silently be taken from the
 * training images, or the test split be missing. */
static tu_status check_splits(const tu__bad_images *bad, const char *folder, const tu__listing *listing,
                              bool had_validation, bool had_test) {
    if (had_validation && listing->validation == 0)
        return tu_fail(
            TU_INVALID,
            "--skip-bad leaves '%.200s/val' without images (%zu are unreadable, the first: %.300s); to train without val/, use --validation FRACTION, for example 0.1",
            folder, bad->count, bad->message);
    if (had_test && listing->count[TU_TEST] == 0)
        return tu_fail(
            TU_INVALID,
            "--skip-bad leaves '%.200s' without test images (%zu are unreadable, the first: %.300s)", folder,
            bad->count, bad->message);
    return TU_OK;
}

tu_status tu__bad_images_drop(const tu__bad_images *bad, const char *folder, tu__listing *listing) {
    size_t kept = 0;
    bool had_validation = listing->validation > 0, had_test = listing->count[TU_TEST] > 0;
    for (size_t i = 0; i < listing->image_count; i++) {
        const tu__listed_image *image = &listing->images[i];
        if (!image->is_damaged) {
            listing->images[kept++] = *image;
            continue;
        }
        listing->count[image->split]--;
        if (image->validation) listing->validation--;
    }
    listing->image_count = kept;
    TU_TRY(check_classes(bad, folder, listing));
    return check_splits(bad, folder, listing, had_validation, had_test);
}
