/* The element types of safetensors files, in the order in which the reference writer sorts them, least first: what the
 * reader and the writer share. */
#ifndef TU__IO_SAFETENSORS_TYPES_H
#define TU__IO_SAFETENSORS_TYPES_H

#include <tutti/types.h>

enum {
    TU__SAFETENSORS_PREFIX = 8,              /* the length of the header */
    TU__SAFETENSORS_LONGEST = 100000000,     /* header that the reference parser takes */
    TU__SAFETENSORS_FOREIGN = TU_DTYPE_COUNT /* a type that the format has and Tutti has not */
};

/* name, bits of an element, ours */
#define TU__SAFETENSORS_TYPES(X)                                                                             \
    X("BOOL", 8, TU_BOOL)                                                                                    \
    X("F4", 4, TU__SAFETENSORS_FOREIGN)                                                                      \
    X("F6_E2M3", 6, TU__SAFETENSORS_FOREIGN)                                                                 \
    X("F6_E3M2", 6, TU__SAFETENSORS_FOREIGN)                                                                 \
    X("U8", 8, TU_U8)                                                                                        \
    X("I8", 8, TU__SAFETENSORS_FOREIGN)                                                                      \
    X("F8_E5M2", 8, TU__SAFETENSORS_FOREIGN)                                                                 \
    X("F8_E4M3", 8, TU__SAFETENSORS_FOREIGN)                                                                 \
    X("F8_E8M0", 8, TU__SAFETENSORS_FOREIGN)                                                                 \
    X("I16", 16, TU__SAFETENSORS_FOREIGN)                                                                    \
    X("U16", 16, TU__SAFETENSORS_FOREIGN)                                                                    \
    X("F16", 16, TU_F16)                                                                                     \
    X("BF16", 16, TU_BF16)                                                                                   \
    X("I32", 32, TU_I32)                                                                                     \
    X("U32", 32, TU__SAFETENSORS_FOREIGN)                                                                    \
    X("F32", 32, TU_F32)                                                                                     \
    X("C64", 64, TU__SAFETENSORS_FOREIGN)                                                                    \
    X("F64", 64, TU_F64)                                                                                     \
    X("I64", 64, TU_I64)                                                                                     \
    X("U64", 64, TU__SAFETENSORS_FOREIGN)

typedef struct tu__safetensors_type {
    const char *name;
    unsigned bits;
    int dtype; /* a tu_dtype, or TU__SAFETENSORS_FOREIGN */
} tu__safetensors_type;

#endif
