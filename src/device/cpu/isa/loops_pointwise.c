/* Pointwise operations over tiles: a loop around each scalar expression of ops.def, in f32 and in f64.
 *
 * In f32 the functions exp, tanh etc. of the expressions are those of vector_math.h, and every loop is vectorised;
 * in f64 they are libm's. A tile is a few kilobytes in the L1 cache: see pointwise.c. */
#include <math.h>

#include "device/cpu/isa/loops.h"
#include "device/cpu/isa/vector_math.h"

#define TILE(real, function, ...)                                                                            \
    void function(int64_t n, const real *xs, const real *ys, const real *zs, real a, real b, real *out);     \
    void function(int64_t n, const real *xs, const real *ys, const real *zs, real a, real b, real *out) {    \
        (void)a, (void)b;                                                                                    \
        LOOP_INDEPENDENT                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                    \
            real x = xs[i], y = ys[i], z = zs[i]; /* unused ones are not loaded */                           \
            (void)x, (void)y, (void)z;                                                                       \
            out[i] = (real)(__VA_ARGS__);                                                                    \
        }                                                                                                    \
    }

#define OP(...)
#define K(number) ((double)(number))
#define POINTWISE(id, name, inputs, types, result, traits, attrs, gradient, ...)                             \
    TILE(double, LOOP(cpu_tile_f64_##name), __VA_ARGS__)
#include "graph/ops.def"
#undef K

/* From here on the functions are those of vector_math.h. Operation names are joined by ##, so the macros do not
 * change them. */
#define exp vm_exp
#define expm1 vm_expm1
#define log vm_log
#define log1p vm_log1p
#define sin vm_sin
#define cos vm_cos
#define tan vm_tan
#define tanh vm_tanh
#define erf vm_erf
#define pow vm_pow
#define sqrt __builtin_sqrtf
#define floor __builtin_floorf
#define ceil __builtin_ceilf
#define rint __builtin_rintf

#define OP(...)
#define K(number) ((float)(number))
#define POINTWISE(id, name, inputs, types, result, traits, attrs, gradient, ...)                             \
    TILE(float, LOOP(cpu_tile_f32_##name), __VA_ARGS__)
#include "graph/ops.def"
