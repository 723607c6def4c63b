/* Element types and shapes. */
#include <string.h>

#include <tutti/types.h>

#include "base/status.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[TU_DTYPE_COUNT] = {
#define DTYPE_ROW(id, text, size) [TU_##id] = {text, size},
    TU_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

const char *tu_dtype_name(tu_dtype dtype) {
    return (unsigned)dtype < TU_DTYPE_COUNT ? dtypes[dtype].name : "invalid-type";
}

size_t tu_dtype_size(tu_dtype dtype) {
    return (unsigned)dtype < TU_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

bool tu_dtype_is_float(tu_dtype dtype) {
    return dtype == TU_F32 || dtype == TU_F64 || dtype == TU_BF16 || dtype == TU_F16;
}

tu_status tu_dtype_parse(const char *name, tu_dtype *dtype) {
    for (int i = 0; i < TU_DTYPE_COUNT; i++)
        if (strcmp(name, dtypes[i].name) == 0) {
            *dtype = (tu_dtype)i;
            return TU_OK;
        }
    return tu_fail(TU_INVALID,
                   "unknown element type '%s': expected f32, f64, bf16, f16, i32, i64, u8, bool or i8", name);
}

int64_t tu_shape_elements(tu_shape shape) {
    int64_t count = 1;
    for (int64_t i = 0; i < shape.rank; i++) count *= shape.dim[i];
    return count;
}

bool tu_shape_equal(tu_shape a, tu_shape b) {
    if (a.rank != b.rank) return false;
    for (int64_t i = 0; i < a.rank; i++)
        if (a.dim[i] != b.dim[i]) return false;
    return true;
}

size_t tu_type_bytes(tu_type type) {
    return (size_t)tu_shape_elements(type.shape) * tu_dtype_size(type.dtype);
}

tu_shape tu_shape_of(size_t rank, const int64_t *dims) {
    tu_shape shape = {.rank = -1};
    if (rank > TU_MAX_RANK) return shape;
    shape.rank = (int64_t)rank;
    for (size_t i = 0; i < rank; i++) shape.dim[i] = dims[i];
    return shape;
}
