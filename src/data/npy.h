/* NumPy's .npy files: a header that is a Python dictionary in text, then the elements. */
#ifndef TU__DATA_NPY_H
#define TU__DATA_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

enum { TU__NPY_MAX_RANK = 8 };

typedef enum tu__npy_type {
    TU__NPY_U1,
    TU__NPY_I1,
    TU__NPY_I4,
    TU__NPY_I8,
    TU__NPY_F4,
    TU__NPY_F8,
    TU__NPY_TYPE_COUNT
} tu__npy_type;

typedef struct tu__npy {
    tu__npy_type type;
    int rank;
    int64_t dim[TU__NPY_MAX_RANK];
    int64_t elements;
    const unsigned char *data; /* in the bytes that were parsed */
} tu__npy;

/* Versions 1 to 3, little-endian u1, i1, i4, i8, f4 and f8, in C order; TU_CORRUPT or TU_UNSUPPORTED, naming `name`, for
 * anything else. */
tu_status tu__npy_parse(const char *name, const void *bytes, size_t size, tu__npy *npy);

bool tu__npy_is_integer(tu__npy_type type);
/* Elements, which need not be aligned. The second for integers alone. */
double tu__npy_number(const tu__npy *npy, int64_t index);
int64_t tu__npy_integer(const tu__npy *npy, int64_t index);

#endif
