/* oneDNN: convolution and matrix product over dense tensors.
 *
 * dnnl.c supports oneDNN 2.x (Debian 12) and 3.x (Debian 13), whose interfaces differ; no other file includes its
 * header. In a build without oneDNN these functions return no operation, and callers use our own kernels. */
#ifndef TU__DEVICE_CPU_DNNL_H
#define TU__DEVICE_CPU_DNNL_H

#include "device/cpu/conv_direct.h"
#include "graph/graph.h"

/* Returns "2.6.3", or NULL in a build without oneDNN. */
const char *cpu_dnnl_version(void);

/* False if there is no oneDNN, or it cannot be limited to the instruction set in use. */
bool cpu_dnnl_usable(void);

/* An operation: a primitive, the reorders around it and their memory. The functions below set it to NULL if oneDNN
 * does not support it, or only by its reference code. */
typedef struct cpu_dnnl cpu_dnnl;

/* Activations are NHWC, filters OHWI. */
tu_status cpu_dnnl_convolution(const cpu_convolution *convolution, cpu_conv_result result, tu_dtype dtype,
                               int threads, cpu_dnnl **op);

/* c [batch, m, n] = a b. Strides are in elements; a batch stride of 0 repeats the matrix. */
typedef struct cpu_dnnl_product {
    int64_t batch, m, n, k;
    int64_t a_strides[3], b_strides[3]; /* batch, row, column: of a [m, k] and b [k, n] */
    tu_dtype dtype;
} cpu_dnnl_product;
tu_status cpu_dnnl_matmul(const cpu_dnnl_product *product, int threads, cpu_dnnl **op);

size_t cpu_dnnl_workspace(const cpu_dnnl *op);
/* Operands as in conv_direct.h: (x, filter), (y, filter), (x, y), (a, b); no bias, no relu. */
/* Several threads may run one operation at once, with different workspaces. */
tu_status cpu_dnnl_run(cpu_dnnl *op, const cpu_direct_operands *operands);
void cpu_dnnl_free(cpu_dnnl *op);

#endif
