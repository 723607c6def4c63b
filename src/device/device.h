/* Opened devices: what the engine holds on to while programs use them.
 *
 * Devices are opened once and shared by all programs of the process: programs over one state must agree on memory,
 * and a device's scratch is one block as large as the hungriest program needs. Each device has one host thread that
 * launches its kernels, and one that brings in what other devices computed. */
#ifndef TU__DEVICE_DEVICE_H
#define TU__DEVICE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include <tutti/device.h>

#include "base/shared.h"
#include "graph/graph.h"

typedef struct tu__device {
    char name[48]; /* "cpu:0.1" */
    char word[64]; /* what a list says to mean it alone: "cpu:0.1/2" */
    const tu_device_api *api;
    tu_device_instance *instance;
    tu_open_options options;
    int users;
    struct tu__device *next;

    pthread_mutex_t turn; /* one program at a time */
    void *scratch;
    size_t scratch_bytes;
    uint64_t scratch_generation;         /* rises when the block moves: programs bind anew */
    struct tu__device *pinned_by;        /* the block is pinned for this one; NULL: for nobody */
    atomic_uint_least64_t table_bytes;   /* of tables that lie in its memory: run/table.h */
    struct tu__worker *compute, *copier; /* started when first needed: base/worker.h */
} tu__device;

enum { TU__MAX_DEVICES = 64 }; /* in one program */

/* Describes device `index` of a kind. All fields are set, also if the plug-in was compiled with a shorter or a longer
 * tu_device_info. */
tu_status tu__device_describe(const tu_device_api *api, int index, tu_device_info *info);

/* Opens the devices of a list ("cpu:0/2,ref"; NULL: "all"), at most `capacity`; their count in `*count`. On failure none
 * stays open. A name nobody knows is refused with those there are. Of `options` (NULL: the defaults) which device and
 * which part are the list's. A device opened with other threads, tuning or order is another one, with memory of its own;
 * the first to open it decides on its limit. */
TU__SHARED tu_status tu__devices_open(const char *list, const tu_open_options *options, size_t capacity,
                                      tu__device **devices, size_t *count);
TU__SHARED void tu__devices_close(size_t count, tu__device **devices);
/* One more user of an opened device; ended by tu__devices_close. */
void tu__device_keep(tu__device *device);

/* Threads that the device computes with; 1 where it does not tell. */
int tu__device_threads(const tu__device *device);

/* Scratch of at least `bytes`; the block may move. Call with the device's turn held. */
tu_status tu__device_scratch(tu__device *device, size_t bytes);

/* Pins memory of the host for a device whose own is elsewhere; whether it did, which makes one more user of the device, until
 * somebody unpins it. Memory that cannot be pinned, since there is too little of it or a limit to that, is as good, but slower. */
bool tu__device_pin(tu__device *device, void *host, size_t bytes);
/* The same of a host device's scratch, if that is not pinned yet. Call with both turns held. */
void tu__device_pin_scratch(tu__device *host, tu__device *device);

/* Moves bytes between two devices, through the host where they know no shorter way. */
tu_status tu__device_copy(tu__device *to, void *to_address, tu__device *from, const void *from_address,
                          size_t bytes);

/* plan_check.c: refuses a plan that cannot be, naming the device, the kernel and what is wrong. */
tu_status tu__plan_check(const char *device, const tu_partition *part, const tu_plan *plan);

/* bundled.c: the path of a plug-in that comes with the engine; false when it is not there. */
bool tu__bundled_plugin(const char *file, size_t capacity, char *path);

/* nvidia_card.c: whether this machine has an NVIDIA card that CUDA_VISIBLE_DEVICES does not hide, and the file that shows
 * it; the same below another root. Needs no driver. */
bool tu__nvidia_card(size_t capacity, char *path);
bool tu__nvidia_card_in(const char *root, size_t capacity, char *path);
/* Stands in for the CUDA device on a machine with a card: nothing of it can be used. `why`, if it is not that there is
 * no plug-in. */
extern const tu_device_api tu__missing_cuda_api;
void tu__missing_cuda_because(const char *why);

/* Why "all" is the CPU on a machine with a card, which cannot be used; NULL: there is none, or it can. The text lives
 * until the next call in this thread. */
TU__SHARED const char *tu__unused_card(void);

/* The kinds built in; and one more, as a plug-in would bring it, for as long as the process lives. */
extern const tu_device_api tu__ref_api, tu__null_api, tu__cpu_api;
tu_status tu__device_kind_add(const tu_device_api *api);

#endif
