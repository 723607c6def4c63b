/* The CUDA-specific part of a kernel plan, which all its executables share: the functions that its kernels call. */
#ifndef TU__DEVICE_CUDA_RUNTIME_PLAN_H
#define TU__DEVICE_CUDA_RUNTIME_PLAN_H

#include "device/cuda/runtime/cuda.h"

typedef struct cuda_runtime {
    cuda_function *functions;
    bool compiled; /* guarded by the device's build_lock */
    bool capture_forbidden;
    int branches; /* that its kernels use at most: branches.h */
    const cuda_function *ring_in, *ring_out;
} cuda_runtime;

/* Returns the plan's cuda_runtime, created on first use; NULL if memory runs out. */
cuda_runtime *cuda_runtime_of(tu__kernel_plan *plan);

/* Compiles the plan's functions, unless another executable of the plan has done that. */
tu_status cuda_compile_plan(cuda_device *device, tu__kernel_plan *plan);

/* Requests the kernels that multi-step calls need; any plan may be used in one. */
tu_status cuda_request_rings(tu__kernel_plan *plan);

#endif
