/* Image files: selects the decoder, converts channels and reads files.
 *
 * Grey is converted to colour by repetition, colour to grey with the weights of ITU-R BT.601, the same for every
 * format, so that a data set does not depend on the format of its files. Colour profiles and EXIF orientation are not
 * applied. */
#include "io/image.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "io/image_codec.h"

tu_status tu__image_check_size(const char *name, uint64_t width, uint64_t height, size_t size,
                               uint64_t max_pixels_per_byte) {
    if (width == 0 || height == 0)
        return tu_fail(TU_INVALID, "%s: an image of %" PRIu64 "x%" PRIu64 " pixels is empty", name, width,
                       height);
    if (height > (uint64_t)TU__IMAGE_MAX_PIXELS / width)
        return tu_fail(TU_INVALID,
                       "%s: an image of %" PRIu64 "x%" PRIu64
                       " pixels is too large: expected at most %d pixels",
                       name, width, height, TU__IMAGE_MAX_PIXELS);
    if (width * height / max_pixels_per_byte > size)
        return tu_fail(TU_INVALID, "%s: truncated: %zu bytes are too few for %" PRIu64 "x%" PRIu64 " pixels",
                       name, size, width, height);
    return TU_OK;
}

/* ---- Channels ---- */

static void to_grey(tu__image *image) {
    size_t count = (size_t)(image->height * image->width);
    uint8_t *pixels = image->pixels;
    for (size_t i = 0; i < count; i++)
        pixels[i] =
            (uint8_t)((299 * pixels[3 * i] + 587 * pixels[3 * i + 1] + 114 * pixels[3 * i + 2] + 500) / 1000);
    image->channels = 1;
}

static tu_status to_colour(tu__image *image) {
    size_t count = (size_t)(image->height * image->width);
    uint8_t *pixels = tu__realloc(image->pixels, 3 * count, "an image");
    if (!pixels) return TU_NO_MEMORY;
    for (size_t i = count; i-- > 0;) pixels[3 * i] = pixels[3 * i + 1] = pixels[3 * i + 2] = pixels[i];
    image->pixels = pixels;
    image->channels = 3;
    return TU_OK;
}

static tu_status convert_channels(tu__image *image, int channels) {
    if (channels == 1 && image->channels == 3) to_grey(image);
    if (channels == 3 && image->channels == 1) return to_colour(image);
    return TU_OK;
}

/* ---- The interface ---- */

tu_status tu__image_decode(const char *name, const void *bytes, size_t size, int channels, tu__image *image) {
    *image = (tu__image){0};
    if (channels != 0 && channels != 1 && channels != 3)
        return tu_fail(TU_INVALID, "%s: cannot decode to %d channels: expected 1, 3, or 0 to keep them", name,
                       channels);
    tu_status status;
    if (tu__png_recognise(bytes, size))
        status = tu__png_decode(name, bytes, size, image);
    else if (tu__jpeg_recognise(bytes, size))
        status = tu__jpeg_decode(name, bytes, size, image);
    else
        return tu_fail(TU_INVALID, "%s is not an image: expected a PNG or JPEG file", name);
    if (status == TU_OK) status = convert_channels(image, channels);
    if (status != TU_OK) tu__image_free(image);
    return status;
}

/* Reads a regular file; the caller frees `*bytes` with tu__free. */
static tu_status read_file(const char *path, unsigned char **bytes, size_t *size) {
    struct stat info;
    if (stat(path, &info) != 0) {
        tu_status status = errno == ENOENT || errno == ENOTDIR ? TU_NOT_FOUND : TU_IO;
        return tu_fail(status, "cannot read '%s': %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode))
        return tu_fail(TU_INVALID, "cannot read '%s': it is not a regular file", path);
    FILE *file = fopen(path, "rb");
    if (!file) return tu_fail(TU_IO, "cannot read '%s': %s", path, strerror(errno));
    *bytes = tu__alloc((size_t)info.st_size, "an image file");
    tu_status status = *bytes ? TU_OK : TU_NO_MEMORY;
    if (*bytes) *size = fread(*bytes, 1, (size_t)info.st_size, file);
    if (*bytes && ferror(file)) {
        status = tu_fail(TU_IO, "cannot read '%s': %s", path, strerror(errno));
        tu__free(*bytes);
    }
    fclose(file);
    return status;
}

tu_status tu__image_load(const char *path, int channels, tu__image *image) {
    unsigned char *bytes = NULL;
    size_t size = 0;
    *image = (tu__image){0};
    TU_TRY(read_file(path, &bytes, &size));
    tu_status status = tu__image_decode(path, bytes, size, channels, image);
    tu__free(bytes);
    return status;
}

void tu__image_free(tu__image *image) {
    tu__free(image->pixels);
    *image = (tu__image){0};
}
