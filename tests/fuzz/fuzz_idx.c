/* Parses arbitrary bytes as an IDX file. If that succeeds, the file must contain exactly the elements of the
 * header. */
#include <stdint.h>
#include <stdlib.h>

#include "data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int rank = 1; rank <= TU__IDX_MAX_RANK; rank++) {
        tu__idx idx;
        if (tu__idx_parse("fuzz", data, size, rank, &idx) != TU_OK) continue;
        int64_t elements = 1;
        for (int i = 0; i < rank; i++) elements *= idx.dim[i];
        if (idx.elements + elements != data + size) abort();
    }
    return 0;
}
