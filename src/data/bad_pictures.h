/* The pictures of a folder that cannot be read: gathered first, then told all at once or left out. */
#ifndef TU__DATA_BAD_PICTURES_H
#define TU__DATA_BAD_PICTURES_H

#include "data/listing.h"

typedef struct tu__bad_pictures {
    size_t count;
    tu_status status;  /* of the first … */
    char message[512]; /* … and what was wrong with it */
} tu__bad_pictures;

/* Whether a picture that failed so is a bad one, rather than memory or this build of the program. */
bool tu__is_bad_picture(tu_status status);
/* Takes the latest failure of this thread as that of the listed image, and marks it. */
void tu__bad_pictures_add(tu__bad_pictures *bad, tu_status status, tu__listed_image *image);
/* One message for all of them, in the order of the listing. */
tu_status tu__bad_pictures_refuse(const tu__bad_pictures *bad, const char *folder,
                                  const tu__listing *listing);
/* Removes those that were marked from the listing; a class that has none left to train on is refused. */
tu_status tu__bad_pictures_drop(const tu__bad_pictures *bad, const char *folder, tu__listing *listing);
#endif
