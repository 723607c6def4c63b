/* Unreadable images of a folder: collected first, then reported together or skipped. */
#ifndef TU__DATA_BAD_IMAGES_H
#define TU__DATA_BAD_IMAGES_H

#include "data/listing.h"

typedef struct tu__bad_images {
    size_t count;
    char message[512]; /* error message of the first bad image */
} tu__bad_images;

/* True if the status means that the image's content is damaged or invalid. Other failures (permissions, too many open
 * files, disk, memory, features missing in this build) may be temporary. Images that fail for such a reason must not
 * be skipped, because the data set without them would stay in the cache. */
bool tu__is_bad_image(tu_status status);
/* Marks the listed image as bad. Stores this thread's latest error message if it is the first. */
void tu__bad_images_add(tu__bad_images *bad, tu__listed_image *image);
/* Fails with one message for all bad images, in the order of the listing. */
tu_status tu__bad_images_fail(const tu__bad_images *bad, const char *folder, const tu__listing *listing);
/* Removes the bad images from the listing. Fails if a class has no training image left, or if the validation split
 * (val/) or the test split becomes empty. */
tu_status tu__bad_images_drop(const tu__bad_images *bad, const char *folder, tu__listing *listing);
#endif
