/* Image files: selects the decoder, converts channels and reads files.
 *
 * Grey is converted to colour by repetition, colour to grey with the weights of ITU-R BT.601, the same for every
 * format, so that a data set does not depend on the format of its files. Colour profiles and EXIF orientation are not
 * applied. */
#include "io/image.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map_file.h"
#include "base/open_file.h"
#include "io/image_codec.h"

/* The largest image has this many bytes of pixels (4 channels of 16 bits), and compression makes it smaller. */
#define MAX_FILE_BYTES (8LL * TU__IMAGE_MAX_PIXELS)

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

static tu_status fail_unknown_format(const char *name) {
    return tu_fail(TU_INVALID, "%s is not an image: expected a PNG, JPEG, GIF or WebP file", name);
}

static const struct format {
    bool (*recognise)(const void *bytes, size_t size); /* by the first bytes of a file, at most MAGIC_BYTES */
    tu_status (*decode)(const char *name, const void *bytes, size_t size, tu__image *image);
} formats[] = {
    {tu__png_recognise, tu__png_decode},
    {tu__jpeg_recognise, tu__jpeg_decode},
    {tu__gif_recognise, tu__gif_decode},
    {tu__webp_recognise, tu__webp_decode},
};
enum { MAGIC_BYTES = 12 };

/* Returns the format of a file from its first bytes, or NULL. */
static const struct format *find_format(const void *bytes, size_t size) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].recognise(bytes, size)) return &formats[i];
    return NULL;
}

tu_status tu__image_decode(const char *name, const void *bytes, size_t size, int channels, tu__image *image) {
    *image = (tu__image){0};
    if (channels != 0 && channels != 1 && channels != 3)
        return tu_fail(TU_INVALID, "%s: cannot decode to %d channels: expected 1, 3, or 0 to keep them", name,
                       channels);
    const struct format *format = find_format(bytes, size);
    if (!format) return fail_unknown_format(name);
    tu_status status = format->decode(name, bytes, size, image);
    if (status == TU_OK) status = convert_channels(image, channels);
    if (status != TU_OK) tu__image_free(image);
    return status;
}

/* Fails before it reads all of a file that is no image, or larger than any image can be. */
static tu_status check_file(const char *path) {
    unsigned char magic[MAGIC_BYTES];
    int fd;
    struct stat info;
    TU_TRY(tu__open_file(NULL, path, &fd, &info));
    ssize_t got = pread(fd, magic, sizeof magic, 0);
    close(fd);
    if (got >= 0 && !find_format(magic, (size_t)got)) return fail_unknown_format(path);
    if (info.st_size <= MAX_FILE_BYTES) return TU_OK;
    return tu_fail(TU_INVALID, "%s has %lld bytes: expected an image file of at most %lld", path,
                   (long long)info.st_size, MAX_FILE_BYTES);
}

tu_status tu__image_load(const char *path, int channels, tu__image *image) {
    tu__mapped_file file; /* not read: a file may be far longer than its picture */
    *image = (tu__image){0};
    TU_TRY(check_file(path));
    TU_TRY(tu__map_file(path, &file));
    tu_status status = tu__image_decode(path, file.bytes, file.size, channels, image);
    if (tu__check_mapping(&file, path) != TU_OK) {
        tu__image_free(image);
        status = TU_IO;
    }
    tu__unmap_file(&file);
    return status;
}

void tu__image_free(tu__image *image) {
    tu__free(image->pixels);
    *image = (tu__image){0};
}
