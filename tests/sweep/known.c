/* Regression cases, in which a kernel was once wrong. They run before every sweep, on every device. */
#include "sweep/sweep.h"

#define CASES(X)                                                                                             \
    X(uneven_stride_3, TU_F64)    /* cuDNN 9.14, filter gradient: relative error 0.98 */                     \
    X(broadcast_product, TU_BF16) /* oneDNN 2.6.3 with AMX: 0.99 */                                          \
    X(broadcast_left, TU_BF16)                                                                               \
    X(odd_depth, TU_BF16)                /* oneDNN 2.6.3 with AMX on 2 threads: illegal instruction */       \
    X(odd_sizes, TU_BF16)                /* oneDNN 2.6.3 with AMX on 3 threads, a gradient: 8e28 */          \
    X(pixels_of_30_odd_outputs, TU_BF16) /* oneDNN 2.6.3, input gradient: 0.35 */                            \
    X(pixels_of_30_one_output, TU_BF16)  /* 2.0 */                                                           \
    X(grouped_stride_3_narrow, TU_BF16)  /* oneDNN 2.6.3, filter gradient: 1.8 */                            \
    X(grouped_stride_3_wide, TU_BF16)                                                                        \
    X(depthwise_6x7, TU_BF16) /* oneDNN 2.6.3: 1e37 */                                                       \
    X(depthwise_6x7_stride_3, TU_BF16)                                                                       \
    X(depthwise_dilated, TU_BF16)           /* oneDNN 2.6.3, filter gradient: 5.6 */                         \
    X(depthwise_dilated_padded, TU_BF16)    /* 3e27 */                                                       \
    X(dilated_column, TU_BF16)              /* oneDNN 2.6.3 on 3 threads, filter gradient: 7e36 */           \
    X(stride_4_wide, TU_BF16)               /* oneDNN 2.6.3 on 3 threads, forward: 4e12 */                   \
    X(stride_4, TU_BF16)                    /* oneDNN 2.6.3 with AMX on 3 threads, forward: 0.08 */          \
    X(stride_2_4, TU_BF16)                  /* oneDNN 2.6.3 with AMX on 3 threads, forward */                \
    X(one_output_stride_2_1, TU_BF16)       /* oneDNN 2.6.3 on 3 threads, filter gradient: 0.1 */            \
    X(strided_pointwise_8, TU_BF16)         /* oneDNN 2.6.3 on 3 threads, input gradient: 2.5 */             \
    X(strided_pointwise, TU_F32)            /* oneDNN 2.6.3 with AVX2, filter gradient */                    \
    X(strided_pointwise_f32_8, TU_F32)      /* oneDNN 2.6.3 with AVX-512 on 2 threads, forward, at times */  \
    X(strided_pointwise_f32_4, TU_F32)      /* the same, filter gradient */                                  \
    X(one_channel_dilated_strided, TU_BF16) /* cuDNN 9.14: illegal instruction on the GPU */                 \
    X(few_channels_dilated_strided, TU_F32) /* cuDNN 9.14 in tf32: execution failed */                       \
    X(rounded_parts, TU_BF16)               /* cuDNN 9.14, filter gradient: partial sums rounded to bf16 */  \
    X(pointwise_5x1, TU_BF16)               /* oneDNN 2.6.3 limited to AVX512_CORE, forward */               \
    X(strided_transposed, TU_BF16)          /* cuDNN 9.14: partial sums rounded to bf16 */                   \
    X(pointwise_transposed, TU_BF16)

/* If a device has tf32, f32 cases run in tf32. */
#define DECLARE(name, dtype) void sweep_regression_##name(sweep *s);
CASES(DECLARE)

#define ROW(name, dtype) {#name, dtype, (dtype) == TU_F32, sweep_regression_##name},
const sweep_regression sweep_regressions[] = {CASES(ROW)};
const int sweep_regression_count = sizeof sweep_regressions / sizeof *sweep_regressions;
