/* Loads NVIDIA's libraries and converts their error codes. See driver.h. */
#include "device/cuda/runtime/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cuda_calls cuda;

/* Fault injection: the emulated driver of the tests decides which calls fail; NVIDIA's has no such function. */
static bool (*emulated_call_fails)(const char *function);

/* ---- Libraries ---- */

typedef struct library {
    const char *names[3]; /* tried in this order */
    const char *install;  /* advice if none is found */
    bool is_tried;
    tu_status status;
    char message[640];
} library;

#define TOOLKIT "install CUDA 13 or its package"
static library libraries[CUDA_LIBRARIES] = {
    [CUDA_driver] = {.names = {"libcuda.so.1"}, .install = "install NVIDIA's driver, version 580 or later"},
    [CUDA_nvrtc] = {.names = {"libnvrtc.so.13"}, .install = TOOLKIT " cuda-nvrtc"},
    [CUDA_blas] = {.names = {"libcublasLt.so.13"}, .install = TOOLKIT " libcublas"},
    [CUDA_dnn] = {.names = {"libcudnn.so.9"}, .install = "install cuDNN 9 for CUDA 13"},
    [CUDA_solver] = {.names = {"libcusolver.so.12"}, .install = TOOLKIT " libcusolver"},
    [CUDA_nccl] = {.names = {"libnccl.so.2"}, .install = "install NCCL 2.18 or later for CUDA 13"},
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Opens a library in the first of several folders, separated by ':', that contains it. */
static void *open_in_folders(const char *folders, const char *name) {
    while (folders && *folders) {
        size_t length = strcspn(folders, ":");
        char path[1024];
        snprintf(path, sizeof path, "%.*s/%s", (int)length, folders, name);
        void *found = length ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (found) return found;
        folders += length + (folders[length] == ':');
    }
    return NULL;
}

/* Opens a library. Searches only the folders in TUTTI_CUDA_LIBRARIES if that is set; else the system's library path,
 * then LIBRARY_FOLDERS. */
static void *open_library(const char *name) {
    const char *folders = getenv("TUTTI_CUDA_LIBRARIES");
    if (folders) return open_in_folders(folders, name);
    void *found = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return found ? found : open_in_folders(LIBRARY_FOLDERS, name);
}

#define STRINGIFY(name) STRINGIFY_(name)
#define STRINGIFY_(name) #name
static const struct call {
    cuda_library library;
    const char *name; /* exported symbol, such as cuMemAlloc_v2 for cuMemAlloc */
    size_t offset;
} calls[] = {
#define CALL(library, function) {CUDA_##library, STRINGIFY(function), offsetof(cuda_calls, function)},
#include "device/cuda/runtime/calls.def"
};

static tu_status find_functions(cuda_library which, void *handle, const char *file) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (calls[i].library != which) continue;
        void *function = dlsym(handle, calls[i].name);
        if (!function)
            return tu_fail(TU_UNSUPPORTED, "%s has no function %s: it is too old; %s", file, calls[i].name,
                           libraries[which].install);
        memcpy((char *)&cuda + calls[i].offset, &function, sizeof function);
    }
    if (which == CUDA_driver) *(void **)&emulated_call_fails = dlsym(handle, "fake_call_fails");
    return TU_OK;
}

static tu_status find_and_load(cuda_library which) {
    const library *l = &libraries[which];
#ifndef HAVE_NCCL
    if (which == CUDA_nccl)
        return tu_fail(TU_UNSUPPORTED, "this build has no support for NCCL: its header nccl.h was missing");
#endif
    for (int i = 0; l->names[i]; i++) {
        void *handle = open_library(l->names[i]); /* stays open until the process ends */
        if (handle) return find_functions(which, handle, l->names[i]);
    }
    const char *folders = getenv("TUTTI_CUDA_LIBRARIES");
    return tu_fail(TU_NOT_FOUND, "%s was not found%s%s: %s, or name its folder in TUTTI_CUDA_LIBRARIES",
                   l->names[0], folders ? " in " : "", folders ? folders : "", l->install);
}

tu_status cuda_load_library(cuda_library which) {
    library *l = &libraries[which];
    pthread_mutex_lock(&lock);
    if (!l->is_tried) {
        l->status = find_and_load(which);
        if (l->status != TU_OK) snprintf(l->message, sizeof l->message, "%s", tu_message());
        l->is_tried = true;
    }
    pthread_mutex_unlock(&lock);
    return l->status == TU_OK ? TU_OK : tu_fail(l->status, "%s", l->message);
}

/* Formats the version of a library that encodes it as major * major_unit + minor * minor_unit + … */
static void format_version(size_t version, size_t major_unit, size_t minor_unit, char *text,
                           size_t capacity) {
    snprintf(text, capacity, "%zu.%zu", version / major_unit, version % major_unit / minor_unit);
}

const char *cuda_library_version(cuda_library which) {
    static _Thread_local char text[24];
    int major = 0, minor = 0;
    *text = '\0';
    if (!libraries[which].is_tried || libraries[which].status != TU_OK) return text;
    switch (which) {
    case CUDA_driver:
        if (cuda.cuDriverGetVersion(&major) == CUDA_SUCCESS)
            format_version((size_t)major, 1000, 10, text, sizeof text);
        break;
    case CUDA_nvrtc:
        if (cuda.nvrtcVersion(&major, &minor) == NVRTC_SUCCESS)
            snprintf(text, sizeof text, "%d.%d", major, minor);
        break;
    case CUDA_blas: format_version(cuda.cublasLtGetVersion(), 10000, 100, text, sizeof text); break;
    case CUDA_dnn: format_version(cuda.cudnnGetVersion(), 10000, 100, text, sizeof text); break;
#ifdef HAVE_NCCL
    case CUDA_nccl:
        if (cuda.ncclGetVersion(&major) == ncclSuccess)
            snprintf(text, sizeof text, "%d.%d.%d", major / 10000, major / 100 % 100, major % 100);
        break;
#endif
    default: break;
    }
    return text;
}

bool cuda_call_fails(const char *function) {
    return emulated_call_fails && emulated_call_fails(function);
}

/* ---- Error codes ---- */

tu_status cuda_check_driver(CUresult result, const char *function) {
    if (result == CUDA_SUCCESS) return TU_OK;
    const char *name = NULL, *text = NULL;
    cuda.cuGetErrorName(result, &name);
    cuda.cuGetErrorString(result, &text);
    return tu_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? TU_NO_MEMORY : TU_DEVICE, "%s: %s (%s)", function,
                   name ? name : "unnamed error", text ? text : "unknown");
}

tu_status cuda_check_nvrtc(nvrtcResult result, const char *function) {
    if (result == NVRTC_SUCCESS) return TU_OK;
    return tu_fail(result == NVRTC_ERROR_OUT_OF_MEMORY ? TU_NO_MEMORY : TU_DEVICE, "%s: %s", function,
                   cuda.nvrtcGetErrorString(result));
}

tu_status cuda_check_blas(cublasStatus_t result, const char *function) {
    if (result == CUBLAS_STATUS_SUCCESS) return TU_OK;
    tu_status status = result == CUBLAS_STATUS_ALLOC_FAILED    ? TU_NO_MEMORY
                       : result == CUBLAS_STATUS_NOT_SUPPORTED ? TU_UNSUPPORTED
                                                               : TU_DEVICE;
    return tu_fail(status, "%s: %s", function, cuda.cublasLtGetStatusString(result));
}

tu_status cuda_check_dnn(cudnnStatus_t result, const char *function) {
    if (result == CUDNN_STATUS_SUCCESS) return TU_OK;
    char detail[256] = "";
    cuda.cudnnGetLastErrorString(detail, sizeof detail);
    tu_status status = CUDNN_STATUS_CATEGORY(result) == CUDNN_STATUS_NOT_SUPPORTED ? TU_UNSUPPORTED
                       : result == CUDNN_STATUS_ALLOC_FAILED                       ? TU_NO_MEMORY
                                                                                   : TU_DEVICE;
    return tu_fail(status, "%s: %s%s%s", function, cuda.cudnnGetErrorString(result), *detail ? ": " : "",
                   detail);
}

tu_status cuda_check_solver(cusolverStatus_t result, const char *function) {
    if (result == CUSOLVER_STATUS_SUCCESS) return TU_OK;
    return tu_fail(result == CUSOLVER_STATUS_ALLOC_FAILED ? TU_NO_MEMORY : TU_DEVICE, "%s: status %d",
                   function, (int)result);
}

#ifdef HAVE_NCCL
tu_status cuda_check_nccl(ncclResult_t result, const char *function) {
    if (result == ncclSuccess || result == ncclInProgress) return TU_OK;
    const char *detail = cuda.ncclGetLastError(NULL);
    return tu_fail(TU_DEVICE, "%s: %s%s%.300s", function, cuda.ncclGetErrorString(result),
                   detail && *detail ? ": " : "", detail && *detail ? detail : "");
}
#endif
