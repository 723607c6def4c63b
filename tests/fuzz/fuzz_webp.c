/* Decodes arbitrary bytes as a WebP file. That must fail, or return all pixels.
 *
 * A few bytes can be a picture of 16,383 by 16,383 pixels, which takes a second to decode: such inputs are skipped. */
#include <string.h>

#include "fuzz/fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LARGEST_SIDE = 1024 };

static unsigned at(const uint8_t *data, size_t offset) {
    return data[offset] | (unsigned)data[offset + 1] << 8;
}

/* True if width and height in the header of the picture are not too large. */
static bool is_small(const uint8_t *data, size_t size) {
    for (size_t i = 12; i + 18 <= size; i++) {
        unsigned width = 0, height = 0;
        if (memcmp(data + i, "VP8L", 4) == 0) {
            width = at(data, i + 9) & 0x3FFF;
            height = (at(data, i + 10) >> 6 | (unsigned)data[i + 12] << 10) & 0x3FFF;
        } else if (memcmp(data + i, "VP8 ", 4) == 0) {
            width = at(data, i + 14) & 0x3FFF;
            height = at(data, i + 16) & 0x3FFF;
        }
        if (width >= LARGEST_SIDE || height >= LARGEST_SIDE) return false;
    }
    return size < 30 || memcmp(data + 12, "VP8X", 4) != 0 ||
           (at(data, 24) < LARGEST_SIDE && at(data, 27) < LARGEST_SIDE && !data[26] && !data[29]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (is_small(data, size)) decode_image(data, size);
    return 0;
}
