/* What image.c and the two decoders share: each decoder gives the picture's own channels, 8 bits each; transparency is
 * already laid over black, conversion is still to come. */
#ifndef TU__IO_IMAGE_CODEC_H
#define TU__IO_IMAGE_CODEC_H

#include <stdbool.h>

#include "io/image.h"

bool tu__png_recognise(const void *bytes, size_t size);
bool tu__jpeg_recognise(const void *bytes, size_t size);
/* On failure `image` holds nothing. */
tu_status tu__png_decode(const char *name, const void *bytes, size_t size, tu__image *image);
tu_status tu__jpeg_decode(const char *name, const void *bytes, size_t size, tu__image *image);

/* What both refuse before they allocate: more pixels than TU__IMAGE_MAX_PIXELS, or a size that `size` bytes of this
 * format cannot hold, `most` being the pixels that one byte can at best. */
tu_status tu__image_check_size(const char *name, uint64_t width, uint64_t height, size_t size, uint64_t most);

#endif
