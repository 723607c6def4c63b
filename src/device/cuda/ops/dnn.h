/* cuDNN's graph API in C: descriptors, engines, plans.
 *
 * To cuDNN a computation is a graph of operations over tensors, each a descriptor with attributes; an engine is a
 * kernel, or a generator of kernels, that can do such a graph; a plan is an engine made ready. A cuda_dnn_plan owns
 * everything it took to get there and frees it at once. conv_dnn.c describes convolutions with it:
 *
 *     cuda_dnn_plan p;
 *     TU_TRY(cuda_dnn_begin(&p, device));
 *     TU_TRY(cuda_dnn_describe(&p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, 5, attributes, &tensor));
 *     …                                                     // operations, and p.graph of them
 *     TU_TRY(cuda_dnn_choose(&p, &wish));                   // p.plan stays NULL when cuDNN has no engine
 *     …
 *     TU_TRY(cuda_dnn_execute(&p, addresses, workspace));   // into the device's stream
 *     cuda_dnn_free(&p);
 */
#ifndef TU__DEVICE_CUDA_OPS_DNN_H
#define TU__DEVICE_CUDA_OPS_DNN_H

#include "device/cuda/runtime/cuda.h"

enum { CUDA_DNN_OPERANDS = 4 }; /* most tensors in memory that a graph has */

typedef struct cuda_dnn_plan {
    cuda_device *device;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t *owned;
    size_t owned_count, owned_capacity;
    /* the lowering rule's: a finalized graph, and its tensors in memory; their unique ids are 1, 2, … in this order */
    cudnnBackendDescriptor_t graph;
    int operand_count;
    size_t operand_bytes[CUDA_DNN_OPERANDS];
    /* what was chosen */
    cudnnBackendDescriptor_t plan; /* NULL: there is no engine */
    cudnnBackendDescriptor_t pack; /* addresses, made when they are first seen: */
    void *packed[CUDA_DNN_OPERANDS + 1];
    int64_t engine, workspace_bytes;
    bool tensor_cores;
    double seconds; /* it was seen to take; 0 where nothing is timed */
} cuda_dnn_plan;

/* Which engines will do. */
typedef struct cuda_dnn_wish {
    const char *key;   /* the problem, for the table of choices */
    bool full_f32;     /* products of f32 are not to be rounded to tf32 */
    bool tensor_cores; /* those that use them come first */
} cuda_dnn_wish;

typedef struct cuda_dnn_attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *elements;
} cuda_dnn_attribute;
#define CUDA_DNN_ATTRIBUTE(name, type, count, elements)                                                      \
    { CUDNN_ATTR_##name, CUDNN_TYPE_##type, count, elements }

/* An empty plan. Fails when cuDNN is missing; the plan can be freed all the same. */
tu_status cuda_dnn_begin(cuda_dnn_plan *p, cuda_device *device);
/* Makes a descriptor that the plan owns, sets its attributes and finalizes it. *made is NULL, and the answer TU_OK, when
 * cuDNN declines what it describes. */
tu_status cuda_dnn_describe(cuda_dnn_plan *p, cudnnBackendDescriptorType_t type, size_t count,
                            const cuda_dnn_attribute *attributes, cudnnBackendDescriptor_t *made);
/* Finds the first engine that will do in the order of cuDNN's advice; with device->tune the fastest of the first few. */
tu_status cuda_dnn_choose(cuda_dnn_plan *p, const cuda_dnn_wish *wish);
/* Enqueues it. `addresses`: one an operand. */
tu_status cuda_dnn_execute(cuda_dnn_plan *p, void *const *addresses, void *workspace);
/* Whether NaN comes out where nothing but NaN goes in: tried out, since no note of an engine tells. */
tu_status cuda_dnn_keeps_nan(cuda_dnn_plan *p, tu_dtype dtype, bool *keeps);
void cuda_dnn_free(cuda_dnn_plan *p);

#endif
