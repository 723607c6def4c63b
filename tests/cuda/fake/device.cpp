/* The fake driver: devices, contexts, errors, and the list of live objects. */
#include "driver.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <unistd.h>

/* ---- Shared functions ---- */

std::recursive_mutex &fake_lock() {
    static std::recursive_mutex lock;
    return lock;
}

static thread_local int guards; /* of this thread, which holds the lock as often */

fake_guard::fake_guard(std::recursive_mutex &lock) {
    lock.lock();
    guards++;
}
fake_guard::~fake_guard() {
    guards--;
    fake_lock().unlock();
}

void fake_hang() {
    for (; guards; guards--) fake_lock().unlock();
    for (;;) pause();
}

void fake_pause() {
    int held = guards;
    for (int i = 0; i < held; i++) fake_lock().unlock();
    guards = 0;
    usleep(50);
    for (int i = 0; i < held; i++) fake_lock().lock();
    guards = held;
}

uint64_t fake_setting(const char *name, uint64_t default_value) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 10) : default_value;
}

void fake_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("emulated GPU: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    fflush(stderr);
    _exit(98);
}

/* ---- Objects ---- */

/* Never destroyed: the report is printed when the process ends. */
static std::map<std::string, std::set<const void *>> &objects() {
    static auto *all = new std::map<std::string, std::set<const void *>>;
    return *all;
}

void fake_add_object(const char *kind, const void *object) {
    fake_guard guard(fake_lock());
    objects()[kind].insert(object);
}
bool fake_remove_object(const char *kind, const void *object) {
    fake_guard guard(fake_lock());
    return objects()[kind].erase(object) == 1;
}
bool fake_is_object(const char *kind, const void *object) {
    fake_guard guard(fake_lock());
    return objects()[kind].count(object) == 1;
}

size_t fake_cuda_live(char *text, size_t capacity) {
    fake_guard guard(fake_lock());
    size_t total = 0;
    std::string list;
    for (const auto &entry : objects()) {
        total += entry.second.size();
        if (entry.second.empty()) continue;
        list += (list.empty() ? "" : ", ") + std::to_string(entry.second.size()) + " x " + entry.first;
    }
    if (capacity) snprintf(text, capacity, "%s", list.c_str());
    return total;
}

/* FAKE_CUDA_LEAKS=1: reports objects that were not freed when the process ends; the exit status is then 97. */
__attribute__((destructor)) static void report_leaks() {
    char text[1024];
    if (!fake_setting("FAKE_CUDA_LEAKS", 0) || fake_cuda_live(text, sizeof text) == 0) return;
    fprintf(stderr, "emulated GPU: not freed: %s\n", text);
    fflush(nullptr);
    _exit(97);
}

/* ---- Devices ---- */

static bool initialised;

static int device_count() {
    uint64_t count = fake_setting("FAKE_CUDA_COUNT", 1);
    return count < MAX_GPUS ? (int)count : MAX_GPUS;
}
static int capability() {
    return (int)fake_setting("FAKE_CUDA_CAPABILITY", 90);
}

/* The real NVRTC queries internal tables of the driver, but works without them. */
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    (void)id;
    *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}
CUresult cuInit(unsigned) {
    NEED(device_count() > 0, CUDA_ERROR_NO_DEVICE);
    initialised = true;
    return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *version) {
    *version = (int)fake_setting("FAKE_CUDA_DRIVER_VERSION", 13000);
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    NEED(initialised, CUDA_ERROR_NOT_INITIALIZED);
    *count = device_count();
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    NEED(initialised, CUDA_ERROR_NOT_INITIALIZED);
    NEED(ordinal >= 0 && ordinal < device_count(), CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int length, CUdevice) {
    snprintf(name, (size_t)length, "Emulated GPU");
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice) {
    *bytes = fake_setting("FAKE_CUDA_MEMORY", 1ull << 30);
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    memset(uuid, 0, sizeof *uuid);
    uuid->bytes[0] = (char)device;
    return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice other) {
    NEED(device >= 0 && device < device_count() && other >= 0 && other < device_count(),
         CUDA_ERROR_INVALID_DEVICE);
    *can = device != other && fake_setting("FAKE_CUDA_PEERS", 1) != 0;
    return CUDA_SUCCESS;
}

/* A small GPU, so that grids are small and kernels loop. */
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    NEED(device >= 0 && device < device_count(), CUDA_ERROR_INVALID_DEVICE);
    const std::map<int, int> values = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, capability() / 10},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, capability() % 10},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, (int)fake_setting("FAKE_CUDA_MULTIPROCESSORS", 4)},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, (capability() < 90 ? 163 : 227) << 10},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, (capability() < 90 ? 164 : 228) << 10},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    };
    auto found = values.find(attribute);
    NEED(found != values.end(), CUDA_ERROR_INVALID_VALUE);
    *value = found->second;
    return CUDA_SUCCESS;
}

/* ---- Contexts ---- */

static CUctx_st contexts[MAX_GPUS];
static thread_local CUcontext current;

CUcontext current_context() {
    return current && current->users > 0 ? current : nullptr;
}

int fake_current_gpu() {
    return current_context() ? current_context()->device : -1;
}

bool has_peer_access(int gpu, int other) {
    return gpu == other || contexts[gpu].peer_access[other];
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED_SYNCHRONISED;
    NEED(flags == 0, CUDA_ERROR_INVALID_VALUE);
    NEED(peer && peer->users > 0 && peer != current, CUDA_ERROR_INVALID_CONTEXT);
    int can = 0;
    cuDeviceCanAccessPeer(&can, current->device, peer->device);
    NEED(can, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    NEED(fake_setting("FAKE_CUDA_PEERS", 1) == 1, CUDA_ERROR_TOO_MANY_PEERS);
    NEED(!current->peer_access[peer->device], CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    current->peer_access[peer->device] = true;
    return CUDA_SUCCESS;
}
/* Peer access ends on both sides with a context. */
static void forget_peers(int gpu) {
    for (int other = 0; other < MAX_GPUS; other++)
        contexts[gpu].peer_access[other] = contexts[other].peer_access[gpu] = false;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    fake_guard guard(fake_lock());
    NEED(initialised, CUDA_ERROR_NOT_INITIALIZED);
    NEED(device >= 0 && device < device_count(), CUDA_ERROR_INVALID_DEVICE);
    *context = &contexts[device];
    contexts[device].device = device;
    if (contexts[device].users++ == 0) fake_add_object("context", *context);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    fake_guard guard(fake_lock());
    NEED(device >= 0 && device < device_count() && contexts[device].users > 0, CUDA_ERROR_INVALID_CONTEXT);
    CUresult synchronised = synchronise_context(&contexts[device]);
    NEED(synchronised == CUDA_SUCCESS, synchronised);
    finish_everything();
    check_guards();
    if (--contexts[device].users > 0) return CUDA_SUCCESS;
    fake_remove_object("context", &contexts[device]);
    forget_peers(device);
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    NEED(!context || context->users > 0, CUDA_ERROR_INVALID_CONTEXT);
    current = context;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    CUresult captured = check_context_not_captured();
    NEED(captured == CUDA_SUCCESS, captured);
    finish_everything();
    check_guards();
    return CUDA_SUCCESS;
}

/* ---- Errors ---- */

static const struct error {
    CUresult result;
    const char *name, *text;
} errors[] = {
#define ERROR(result, text)                                                                                  \
    { result, #result, text }
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    ERROR(CUDA_ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted"),
    ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          "operation would make the legacy stream depend on a capturing stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
          "attempt to terminate a thread-local capture from another thread"),
    ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    ERROR(CUDA_ERROR_CAPTURED_EVENT,
          "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
#undef ERROR
};

static const error *find_error(CUresult result) {
    for (const error &e : errors)
        if (e.result == result) return &e;
    return nullptr;
}
CUresult cuGetErrorName(CUresult result, const char **name) {
    const error *e = find_error(result);
    *name = e ? e->name : nullptr;
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult result, const char **text) {
    const error *e = find_error(result);
    *text = e ? e->text : nullptr;
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
