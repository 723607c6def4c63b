/* NumPy's .npy files: a header with a Python dictionary as text, then the elements. */
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
    const unsigned char *data; /* points into the parsed bytes */
} tu__npy;

/* Parses versions 1 to 3 with little-endian u1, i1, i4, i8, f4 and f8 in C order. Fails with TU_CORRUPT or
 * TU_UNSUPPORTED (the message contains `name`) for any other file. */
tu_status tu__npy_parse(const char *name, const void *bytes, size_t size, tu__npy *npy);

bool tu__npy_is_integer(tu__npy_type type);
/* Return an element; the data need not be aligned. tu__npy_integer is only for integer types. */
double tu__npy_number(const tu__npy *npy, int64_t index);
int64_t tu__npy_integer(const tu__npy *npy, int64_t index);

#endif
