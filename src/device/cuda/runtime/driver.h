/* NVIDIA's libraries, found at run time.
 *
 * Nothing is linked: a machine without a GPU loads this device and is told what is missing. Each library is opened by
 * its name, where the system finds it, and then in the folders where CUDA and Python's nvidia packages put it.
 * The driver is needed to see a GPU at all, NVRTC and cuBLASLt to open one; cuDNN and cuSOLVER are opened when a
 * program first has a convolution or a matrix to invert, since loading them takes longer than everything else.
 *
 * Calls go through a macro that names the function in the message and lets tests fail the Nth of them:
 *
 *     CUDA_TRY(cuMemAlloc, &address, bytes);          // TU_TRY of the status
 */
#ifndef TU__DEVICE_CUDA_RUNTIME_DRIVER_H
#define TU__DEVICE_CUDA_RUNTIME_DRIVER_H

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#include <cusolverDn.h>
#include <nvrtc.h>
#include <stdbool.h>

#include <tutti/status.h>

typedef struct cuda_calls {
#define CALL(library, function) __typeof__(function) *function;
#include "device/cuda/runtime/calls.def"
} cuda_calls;

extern cuda_calls cuda;

typedef enum cuda_library {
    CUDA_driver,
    CUDA_nvrtc,
    CUDA_blas,
    CUDA_dnn,
    CUDA_solver,
    CUDA_LIBRARIES
} cuda_library;

/* Opens a library and finds its functions, once; from any thread. A failure says which file or function is missing and
 * what to install, and is the same for every later call. */
tu_status cuda_need(cuda_library library);
/* "13.0": as the library itself says; "" while it is not open. The string lives as long as the thread. */
const char *cuda_library_version(cuda_library library);

/* Whether this call is to fail, because TUTTI_CUDA_FAIL says so: "17" the 17th call, "cuMemAlloc:2" its second. */
bool cuda_call_fails(const char *function);
/* How many calls went through CUDA_TRY and its like so far. */
uint64_t cuda_call_count(void);

tu_status cuda_check_driver(CUresult result, const char *function);
tu_status cuda_check_nvrtc(nvrtcResult result, const char *function);
tu_status cuda_check_blas(cublasStatus_t result, const char *function);
tu_status cuda_check_dnn(cudnnStatus_t result, const char *function);
tu_status cuda_check_solver(cusolverStatus_t result, const char *function);

#define CUDA_CALL_(check, failure, function, ...)                                                            \
    check(cuda_call_fails(#function) ? (failure) : cuda.function(__VA_ARGS__), #function)
#define CUDA_CALL(function, ...)                                                                             \
    CUDA_CALL_(cuda_check_driver, CUDA_ERROR_LAUNCH_FAILED, function, __VA_ARGS__)
#define CUDA_TRY(function, ...) TU_TRY(CUDA_CALL(function, __VA_ARGS__))
#define NVRTC_TRY(function, ...)                                                                             \
    TU_TRY(CUDA_CALL_(cuda_check_nvrtc, NVRTC_ERROR_INTERNAL_ERROR, function, __VA_ARGS__))
#define BLAS_TRY(function, ...)                                                                              \
    TU_TRY(CUDA_CALL_(cuda_check_blas, CUBLAS_STATUS_INTERNAL_ERROR, function, __VA_ARGS__))
#define DNN_TRY(function, ...)                                                                               \
    TU_TRY(CUDA_CALL_(cuda_check_dnn, CUDNN_STATUS_INTERNAL_ERROR, function, __VA_ARGS__))
#define SOLVER_TRY(function, ...)                                                                            \
    TU_TRY(CUDA_CALL_(cuda_check_solver, CUSOLVER_STATUS_INTERNAL_ERROR, function, __VA_ARGS__))

#endif
