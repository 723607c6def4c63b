/* Parses arbitrary bytes as a .npy file. If that succeeds, every element of the header's shape must be readable. */
#include <stdint.h>
#include <stdlib.h>

#include "data/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tu__npy npy;
    if (tu__npy_parse("fuzz", data, size, &npy) != TU_OK) return 0;
    int64_t elements = 1;
    for (int i = 0; i < npy.rank; i++) elements *= npy.dim[i];
    if (elements != npy.elements) abort();
    for (int64_t i = 0; i < elements; i++) {
        double number = tu__npy_number(&npy, i);
        if (tu__npy_is_integer(npy.type) && number != (double)tu__npy_integer(&npy, i)) abort();
    }
    return 0;
}
