/* NVIDIA's libraries, loaded at run time.
 *
 * Nothing is linked: a machine without a GPU can load this device and gets a message about what is missing. Each
 * library is searched by name in the system's library path and then in the folders of CUDA and of Python's nvidia
 * packages. The driver is needed to list GPUs, NVRTC and cuBLASLt to open one. cuDNN and cuSOLVER are loaded when a
 * program first needs them for a convolution or a matrix decomposition, since loading them takes longer than
 * everything else; NCCL when a program runs on several processes. Without NCCL's header (HAVE_NCCL is not defined) the
 * device is built without it.
 *
 * Calls go through macros that put the function's name into the message and let tests make the Nth call fail:
 *
 *     CUDA_TRY(cuMemAlloc, &address, bytes);          // TU_TRY of the status
 */
#ifndef TU__DEVICE_CUDA_RUNTIME_DRIVER_H
#define TU__DEVICE_CUDA_RUNTIME_DRIVER_H

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#include <cusolverDn.h>
#ifdef HAVE_NCCL
#include <nccl.h>
#endif
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
    CUDA_nccl,
    CUDA_LIBRARIES
} cuda_library;

/* Loads a library and looks up its functions, once; callable from any thread. On failure the message names the
 * missing file or function and what to install. Later calls return the same status. */
tu_status cuda_load_library(cuda_library library);
/* Returns the library's version, such as "13.0"; "" if it is not loaded. The string is valid until the thread's next
 * call. */
const char *cuda_library_version(cuda_library library);

/* True if the emulated driver of the tests (tests/cuda/fake) makes this call fail; with NVIDIA's driver always false. */
bool cuda_call_fails(const char *function);

tu_status cuda_check_driver(CUresult result, const char *function);
tu_status cuda_check_nvrtc(nvrtcResult result, const char *function);
tu_status cuda_check_blas(cublasStatus_t result, const char *function);
tu_status cuda_check_dnn(cudnnStatus_t result, const char *function);
tu_status cuda_check_solver(cusolverStatus_t result, const char *function);
#ifdef HAVE_NCCL
/* Calls for a non-blocking communicator that are still in progress have not failed. */
tu_status cuda_check_nccl(ncclResult_t result, const char *function);
#endif

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
#define NCCL_CALL(function, ...) CUDA_CALL_(cuda_check_nccl, ncclInternalError, function, __VA_ARGS__)
#define NCCL_TRY(function, ...) TU_TRY(NCCL_CALL(function, __VA_ARGS__))

#endif
