/* What every decoder of images must do with arbitrary bytes: fail, or return all pixels. */
#ifndef TESTS_FUZZ_FUZZ_IMAGE_H
#define TESTS_FUZZ_FUZZ_IMAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/image.h"

static void require(bool condition) {
    if (condition) return;
    fprintf(stderr, "%s\n", tu_message());
    abort();
}

static void decode_image(const uint8_t *data, size_t size) {
    static const int conversions[] = {0, 1, 3};
    tu__image image;
    int channels = conversions[size % 3];
    tu_status status = tu__image_decode("input", data, size, channels, &image);
    require(status == TU_OK || status == TU_INVALID || status == TU_NO_MEMORY || status == TU_UNSUPPORTED);
    require((status == TU_OK) == (image.pixels != NULL));
    if (status != TU_OK) return;
    require(image.height > 0 && image.width > 0 && (image.channels == 1 || image.channels == 3));
    require(channels == 0 || image.channels == channels);
    uint64_t sum = 0;
    for (int64_t i = 0; i < image.height * image.width * image.channels; i++) sum += image.pixels[i];
    require(sum < UINT64_MAX);
    tu__image_free(&image);
}

#endif
