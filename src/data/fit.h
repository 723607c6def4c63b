/* Crops and resizes an image to the size that a data set or a network needs. */
#ifndef TU__DATA_FIT_H
#define TU__DATA_FIT_H

#include "io/image.h"

/* Crops the largest centred window with the aspect ratio height : width and resizes it to that size; 1 or 3 channels.
 * `out` is [height, width, channels]. Thread-safe; calls are serialised. */
tu_status tu__fit_image(const tu__image *image, int64_t height, int64_t width, int64_t channels,
                        uint8_t *out);

/* Frees the cached programs. */
void tu__fit_free_cache(void);

#endif
