/* Pictures as files: PNG and JPEG to pixels, pixels to PNG. The type is told by the first bytes, never by the name. */
#ifndef TU__IO_IMAGE_H
#define TU__IO_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

typedef struct tu__image {
    int64_t height, width, channels; /* channels: 1 or 3; transparency is laid over black */
    uint8_t *pixels;                 /* [height, width, channels]; freed with tu__image_free */
} tu__image;

enum { TU__IMAGE_MAX_PIXELS = 1 << 28 }; /* a file that claims more is refused before anything is allocated */

/* TU_INVALID, naming `name`, for bytes that are no PNG or JPEG, truncated, or corrupt. `channels`: 1 or 3 to convert,
 * 0 to keep. */
tu_status tu__image_decode(const char *name, const void *bytes, size_t size, int channels, tu__image *image);
tu_status tu__image_load(const char *path, int channels, tu__image *image);
void tu__image_free(tu__image *image);

/* PNG bytes of pixels [height, width, channels]; freed with tu__free. */
tu_status tu__image_encode_png(const tu__image *image, void **bytes, size_t *size);

#endif
