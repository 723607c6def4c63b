/* The pictures of a folder that cannot be read: gathered first, then told all at once or left out. */
#ifndef TU__DATA_BAD_PICTURES_H
#define TU__DATA_BAD_PICTURES_H

#include "data/listing.h"

typedef struct tu__bad_pictures {
    size_t count;
    char message[512]; /* what was wrong with the first */
} tu__bad_pictures;

/* Whether a picture that failed so has damaged or invalid content. Failures of another kind (permissions, too many open
 * files, the disk, memory, what this build lacks) are not the picture's: they may be gone the next time, while a set without
 * the bad pictures is kept in the cache. */
bool tu__is_bad_picture(tu_status status);
/* Takes the latest failure of this thread as that of the listed image, and marks it. */
void tu__bad_pictures_add(tu__bad_pictures *bad, tu__listed_image *image);
/* One message for all of them, in the order of the listing. */
tu_status tu__bad_pictures_refuse(const tu__bad_pictures *bad, const char *folder,
                                  const tu__listing *listing);
/* Removes those that were marked from the listing; a class that has none left to train on is refused, and so is a part of
 * the set (val/, the test images) of which nothing is left. */
tu_status tu__bad_pictures_drop(const tu__bad_pictures *bad, const char *folder, tu__listing *listing);
#endif
