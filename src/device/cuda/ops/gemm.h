/* Matrix products by cuBLASLt: planned once, enqueued many times.
 *
 * Used by matmul.c for the matmul operation, by conv_gemm.c for 1x1 convolutions of models, and by linalg.c to update blocks
 * of triangular systems.
 *
 *     cuda_gemm g = {.m = m, .n = n, .k = k, .a_row_stride = k, .b_row_stride = n, .out_row_stride = n, .batch = 1,
 *                    .dtype = TU_F32, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
 *     TU_TRY(cuda_gemm_plan_new(device, &g, &plan));      // TU_UNSUPPORTED: the library has no kernel for it
 *     k->workspace_bytes = cuda_gemm_workspace(plan);
 *     TU_TRY(cuda_gemm_run(k, plan, &(cuda_gemm_operands){a, b, out, k->workspace}));
 */
#ifndef TU__DEVICE_CUDA_OPS_GEMM_H
#define TU__DEVICE_CUDA_OPS_GEMM_H

#include "device/cuda/runtime/cuda.h"

/* out [m, n] = op(a) [m, k] op(b) [k, n], all row-major; `batch` times. */
typedef struct cuda_gemm {
    int64_t m, n, k;
    bool transpose_a, transpose_b;                      /* stored as [k, m], [n, k] */
    int64_t a_row_stride, b_row_stride, out_row_stride; /* elements from one row to the next */
    int64_t batch;                                      /* at most INT32_MAX */
    int64_t a_batch_stride, b_batch_stride,
        out_batch_stride; /* elements from one matrix of the batch to the next; 0: the same matrix */
    size_t offset_bytes; /* addresses are multiples of 64 bytes plus multiples of this offset; 0: no offset */
    tu_dtype dtype;      /* f32, f64, bf16 or f16, of all three */
    bool tf32;           /* f32 may be rounded to tf32 */
    bool subtract;       /* out -= instead of out = */
    bool residual;       /* adds a matrix with the layout of out, before the epilogue; not with `subtract` */
    cublasLtEpilogue_t epilogue; /* biases are [n] */
    int64_t bias_batch_stride;   /* elements from the bias of one matrix to the next; 0: all have the same */
} cuda_gemm;

typedef struct cuda_gemm_operands {
    const void *a, *b;
    void *out, *workspace;
    const void *bias, *residual; /* not the address of `out` */
} cuda_gemm_operands;

typedef struct cuda_gemm_plan cuda_gemm_plan;

/* Chooses an algorithm: the library's first suggestion, or with device->tune the fastest of several. Returns
 * TU_UNSUPPORTED, without a message, if there is none. */
tu_status cuda_gemm_plan_new(cuda_device *device, const cuda_gemm *gemm, cuda_gemm_plan **plan);
void cuda_gemm_plan_free(cuda_gemm_plan *plan); /* NULL is ignored */
/* Tests whether a product of NaN is NaN after the epilogue: a relu of cuBLASLt may turn it into 0. False if there is no memory
 * for the test. */
tu_status cuda_gemm_keeps_nan(cuda_device *device, const cuda_gemm *gemm, cuda_gemm_plan *plan, bool *keeps);
size_t cuda_gemm_workspace(const cuda_gemm_plan *plan);
tu_status cuda_gemm_run(const tu__kernel *k, const cuda_gemm_plan *plan, const cuda_gemm_operands *o);

#endif
