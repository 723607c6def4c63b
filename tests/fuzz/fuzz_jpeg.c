/* Decodes arbitrary bytes as a JPEG file. That must fail, or return all pixels. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition) {
    if (!condition) {
        fprintf(stderr, "%s\n", tu_message());
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tu__image image;
    int channels = size % 3 == 2 ? 0 : (int)(size % 3) * 2 + 1;
    tu_status status = tu__image_decode("input", data, size, channels, &image);
    require(status == TU_OK || status == TU_INVALID || status == TU_NO_MEMORY || status == TU_UNSUPPORTED);
    require((status == TU_OK) == (image.pixels != NULL));
    if (status != TU_OK) return 0;
    require(image.height > 0 && image.width > 0 && (image.channels == 1 || image.channels == 3));
    unsigned sum = 0;
    for (int64_t i = 0; i < image.height * image.width * image.channels; i++) sum += image.pixels[i];
    require(sum < UINT32_MAX);
    tu__image_free(&image);
    return 0;
}
