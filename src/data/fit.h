/* Fitting a picture of any size to the size a set or a network wants. */
#ifndef TU__DATA_FIT_H
#define TU__DATA_FIT_H

#include "io/image.h"

/* The largest centred window of the picture that has the proportions height : width, shrunk or enlarged to exactly that
 * size; 1 or 3 channels. `out` is [height, width, channels]. Many threads may call; one is served at a time. */
tu_status tu__fit_image(const tu__image *image, int64_t height, int64_t width, int64_t channels,
                        uint8_t *out);

/* Frees the programs that are kept for the sizes seen last. */
void tu__fit_forget(void);

#endif
