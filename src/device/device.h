/* Open devices.
 *
 * A device is opened once and shared by all programs of the process: programs with the same state must use the same
 * memory. The programs of one session run one at a time on a device. They share a block of scratch memory, as large as
 * the largest of them needs, one host thread that launches kernels (compute thread), and one that receives values from
 * other devices (copy thread). */
#ifndef TU__DEVICE_DEVICE_H
#define TU__DEVICE_DEVICE_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include <tutti/device.h>

#include "base/shared.h"
#include "graph/graph.h"

/* What a session has on one device. */
typedef struct tu__session_device {
    struct tu__device *device;
    pthread_mutex_t lock; /* held by the program that is running */
    void *scratch;
    size_t scratch_bytes;
    uint64_t scratch_generation; /* incremented when the block moves: programs must be bound again */
    /* The accelerator that allocated the block of a host device, in host memory that it copies fastest; NULL: the
     * device itself. */
    struct tu__device *pinned_by;
    /* The two host threads, started on first use: base/worker.h. */
    struct tu__worker *compute_thread, *copy_thread;
    /* Threads for the loops of frozen graphs, on a CPU with more than one thread; NULL: not needed so far. */
    struct tu__thread_pool *pool;
} tu__session_device;

typedef struct tu__device {
    char name[48]; /* "cpu:0.1" */
    char spec[64]; /* device spec that selects only this device: "cpu:0.1/2" */
    const tu_device_api *api;
    tu_device_instance *instance;
    tu_open_options options;
    int users; /* number of programs and pinned blocks that use the device; it is closed when none is left */
    struct tu__device *next;
    int threads;       /* of its loops; at least 1 */
    cpu_set_t cores;   /* of a logical device with cores: its host threads are pinned to them */
    bool pins_threads; /* `cores` is set */
    atomic_uint_least64_t table_bytes;     /* bytes of the tables in its memory: run/table.h */
    tu__session_device shared;             /* of the default session */
    struct tu__device_constant *constants; /* shared constants in its memory: device_constants.c */
} tu__device;

enum { TU__MAX_DEVICES = 64 }; /* per program */

/* Describes device `index` of a kind, or the open one `instance`. All fields are set, also if the plug-in was compiled
 * with a shorter or a longer tu_device_info. */
tu_status tu__device_describe(const tu_device_api *api, tu_device_instance *instance, int index,
                              tu_device_info *info);

/* Opens the devices of a list ("cpu:0/2,ref"; NULL: "all"), at most `capacity`, and stores their number in `*count`.
 * On failure none stays open; for an unknown name the message lists the existing devices. `options` may be NULL; the
 * list overrides its fields index, logical_index and logical_count. A device opened with other threads, tuning or
 * order is a separate device with its own memory. The memory limit is that of the first call that opens the
 * device. */
TU__SHARED tu_status tu__devices_open(const char *list, const tu_open_options *options, size_t capacity,
                                      tu__device **devices, size_t *count);
TU__SHARED void tu__devices_close(size_t count, tu__device **devices);
/* Adds a user of an open device; tu__devices_close removes it. */
void tu__device_retain(tu__device *device);

/* Pins the calling thread to the cores of a logical device, if it has cores. */
tu_status tu__device_pin_thread(const tu__device *device);

/* session_device.c: initialise and free. The device must stay open in between. */
void tu__session_device_init(tu__session_device *s, tu__device *device);
void tu__session_device_free(tu__session_device *s);
/* session_device.c: makes sure that the scratch has at least `bytes`; the block may move. Call with the lock held. */
tu_status tu__session_device_scratch(tu__session_device *s, size_t bytes);
/* session_device.c: makes sure that there is a pool, if loops on the device have more than one thread. Call with the lock
 * held. */
tu_status tu__session_device_pool(tu__session_device *s);
/* session_device.c: moves the scratch of a host device to memory that an accelerator copies fastest, if it has any. */
void tu__session_device_pin(tu__session_device *s, tu__device *accelerator);

/* session_device.c: allocates device memory. On failure *address is unchanged, whatever the device has set. A device that
 * returns no address has failed, too. */
tu_status tu__device_allocate(tu__device *device, size_t bytes, void **address);

/* session_device.c: allocates host memory that a device copies fastest; NULL if it has none, or fewer than
 * TU__PINNABLE_BYTES are needed. The memory counts as a user of the device until it is released. */
void *tu__device_allocate_pinned(tu__device *device, size_t bytes);
void tu__device_release_pinned(tu__device *device, void *address);

/* Copy between the host and a device; return when the bytes have arrived. */
tu_status tu__upload(const tu__device *device, void *to, const void *host, size_t bytes);
tu_status tu__download(const tu__device *device, void *host, const void *from, size_t bytes);

/* device_constants.c: returns the address of shared data in the device's memory, where it exists once for all programs.
 * Host memory is used where it is. Every call needs one of the second function, while the device is open. */
tu_status tu__device_constant_keep(tu__device *device, const tu__shared_data *data, void **address);
void tu__device_constant_release(tu__device *device, const tu__shared_data *data);

/* Copies bytes between two devices: directly if they can, else through host memory. */
tu_status tu__device_copy(tu__device *to, void *to_address, tu__device *from, const void *from_address,
                          size_t bytes);

/* bundled.c: finds a plug-in that is installed with the engine. Returns false if there is none. */
bool tu__bundled_plugin(const char *file, size_t capacity, char *path);

/* nvidia_gpu.c: returns true if this machine has an NVIDIA GPU that CUDA_VISIBLE_DEVICES does not hide, and stores
 * the path of the file that proves it; the second function looks below `root`. Neither needs a driver. */
bool tu__find_nvidia_gpu(size_t capacity, char *path);
bool tu__find_nvidia_gpu_in(const char *root, size_t capacity, char *path);
/* A device kind "gpu" that replaces the CUDA plug-in if that is missing; its device cannot be used. The second
 * function sets the reason that it reports; the default is that there is no plug-in. */
extern const tu_device_api tu__missing_cuda_api;
void tu__set_missing_cuda_reason(const char *why);

/* Returns the reason why "all" selects the CPU although there is a GPU; NULL if there is no GPU or it can be used.
 * The text is valid until the next call in this thread. */
TU__SHARED const char *tu__unused_gpu_reason(void);

/* The built-in kinds; and registration of another kind, like that of a plug-in, until the process ends. */
extern const tu_device_api tu__ref_api, tu__null_api, tu__cpu_api;
tu_status tu__device_kind_add(const tu_device_api *api);

#endif
