/* Parses IDX files. The header is two zeros, the element type, the rank, and a big-endian u32 for each dimension. */
#include "data/idx.h"

enum { UNSIGNED_BYTE = 0x08 };

static uint32_t big_endian(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

tu_status tu__idx_parse(const char *name, const void *bytes, size_t size, int rank, tu__idx *idx) {
    const unsigned char *p = bytes;
    if (size < 4 || p[0] != 0 || p[1] != 0)
        return tu_fail(TU_CORRUPT, "'%s' is not an IDX file: expected two zero bytes at its start", name);
    if (p[2] != UNSIGNED_BYTE)
        return tu_fail(TU_CORRUPT, "'%s': its elements have type 0x%02x: expected unsigned bytes, 0x08", name,
                       p[2]);
    if (p[3] != rank || rank > TU__IDX_MAX_RANK)
        return tu_fail(TU_CORRUPT, "'%s': it has %d dimensions: expected %d", name, p[3], rank);
    size_t header = 4 + 4 * (size_t)rank;
    if (size < header) return tu_fail(TU_CORRUPT, "'%s' is truncated: it ends inside its header", name);
    uint64_t elements = 1;
    idx->rank = rank;
    for (int i = 0; i < rank; i++) {
        uint32_t dim = big_endian(p + 4 + 4 * (size_t)i);
        if (dim == 0 || __builtin_mul_overflow(elements, dim, &elements))
            return tu_fail(TU_CORRUPT, "'%s': dimension %d is %u, which is out of range", name, i, dim);
        idx->dim[i] = dim;
    }
    if (elements != size - header)
        return tu_fail(TU_CORRUPT,
                       "'%s' is truncated or damaged: it has %zu bytes of elements, expected %llu", name,
                       size - header, (unsigned long long)elements);
    idx->elements = p + header;
    return TU_OK;
}
