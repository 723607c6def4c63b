/* A wrapper of cuDNN's graph API: descriptors, engines, plans.
 *
 * In cuDNN a computation is a graph of operations over tensors, each a descriptor with attributes. An engine is a
 * kernel, or a generator of kernels, for such a graph. A plan is an engine ready to run. A cuda_dnn_plan owns all its
 * descriptors. conv_dnn.c describes convolutions with it:
 *
 *     cuda_dnn_plan p;
 *     TU_TRY(cuda_dnn_begin(&p, device));
 *     TU_TRY(cuda_dnn_describe(&p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, 5, attributes, &tensor));
 *     …                                                     // operations, then p.graph
 *     TU_TRY(cuda_dnn_choose(&p, &needs));                  // p.plan stays NULL if cuDNN has no engine
 *     …
 *     TU_TRY(cuda_dnn_execute(&p, cuda_stream(k), addresses, workspace));
 *     cuda_dnn_free(&p);
 */
#ifndef TU__DEVICE_CUDA_OPS_DNN_H
#define TU__DEVICE_CUDA_OPS_DNN_H

#include "device/cuda/runtime/cuda.h"

enum { CUDA_DNN_OPERANDS = 5 }; /* maximum number of tensors in memory */

typedef struct cuda_dnn_plan {
    cuda_device *device;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t *owned; /* all descriptors, to be destroyed */
    size_t owned_count, owned_capacity;
    /* set by the lowering rule: a finalized graph, and its tensors in memory, whose unique ids are 1, 2, … in this
     * order */
    cudnnBackendDescriptor_t graph;
    int operand_count;
    size_t operand_bytes[CUDA_DNN_OPERANDS];
    /* the chosen engine */
    cudnnBackendDescriptor_t plan; /* NULL: no engine */
    cudnnBackendDescriptor_t
        pack; /* variant pack for the addresses in `packed`; guarded by the library_lock */
    void *packed[CUDA_DNN_OPERANDS + 1];
    int64_t engine, workspace_bytes;
    bool tensor_cores;
    double seconds; /* measured; 0 if not timed */
} cuda_dnn_plan;

/* Requirements for an engine. */
typedef struct cuda_dnn_needs {
    const char *key;   /* the problem, for the tuning cache */
    bool full_f32;     /* f32 must not be rounded to tf32 */
    bool tensor_cores; /* prefer engines that use tensor cores */
} cuda_dnn_needs;

typedef struct cuda_dnn_attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *elements;
} cuda_dnn_attribute;
#define CUDA_DNN_ATTRIBUTE(name, type, count, elements)                                                      \
    { CUDNN_ATTR_##name, CUDNN_TYPE_##type, count, elements }

/* Initialises an empty plan. Fails if cuDNN is missing; the plan can be freed in any case. */
tu_status cuda_dnn_begin(cuda_dnn_plan *p, cuda_device *device);
/* Creates a descriptor owned by the plan, sets its attributes and finalizes it. If cuDNN does not support it, returns
 * TU_OK and sets *created to NULL. */
tu_status cuda_dnn_describe(cuda_dnn_plan *p, cudnnBackendDescriptorType_t type, size_t count,
                            const cuda_dnn_attribute *attributes, cudnnBackendDescriptor_t *created);
/* Chooses the first acceptable engine in the order of cuDNN's heuristics; with device->tune, the fastest of the first
 * few. */
tu_status cuda_dnn_choose(cuda_dnn_plan *p, const cuda_dnn_needs *needs);
/* Enqueues the plan into a stream. `addresses`: one per operand. */
tu_status cuda_dnn_execute(cuda_dnn_plan *p, CUstream stream, void *const *addresses, void *workspace);
/* Tests whether NaN inputs give NaN results: no engine note says so. */
tu_status cuda_dnn_keeps_nan(cuda_dnn_plan *p, tu_dtype dtype, bool *keeps);
void cuda_dnn_free(cuda_dnn_plan *p);

#endif
