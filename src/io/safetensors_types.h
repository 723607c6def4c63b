/* The element types of safetensors files, in the sort order of the reference writer, lowest first. Shared by reader
 * and writer. */
#ifndef TU__IO_SAFETENSORS_TYPES_H
#define TU__IO_SAFETENSORS_TYPES_H

#include <tutti/types.h>

enum {
    TU__SAFETENSORS_PREFIX_BYTES = 8,            /* the length of the header, a u64 */
    TU__SAFETENSORS_MAX_HEADER = 100000000,      /* maximum header size of the reference parser */
    TU__SAFETENSORS_UNSUPPORTED = TU_DTYPE_COUNT /* a type that Tutti does not support */
};

/* name, bits per element, tu_dtype */
#define TU__SAFETENSORS_TYPES(X)                                                                             \
    X("BOOL", 8, TU_BOOL)                                                                                    \
    X("F4", 4, TU__SAFETENSORS_UNSUPPORTED)                                                                  \
    X("F6_E2M3", 6, TU__SAFETENSORS_UNSUPPORTED)                                                             \
    X("F6_E3M2", 6, TU__SAFETENSORS_UNSUPPORTED)                                                             \
    X("U8", 8, TU_U8)                                                                                        \
    X("I8", 8, TU_I8)                                                                                        \
    X("F8_E5M2", 8, TU__SAFETENSORS_UNSUPPORTED)                                                             \
    X("F8_E4M3", 8, TU__SAFETENSORS_UNSUPPORTED)                                                             \
    X("F8_E8M0", 8, TU__SAFETENSORS_UNSUPPORTED)                                                             \
    X("I16", 16, TU__SAFETENSORS_UNSUPPORTED)                                                                \
    X("U16", 16, TU__SAFETENSORS_UNSUPPORTED)                                                                \
    X("F16", 16, TU_F16)                                                                                     \
    X("BF16", 16, TU_BF16)                                                                                   \
    X("I32", 32, TU_I32)                                                                                     \
    X("U32", 32, TU__SAFETENSORS_UNSUPPORTED)                                                                \
    X("F32", 32, TU_F32)                                                                                     \
    X("C64", 64, TU__SAFETENSORS_UNSUPPORTED)                                                                \
    X("F64", 64, TU_F64)                                                                                     \
    X("I64", 64, TU_I64)                                                                                     \
    X("U64", 64, TU__SAFETENSORS_UNSUPPORTED)

typedef struct tu__safetensors_type {
    const char *name;
    unsigned bits;
    int dtype; /* a tu_dtype, or TU__SAFETENSORS_UNSUPPORTED */
} tu__safetensors_type;

#endif
