/* Fused pointwise kernels for the clusters of device/kit/fusion.h. pointwise_text.c writes the program of a cluster as
 * CUDA C; pointwise.c turns programs into kernels and launches them. */
#ifndef TU__DEVICE_CUDA_OPS_POINTWISE_H
#define TU__DEVICE_CUDA_OPS_POINTWISE_H

#include "device/cuda/ops/ops.h"
#include "device/kit/fusion.h"

enum { CUDA_MAX_LOADS = 3 * TU__MAX_CLUSTER_NODES };

typedef struct cuda_sum {
    uint32_t out; /* index in the kernel's writes */
    tu_dtype dtype;
    double divisor;
} cuda_sum;

/* One cluster: its program and the program's arguments. The program's structure `subkernel` contains, in this order,
 * the addresses, the number of packs, strides, numbers, and dividers by the sizes of axes. */
struct cuda_subkernel {
    const char *body; /* the program's text; equal texts are the same program */
    bool wide;
    int width; /* elements per pack: processed together by a thread */
    int64_t packs;
    uint32_t address_count, stride_count, number_count, axis_count;
    const uint32_t *address; /* index in the kernel's reads, or CUDA_WRITE + index in its writes */
    const int64_t *strides;
    const double *numbers;
    const fast_divmod *axes;
    tu__sum_kind sums;
    int64_t groups, rows, row; /* shape of the space if it is summed; groups: of column sums, else 1 */
    uint32_t sum_count;
    cuda_sum sum[TU__MAX_SUMS];
};

enum { CUDA_WRITE = 1 << 20 };

/* pointwise_text.c: writes the subkernel and adds the kernel's reads and writes. `product`: an f32 operand of the space's shape
 * that the kernel computes and passes to the program; NULL: none. */
tu_status cuda_write_program(tu__kernel *k, tu__cluster *c, const tu__edge *product,
                             cuda_subkernel *subkernel);
/* pointwise.c: writes the structure of a subkernel. Without addresses if the kernel is not bound. */
void cuda_write_arguments(const tu__kernel *k, const cuda_subkernel *subkernel, unsigned char *arguments);

/* Returns the size of the subkernel's structure. */
static inline size_t cuda_subkernel_size(const cuda_subkernel *p) {
    size_t words = 1 + (p->address_count ? p->address_count : 1) + (p->stride_count ? p->stride_count : 1) +
                   (p->number_count ? p->number_count : 1);
    size_t bytes = 8 * words + sizeof(fast_divmod) * (p->axis_count ? p->axis_count : 1);
    return (bytes + 7) & ~(size_t)7;
}

#endif
