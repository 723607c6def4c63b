/* Decodes arbitrary bytes as a GIF file. That must fail, or return all pixels. */
#include "fuzz/fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode_image(data, size);
    return 0;
}
