/* Lists the images of a folder with one subfolder per class, in an order that does not depend on the file system. */
#ifndef TU__DATA_LISTING_H
#define TU__DATA_LISTING_H

#include <tutti/data.h>

#include "base/arena.h"
#include "base/sha256.h"

typedef struct tu__listed_image {
    const char *path; /* relative to the folder: "train/cat/1.png" */
    int32_t label;
    tu_split split;
    bool validation; /* the image is in the validation split; these are the last training images */
    bool is_damaged; /* it cannot be read */
} tu__listed_image;

typedef struct tu__listing {
    tu__arena arena;
    size_t class_count;
    const char **classes; /* sorted by name */
    size_t image_count, image_capacity;
    tu__listed_image *images;    /* sorted by split, class and name */
    int64_t count[2];            /* images of each split */
    int64_t validation;          /* images of the validation split */
    char digest[TU__SHA256_HEX]; /* of all names, sizes and modification times */
} tu__listing;

/* Lists FOLDER/CLASS/FILE.png, or FOLDER/train/CLASS/… and FOLDER/test/CLASS/… (or val/). If there is neither test/
 * nor val/, the fraction `test_share` of each class, selected by the seed, becomes the test split. Ignores files that
 * do not end in .png, .jpg or .jpeg and names that start with a dot. `validation`: if there is a val/ next to train/
 * and test/, its images are listed too, as the last training images. */
tu_status tu__list_images(const char *folder, double test_share, uint64_t seed, bool validation,
                          tu__listing *listing);
void tu__listing_free(tu__listing *listing);

#endif
