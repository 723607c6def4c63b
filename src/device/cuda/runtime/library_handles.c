/* Handles of libraries. Only some programs need cuDNN and cuSOLVER, which are loaded on demand.
 *
 * A device has one handle of each library, for all its queues. A handle enqueues into one stream at a time, and only
 * one thread may use it, so a queue locks it and sets the stream before each use. (cuBLASLt gets the stream with every
 * call.) */
#include "device/cuda/runtime/capture_lock.h"
#include "device/cuda/runtime/cuda.h"

/* ---- Creating and destroying ---- */

static tu_status create_dnn(cuda_device *d) {
    DNN_TRY(cudnnCreate, &d->dnn);
    DNN_TRY(cudnnSetStream, d->dnn, d->own_queue.stream);
    return TU_OK;
}

static tu_status create_solver(cuda_device *d) {
    SOLVER_TRY(cusolverDnCreate, &d->solver);
    SOLVER_TRY(cusolverDnSetStream, d->solver, d->own_queue.stream);
    return TU_OK;
}

static tu_status create_blas(cuda_device *d) {
    BLAS_TRY(cublasLtCreate, &d->blas);
    return TU_OK;
}

static tu_status create_without_captures(cuda_device *d, tu_status (*create)(cuda_device *d)) {
    cuda_sync_lock();
    tu_status status = create(d);
    cuda_sync_unlock();
    return status;
}

tu_status cuda_open_blas(cuda_device *device) {
    return create_without_captures(device, create_blas);
}

static tu_status open_dnn(cuda_device *d) {
    TU_TRY(cuda_load_library(CUDA_dnn));
    TU_TRY(create_without_captures(d, create_dnn));
    d->dnn_stream = d->own_queue.stream;
    return cuda_measure_overhead(d);
}

static tu_status open_solver(cuda_device *d) {
    TU_TRY(cuda_load_library(CUDA_solver));
    TU_TRY(create_without_captures(d, create_solver));
    d->solver_stream = d->own_queue.stream;
    return cuda_measure_overhead(d);
}

cudnnHandle_t cuda_dnn(cuda_device *device) {
    pthread_mutex_lock(&device->lock);
    bool available = device->dnn || open_dnn(device) == TU_OK;
    pthread_mutex_unlock(&device->lock);
    return available ? device->dnn : NULL;
}

cusolverDnHandle_t cuda_solver(cuda_device *device) {
    pthread_mutex_lock(&device->lock);
    bool available = device->solver || open_solver(device) == TU_OK;
    pthread_mutex_unlock(&device->lock);
    return available ? device->solver : NULL;
}

void cuda_libraries_close(cuda_device *d) {
    cuda_sync_lock();
    if (d->solver) cuda.cusolverDnDestroy(d->solver);
    if (d->dnn) cuda.cudnnDestroy(d->dnn);
    if (d->blas) cuda.cublasLtDestroy(d->blas);
    cuda_sync_unlock();
    d->dnn = NULL, d->solver = NULL;
}

/* ---- Streams ---- */

static tu_status set_dnn_stream(cuda_device *d, CUstream stream) {
    if (d->dnn_stream == stream) return TU_OK;
    DNN_TRY(cudnnSetStream, d->dnn, stream);
    d->dnn_stream = stream;
    return TU_OK;
}

static tu_status set_solver_stream(cuda_device *d, CUstream stream) {
    if (d->solver_stream == stream) return TU_OK;
    SOLVER_TRY(cusolverDnSetStream, d->solver, stream);
    d->solver_stream = stream;
    return TU_OK;
}

static tu_status lock_with_stream(cuda_device *d, CUstream stream,
                                  tu_status (*set)(cuda_device *d, CUstream stream)) {
    pthread_mutex_lock(&d->library_lock);
    tu_status status = set(d, stream);
    if (status != TU_OK) pthread_mutex_unlock(&d->library_lock);
    return status;
}

tu_status cuda_dnn_lock(cuda_device *device, CUstream stream) {
    return lock_with_stream(device, stream, set_dnn_stream);
}

tu_status cuda_solver_lock(cuda_device *device, CUstream stream) {
    return lock_with_stream(device, stream, set_solver_stream);
}

void cuda_library_unlock(cuda_device *device) {
    pthread_mutex_unlock(&device->library_lock);
}

/* A later stream may have the same address, so the stream is set again before the next use in any case. */
void cuda_libraries_forget(cuda_device *d, CUstream stream) {
    pthread_mutex_lock(&d->lock);
    bool has_dnn = d->dnn, has_solver = d->solver;
    pthread_mutex_unlock(&d->lock);
    pthread_mutex_lock(&d->library_lock);
    if (has_dnn && d->dnn_stream == stream) {
        cuda.cudnnSetStream(d->dnn, d->own_queue.stream);
        d->dnn_stream = NULL;
    }
    if (has_solver && d->solver_stream == stream) {
        cuda.cusolverDnSetStream(d->solver, d->own_queue.stream);
        d->solver_stream = NULL;
    }
    pthread_mutex_unlock(&d->library_lock);
}
