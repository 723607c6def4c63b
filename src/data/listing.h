/* What lies in a folder of class folders, in an order that does not depend on the disk. */
#ifndef TU__DATA_LISTING_H
#define TU__DATA_LISTING_H

#include <tutti/data.h>

#include "base/arena.h"
#include "base/sha256.h"

typedef struct tu__listed_image {
    const char *path; /* below the folder: "train/cat/1.png" */
    int32_t label;
    tu_split split;
    bool validation; /* of the training images: one of the validation part, which come last */
    bool bad;        /* it could not be read */
} tu__listed_image;

typedef struct tu__listing {
    tu__arena arena;
    size_t class_count;
    const char **classes; /* sorted by name */
    size_t image_count, image_room;
    tu__listed_image *images;    /* by split, class and name */
    int64_t count[2];            /* of each split */
    int64_t validation;          /* images of the validation part */
    char digest[TU__SHA256_HEX]; /* of all names, sizes and times of change */
} tu__listing;

/* FOLDER/CLASS/FILE.png, or FOLDER/train/CLASS/… and FOLDER/test/CLASS/… (or val/). Without the latter two, `test_share`
 * of each class, chosen by the seed, is held out. Files that are not called .png, .jpg or .jpeg, and names that begin
 * with a dot, are passed over. `validation`: where there is a val/ beside train/ and test/, its images are listed too, as
 * the last training images. */
tu_status tu__list_images(const char *folder, double test_share, uint64_t seed, bool validation,
                          tu__listing *listing);
void tu__listing_free(tu__listing *listing);

#endif
