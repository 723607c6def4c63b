/* Decodes WebP with libwebp: still pictures, with and without loss, transparent pixels on black. */
#include "io/image_codec.h"

#include <string.h>

bool tu__webp_recognise(const void *bytes, size_t size) {
    const char *b = bytes;
    return size >= 12 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0;
}

#ifdef TU_HAVE_WEBP

#include <webp/decode.h>

#include "base/alloc.h"

/* A picture of one colour takes a few dozen bytes, whatever its size. */
enum { MAX_PIXELS_PER_BYTE = 1 << 20 };

static void blend_with_black(uint8_t *pixels, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < 3; c++)
            pixels[3 * i + c] = (uint8_t)((pixels[4 * i + c] * pixels[4 * i + 3] + 127) / 255);
}

static tu_status decode_pixels(const char *name, const void *bytes, size_t size,
                               const WebPBitstreamFeatures *f, uint8_t *pixels) {
    size_t count = (size_t)f->width * (size_t)f->height;
    int stride = f->width * (f->has_alpha ? 4 : 3);
    const uint8_t *decoded = f->has_alpha ? WebPDecodeRGBAInto(bytes, size, pixels, 4 * count, stride)
                                          : WebPDecodeRGBInto(bytes, size, pixels, 3 * count, stride);
    if (!decoded) return tu_fail(TU_INVALID, "%s is not a valid WebP file: it is truncated or damaged", name);
    if (f->has_alpha) blend_with_black(pixels, count);
    return TU_OK;
}

tu_status tu__webp_decode(const char *name, const void *bytes, size_t size, tu__image *image) {
    WebPBitstreamFeatures f;
    if (WebPGetFeatures(bytes, size, &f) != VP8_STATUS_OK)
        return tu_fail(TU_INVALID, "%s is not a valid WebP file: its header is truncated or damaged", name);
    if (f.has_animation)
        return tu_fail(TU_INVALID, "%s is an animated WebP file: expected a still picture", name);
    TU_TRY(tu__image_check_size(name, (uint64_t)f.width, (uint64_t)f.height, size, MAX_PIXELS_PER_BYTE));
    tu__image decoded = {.height = f.height, .width = f.width, .channels = 3};
    decoded.pixels = tu__alloc_array((size_t)f.width * (f.has_alpha ? 4 : 3), (size_t)f.height, "an image");
    tu_status status = decoded.pixels ? decode_pixels(name, bytes, size, &f, decoded.pixels) : TU_NO_MEMORY;
    if (status == TU_OK)
        *image = decoded;
    else
        tu__image_free(&decoded);
    return status;
}

#else

tu_status tu__webp_decode(const char *name, const void *bytes, size_t size, tu__image *image) {
    (void)bytes;
    (void)size;
    (void)image;
    return tu_fail(TU_UNSUPPORTED,
                   "%s is a WebP file, which this build cannot read: it was built without libwebp "
                   "(Debian: libwebp-dev)",
                   name);
}

#endif
