/* Describes, opens and closes GPUs.
 *
 * "gpu:0" is a GPU. "gpu:0/n" divides it into n logical devices, each with its own queues, kernels and fraction of
 * the memory. All of them use the GPU's primary context, which CUDA shares within a process, so tensors can be copied
 * between them.
 */
#include "device/cuda/runtime/cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "device/cuda/runtime/capture_lock.h"
#include "device/cuda/runtime/combine.h"

enum {
    MIN_DRIVER = 13000,  /* required by machine code of NVRTC 13 */
    MIN_CAPABILITY = 75, /* lowest compute capability that CUDA 13 compiles for */
};

struct tu_device_instance {
    cuda_device device;
};

cuda_device *cuda_device_of(tu_device_instance *device) {
    return &device->device;
}

/* ---- Describing GPUs ---- */

static tu_status start_driver(void) {
    TU_TRY(cuda_load_library(CUDA_driver));
    CUDA_TRY(cuInit, 0);
    return TU_OK;
}

static tu_status check_driver(void) {
    int version = 0;
    CUDA_TRY(cuDriverGetVersion, &version);
    if (version < MIN_DRIVER)
        return tu_fail(
            TU_UNSUPPORTED,
            "the NVIDIA driver supports CUDA %d.%d, but %d.%d is needed: install driver 580 or later",
            version / 1000, version % 1000 / 10, MIN_DRIVER / 1000, MIN_DRIVER % 1000 / 10);
    return TU_OK;
}

static tu_status read_capability(CUdevice handle, int *capability) {
    int major = 0, minor = 0;
    CUDA_TRY(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle);
    CUDA_TRY(cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle);
    *capability = 10 * major + minor;
    return TU_OK;
}

/* Checks everything that a usable GPU needs, except cuDNN and cuSOLVER, which only some programs need. */
static tu_status check_usable(CUdevice handle) {
    int capability;
    TU_TRY(check_driver());
    TU_TRY(read_capability(handle, &capability));
    if (capability < MIN_CAPABILITY)
        return tu_fail(TU_UNSUPPORTED,
                       "its compute capability is %d.%d, and CUDA 13 needs %d.%d or higher: use a newer GPU",
                       capability / 10, capability % 10, MIN_CAPABILITY / 10, MIN_CAPABILITY % 10);
    TU_TRY(cuda_load_library(CUDA_nvrtc));
    return cuda_load_library(CUDA_blas);
}

typedef struct gpu_properties {
    char name[128];
    size_t memory;
    int capability, multiprocessors;
} gpu_properties;

static tu_status read_properties(CUdevice handle, gpu_properties *c) {
    CUDA_TRY(cuDeviceGetName, c->name, sizeof c->name, handle);
    CUDA_TRY(cuDeviceTotalMem, &c->memory, handle);
    CUDA_TRY(cuDeviceGetAttribute, &c->multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, handle);
    return read_capability(handle, &c->capability);
}

/* Example: "NVIDIA H200, capability 9.0, 132 multiprocessors; driver CUDA 13.0, NVRTC 13.0, cuBLASLt 13.0, cuDNN
 * 9.19" */
static void write_description(const gpu_properties *c, char *text, size_t capacity) {
    int used = snprintf(text, capacity, "%s, capability %d.%d, %d multiprocessors; driver CUDA %s", c->name,
                        c->capability / 10, c->capability % 10, c->multiprocessors,
                        cuda_library_version(CUDA_driver));
    static const struct {
        cuda_library library;
        const char *name;
    } libraries[] = {{CUDA_nvrtc, "NVRTC"}, {CUDA_blas, "cuBLASLt"}, {CUDA_dnn, "cuDNN"}};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && used < (int)capacity; i++) {
        bool available = cuda_load_library(libraries[i].library) == TU_OK;
        used += snprintf(text + used, capacity - (size_t)used, available ? ", %s %s" : ", no %s",
                         libraries[i].name, cuda_library_version(libraries[i].library));
    }
}

/* What kernels and their plans depend on. cuDNN is left out: it is loaded only if it is needed. */
static void write_arithmetic(const gpu_properties *c, char *text, size_t capacity) {
    char nvrtc[24];
    snprintf(nvrtc, sizeof nvrtc, "%s", cuda_library_version(CUDA_nvrtc));
    snprintf(text, capacity, "%s, capability %d.%d, %d multiprocessors, NVRTC %s, cuBLASLt %s", c->name,
             c->capability / 10, c->capability % 10, c->multiprocessors, nvrtc,
             cuda_library_version(CUDA_blas));
}

typedef struct description {
    char name[24], text[400], unusable[700];
} description;

static tu_status describe_gpu(int index, description *d, tu_device_info *info) {
    CUdevice handle = 0;
    gpu_properties c = {0};
    CUDA_TRY(cuDeviceGet, &handle, index);
    TU_TRY(read_properties(handle, &c));
    info->memory_bytes = c.memory;
    if (check_usable(handle) != TU_OK) {
        snprintf(d->unusable, sizeof d->unusable, "%s", tu_message());
        info->unusable = d->unusable;
    }
    write_description(&c, d->text, sizeof d->text);
    return TU_OK;
}

/* Makes no driver call, since the GPU may be abandoned, and loads no library. */
static void describe_open(const cuda_device *d, tu_device_info *info) {
    *info = (tu_device_info){.struct_size = info->struct_size,
                             .name = d->name,
                             .kind = "gpu",
                             .description = d->model,
                             .memory_bytes = d->memory_bytes,
                             .overhead_bytes = d->overhead_bytes,
                             .arithmetic = d->arithmetic,
                             .has_routes = true};
}

/* Describes a GPU. A GPU that cannot be used is described with the reason in `unusable`. Without a driver gpu:0 is
 * described in that way, too. */
static tu_status describe_index(int index, tu_device_info *info) {
    static _Thread_local description d;
    int count = 0;
    snprintf(d.name, sizeof d.name, "gpu:%d", index);
    snprintf(d.text, sizeof d.text, "NVIDIA GPU");
    *info = (tu_device_info){
        .struct_size = info->struct_size, .name = d.name, .kind = "gpu", .description = d.text};
    tu_status status = start_driver();
    if (status == TU_OK) status = CUDA_CALL(cuDeviceGetCount, &count);
    bool available = status == TU_OK && index < count;
    if (available && describe_gpu(index, &d, info) == TU_OK) return TU_OK;
    if (!available && status == TU_OK)
        return tu_fail(TU_NOT_FOUND, "there is no gpu:%d: the NVIDIA driver reports %d GPUs", index, count);
    if (!available && index > 0) return status;
    snprintf(d.unusable, sizeof d.unusable, "%s", tu_message());
    info->unusable = d.unusable;
    return TU_OK;
}

tu_status cuda_describe(tu_device_instance *device, int index, tu_device_info *info) {
    if (!device) return describe_index(index, info);
    describe_open(&device->device, info);
    return TU_OK;
}

/* ---- Opening ---- */

tu_status cuda_make_current(const cuda_device *device) {
    TU_TRY(cuda_check_not_abandoned(device));
    tu_status status = CUDA_CALL(cuCtxSetCurrent, device->context);
    return status == TU_OK ? TU_OK : tu_fail(status, "%s: %s", device->name, tu_message());
}

static tu_status check_options(const tu_open_options *o) {
    int count = 0;
    TU_TRY(start_driver());
    CUDA_TRY(cuDeviceGetCount, &count);
    if (count > CUDA_MAX_GPUS) count = CUDA_MAX_GPUS;
    if (o->index < 0 || o->index >= count)
        return tu_fail(TU_NOT_FOUND, "there is no gpu:%d: the NVIDIA driver reports %d GPUs", o->index,
                       count);
    return TU_OK;
}

tu_status cuda_measure_overhead(cuda_device *d) {
    uint64_t elsewhere = 0;
    TU_TRY(cuda_memory_used_elsewhere(d->memory, &elsewhere));
    d->overhead_bytes = elsewhere / (uint64_t)d->logical_count;
    return TU_OK;
}

static tu_status open_handles(cuda_device *d) {
    TU_TRY(cuda_make_current(d));
    d->memory = cuda_memory_open(d->index);
    if (!d->memory) return TU_NO_MEMORY;
    TU_TRY(cuda_queue_open(&d->own_queue, d, 0));
    TU_TRY(cuda_lane_open(&d->in));
    TU_TRY(cuda_lane_open(&d->out));
    TU_TRY(cuda_open_blas(d));
    return cuda_measure_overhead(d);
}

static tu_status open_gpu(const tu_open_options *o, cuda_device *d) {
    gpu_properties c = {0};
    CUDA_TRY(cuDeviceGet, &d->handle, o->index);
    TU_TRY(check_usable(d->handle));
    TU_TRY(read_properties(d->handle, &c));
    d->capability = c.capability;
    d->multiprocessors = c.multiprocessors;
    d->memory_bytes = c.memory;
    snprintf(d->model, sizeof d->model, "%s", c.name);
    write_arithmetic(&c, d->arithmetic, sizeof d->arithmetic);
    CUDA_TRY(cuDeviceGetAttribute, &d->shared_bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
             d->handle);
    TU_TRY(cuda_check_not_abandoned(d)); /* its context could not be released again */
    CUDA_TRY(cuDevicePrimaryCtxRetain, &d->context, d->handle);
    return open_handles(d);
}

static void release_context(const cuda_device *d) {
    cuda_sync_lock();
    cuda.cuDevicePrimaryCtxRelease(d->handle);
    cuda_sync_unlock();
}

/* Closes the handles that were opened; the others are NULL. */
static void close_handles(cuda_device *d) {
    if (d->context && cuda.cuCtxSetCurrent(d->context) == CUDA_SUCCESS) {
        if (d->own_queue.stream) cuda.cuStreamSynchronize(d->own_queue.stream);
        cuda_modules_free(d);
        cuda_libraries_close(d);
        cuda_lane_close(&d->in);
        cuda_lane_close(&d->out);
        cuda_queue_close(&d->own_queue);
    }
    cuda_memory_close(d->memory);
    if (d->context) release_context(d);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->library_lock);
    pthread_mutex_destroy(&d->build_lock);
    pthread_mutex_destroy(&d->in.lock);
    pthread_mutex_destroy(&d->out.lock);
}

static void name_device(cuda_device *d) {
    if (d->logical_count > 1)
        snprintf(d->name, sizeof d->name, "gpu:%d.%d", d->index, d->logical_index);
    else
        snprintf(d->name, sizeof d->name, "gpu:%d", d->index);
}

tu_status cuda_open(const tu_open_options *o, tu_device_instance **device) {
    TU_TRY(check_options(o));
    tu_device_instance *created = tu__alloc(sizeof *created, "a device");
    if (!created) return TU_NO_MEMORY;
    cuda_device *d = &created->device;
    d->index = o->index;
    d->logical_index = o->logical_index;
    d->logical_count = o->logical_count > 0 ? o->logical_count : 1;
    d->assumed_logical_count = o->whole_device_kernels ? 1 : d->logical_count;
    d->streams = o->streams;
    d->tune = o->tune;
    d->nondeterministic = o->nondeterministic;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->library_lock, NULL);
    pthread_mutex_init(&d->build_lock, NULL);
    pthread_mutex_init(&d->in.lock, NULL);
    pthread_mutex_init(&d->out.lock, NULL);
    name_device(d);
    tu_status status = open_gpu(o, d);
    if (status != TU_OK) {
        char message[768];
        snprintf(message, sizeof message, "cannot use %s: %s", d->name, tu_message());
        close_handles(d);
        tu__free(created);
        return tu_fail(status, "%s", message);
    }
    *device = created;
    return TU_OK;
}

void cuda_close(tu_device_instance *device) {
    if (cuda_is_abandoned(&device->device)) return;
    close_handles(&device->device);
    tu__free(device);
}
