/* Image files: decodes PNG, JPEG, GIF (the first picture) and WebP, encodes PNG. The format is detected by the first bytes, not by the name. */
#ifndef TU__IO_IMAGE_H
#define TU__IO_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

typedef struct tu__image {
    int64_t height, width, channels; /* channels: 1 or 3; transparent pixels are blended with black */
    uint8_t *pixels;                 /* [height, width, channels]; freed with tu__image_free */
} tu__image;

enum { TU__IMAGE_MAX_PIXELS = 1 << 28 }; /* larger files are rejected before memory is allocated */

/* Decodes an image. Fails with TU_INVALID (the message contains `name`) if the bytes are no such file, or
 * are truncated or damaged. `channels`: 1 or 3 to convert, 0 to keep. */
tu_status tu__image_decode(const char *name, const void *bytes, size_t size, int channels, tu__image *image);
tu_status tu__image_load(const char *path, int channels, tu__image *image);
void tu__image_free(tu__image *image);

/* Encodes an image as PNG. The caller frees `*bytes` with tu__free. */
tu_status tu__image_encode_png(const tu__image *image, void **bytes, size_t *size);

#endif
