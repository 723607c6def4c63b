/* Interface between image.c and the decoders. A decoder keeps the number of channels, with 8 bits each and
 * transparent pixels blended with black; image.c converts channels. */
#ifndef TU__IO_IMAGE_CODEC_H
#define TU__IO_IMAGE_CODEC_H

#include <stdbool.h>

#include "io/image.h"

bool tu__png_recognise(const void *bytes, size_t size);
bool tu__jpeg_recognise(const void *bytes, size_t size);
bool tu__gif_recognise(const void *bytes, size_t size);
bool tu__webp_recognise(const void *bytes, size_t size);
/* Decode a file. On failure `image` is unchanged. */
tu_status tu__png_decode(const char *name, const void *bytes, size_t size, tu__image *image);
tu_status tu__jpeg_decode(const char *name, const void *bytes, size_t size, tu__image *image);
tu_status tu__gif_decode(const char *name, const void *bytes, size_t size, tu__image *image);
tu_status tu__webp_decode(const char *name, const void *bytes, size_t size, tu__image *image);

/* Fails if the image has no pixels, more than TU__IMAGE_MAX_PIXELS, or more than `size` bytes of this format can
 * contain. `max_pixels_per_byte`: the limit of the format. Called before memory is allocated. */
tu_status tu__image_check_size(const char *name, uint64_t width, uint64_t height, size_t size,
                               uint64_t max_pixels_per_byte);

#endif
