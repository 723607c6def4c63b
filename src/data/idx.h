/* IDX, the file format of MNIST: a header of big-endian numbers, then the elements. */
#ifndef TU__DATA_IDX_H
#define TU__DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

enum { TU__IDX_MAX_RANK = 4 };

typedef struct tu__idx {
    int rank;
    int64_t dim[TU__IDX_MAX_RANK];
    const uint8_t *elements; /* points into the parsed bytes */
} tu__idx;

/* Parses an IDX file of unsigned bytes with the given rank. Fails with TU_CORRUPT (the message contains `name`) for
 * any other file. */
tu_status tu__idx_parse(const char *name, const void *bytes, size_t size, int rank, tu__idx *idx);

#endif
