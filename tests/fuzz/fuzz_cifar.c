/* Parses arbitrary bytes as CIFAR-10 records. If that succeeds, every label must be 0 to 9, and all bytes must
 * reach the callback. */
#include <stdint.h>
#include <stdlib.h>

#include "data/cifar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tu_status add_bytes(void *context, const uint8_t *image, int32_t label) {
    uint64_t *sum = context;
    if (label < 0 || label > 9) abort();
    *sum += (uint64_t)label;
    for (int i = 0; i < 3 * TU__CIFAR_PIXELS; i++) *sum += image[i];
    return TU_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t sum = 0, expected = 0;
    if (tu__cifar_parse("fuzz", data, size, add_bytes, &sum) != TU_OK) return 0;
    for (size_t i = 0; i < size; i++) expected += data[i];
    if (sum != expected) abort();
    return 0;
}
