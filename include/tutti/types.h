/* Element types and shapes: the types of values in a graph.
 *
 * Shapes are static: every dimension is a positive number that is known when the graph is built. A scalar has rank 0.
 *
 *     tu_shape s = TU_SHAPE(8, 24, 24, 3);        // NHWC
 *     tu_shape scalar = TU_SCALAR;
 */
#ifndef TUTTI_TYPES_H
#define TUTTI_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TU_MAX_RANK 8

/* constant, name, bytes of an element; new types are added at the end */
#define TU_DTYPE_LIST(X)                                                                                     \
    X(F32, "f32", 4)                                                                                         \
    X(F64, "f64", 8)                                                                                         \
    X(BF16, "bf16", 2)                                                                                       \
    X(F16, "f16", 2)                                                                                         \
    X(I32, "i32", 4)                                                                                         \
    X(I64, "i64", 8)                                                                                         \
    X(U8, "u8", 1)                                                                                           \
    X(BOOL, "bool", 1)                                                                                       \
    X(I8, "i8", 1)

typedef enum tu_dtype {
#define TU_DTYPE_ENUM(name, text, bytes) TU_##name,
    TU_DTYPE_LIST(TU_DTYPE_ENUM)
#undef TU_DTYPE_ENUM
        TU_DTYPE_COUNT
} tu_dtype;

/* tu_shape and tu_type are frozen: they get no more fields. */
typedef struct tu_shape {
    int64_t rank;
    int64_t dim[TU_MAX_RANK]; /* entries from `rank` on are zero */
} tu_shape;

typedef struct tu_type {
    tu_dtype dtype;
    tu_shape shape;
} tu_type;

TU_API const char *tu_dtype_name(tu_dtype dtype);
TU_API size_t tu_dtype_size(tu_dtype dtype);
TU_API bool tu_dtype_is_float(tu_dtype dtype);
/* Finds an element type by its name, such as "bf16". */
TU_API tu_status tu_dtype_parse(const char *name, tu_dtype *dtype);

/* Returns the number of elements; 1 for a scalar. */
TU_API int64_t tu_shape_elements(tu_shape shape);
TU_API bool tu_shape_equal(tu_shape a, tu_shape b);
/* Returns the bytes of a dense tensor of this type. */
TU_API size_t tu_type_bytes(tu_type type);

/* Makes a shape of `rank` dimensions. TU_SHAPE calls this. If there are more than TU_MAX_RANK, the shape is invalid
 * (rank -1), and the operation that gets it reports that. */
TU_API tu_shape tu_shape_of(size_t rank, const int64_t *dims);

/* Convert arrays in host memory between float and bf16 or f16. C has no types for these, so an element is a uint16_t
 * with its bits; feeds, fetches, variables and safetensors files use the same. A float is rounded to the nearest
 * value, ties to even. A float beyond the largest value becomes infinity, and NaN stays NaN. Converting to float is
 * exact.
 *
 *     float bias[64] = {0};
 *     uint16_t half[64];
 *     tu_f16_from_f32(bias, 64, half);
 *     tu_state_set(state, "conv1/bias", half, sizeof half);
 */
TU_API void tu_bf16_from_f32(const float *source, size_t count, uint16_t *target);
TU_API void tu_f16_from_f32(const float *source, size_t count, uint16_t *target);
TU_API void tu_f32_from_bf16(const uint16_t *source, size_t count, float *target);
TU_API void tu_f32_from_f16(const uint16_t *source, size_t count, float *target);

#ifdef __cplusplus
}
#include <initializer_list>
/* C++ has no compound literals, so TU_SHAPE uses an initializer list there. */
static inline tu_shape tu_shape_from(std::initializer_list<int64_t> dims) {
    return tu_shape_of(dims.size(), dims.begin());
}
#define TU_SHAPE(...) tu_shape_from({__VA_ARGS__})
#else
#define TU_SHAPE(...)                                                                                        \
    tu_shape_of(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})
#endif
#define TU_SCALAR tu_shape_of(0, NULL)

#endif
