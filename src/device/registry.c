/* The device registry: built-in kinds, plug-ins, and open devices.
 *
 * A list of devices has the syntax of the command line: device specs separated by commas. A spec is a name; a range
 * "null:0-3"; "cpu:0/2" for a device split into two logical devices, "cpu:0.1/2" for one of these; a kind, which
 * means its device 0; or "all", which means all usable GPUs, or the CPU if there is none. */
#include <ctype.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/shared_library.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/worker.h"
#include "device/device.h"

/* ---- Kinds ---- */

enum { MAX_KINDS = 32, MAX_LOGICAL = 1024, MAX_DEVICES = 1024 /* of a kind */ };

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static const tu_device_api *kinds[MAX_KINDS];
static tu_device_api
    plugins[MAX_KINDS]; /* copies of the plug-ins' tables; functions that they lack are NULL */
static const tu_device_api *plugin_tables[MAX_KINDS]; /* the originals */
static int plugin_count;
static int kind_count;
static tu__device *opened;

static tu_status add_kind(const tu_device_api *api) {
    for (int i = 0; i < kind_count; i++)
        if (kinds[i] == &tu__missing_cuda_api && strcmp(api->kind, kinds[i]->kind) == 0) {
            kinds[i] = api;
            return TU_OK;
        } else if (strcmp(kinds[i]->kind, api->kind) == 0)
            return kinds[i] == api ? TU_OK
                                   : tu_fail(TU_INVALID, "device kind '%s' is already registered", api->kind);
    if (kind_count == MAX_KINDS)
        return tu_fail(TU_UNSUPPORTED, "too many device kinds: expected at most %d", MAX_KINDS);
    kinds[kind_count++] = api;
    return TU_OK;
}

static tu_status fail_other_kit(const char *path, const char *version) {
    return tu_fail(TU_UNSUPPORTED,
                   "device plug-in '%s' was built with the kit of Tutti %s, this library is %s: rebuild it",
                   path, version ? version : "(unknown)", tu_version());
}

static tu_status check_plugin(const char *path, const tu_device_api *api) {
    if (!api) return tu_fail(TU_INVALID, "device plug-in '%s': tu_device_plugin returned NULL", path);
    if (api->abi == TU_DEVICE_OTHER_KIT) return fail_other_kit(path, api->kind);
    if (api->abi != TU_DEVICE_ABI)
        return tu_fail(TU_UNSUPPORTED,
                       "device plug-in '%s' was built for device interface %u, this library has %d: "
                       "rebuild the plug-in with this library's headers",
                       path, api->abi, TU_DEVICE_ABI);
    size_t valid_characters = api->kind ? strspn(api->kind, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
    if (valid_characters < 1 || valid_characters > 16 || api->kind[valid_characters])
        return tu_fail(TU_INVALID,
                       "device plug-in '%s' has the kind '%s': expected 1 to 16 characters of a-z, 0-9, _",
                       path, api->kind ? api->kind : "");
    if (api->struct_size < offsetof(tu_device_api, supports) || !api->describe || !api->open || !api->close ||
        !api->allocate || !api->release || !api->copy || !api->lower || !api->plan_free || !api->build ||
        !api->executable_free || !api->launch)
        return tu_fail(TU_INVALID, "device plug-in '%s' (%s) does not define all mandatory functions", path,
                       api->kind);
    return TU_OK;
}

/* Checks that each optional group of functions is complete or missing. */
static tu_status check_groups(const char *path, const tu_device_api *api) {
    int queues = !!api->queue_new + !!api->queue_free + !!api->record + !!api->wait + !!api->synchronize,
        peers = !!api->peer_access + !!api->build_collective, lists = !!api->build_list + !!api->submit;
    const char *incomplete = queues % 5 ? "queues" : peers % 2 ? "peers" : lists % 2 ? "lists" : NULL;
    if (!queues && (peers || lists)) incomplete = "queues";
    if (!incomplete) return TU_OK;
    return tu_fail(TU_INVALID,
                   "device plug-in '%s' (%s) defines some functions of the group '%s', but not all of them",
                   path, api->kind, incomplete);
}

/* Copies the table of a plug-in, which is shorter if the plug-in is older; the missing functions stay NULL. */
static tu_status add_plugin(const char *path, const tu_device_api *api) {
    for (int i = 0; i < plugin_count; i++)
        if (plugin_tables[i] == api) return TU_OK;
    if (plugin_count == MAX_KINDS) return add_kind(api); /* which fails */
    tu_device_api *copy = &plugins[plugin_count];
    *copy = (tu_device_api){0};
    memcpy(copy, api, api->struct_size < sizeof *copy ? api->struct_size : sizeof *copy);
    TU_TRY(check_groups(path, copy));
    TU_TRY(add_kind(copy));
    plugin_tables[plugin_count++] = api;
    return TU_OK;
}

static tu_status register_plugin(const char *path, void *library) {
    const tu_device_api *(*entry)(void);
    *(void **)&entry = dlsym(library, "tu_device_plugin");
    if (!entry)
        return tu_fail(TU_INVALID, "'%s' is not a device plug-in: it does not export tu_device_plugin", path);
    const tu_device_api *api = entry();
    TU_TRY(check_plugin(path, api));
    return add_plugin(path, api);
}

/* Reports why loading failed. A plug-in that was built with the kit of another version needs a symbol version that this
 * library does not have (libtutti.map.in). Only its name is searched for: the loader's message may be translated. */
static tu_status fail_to_load(const char *path, const char *reason) {
    static const char node[] = "TUTTI_PRIVATE_";
    const char *found = strstr(reason, node);
    char version[32] = "";
    if (found) sscanf(found + strlen(node), "%31[0-9.]", version);
    if (*version && strcmp(version, tu_version()) != 0) return fail_other_kit(path, version);
    return tu_fail(TU_NOT_FOUND, "device plug-in '%s' cannot be loaded: %s", path, reason);
}

static tu_status load_plugin(const char *path) {
    void *library = tu__shared_library_open(path);
    if (!library) return fail_to_load(path, tu__shared_library_error());
    tu_status status = register_plugin(path, library);
    if (status != TU_OK) dlclose(library); /* a registered kind is never unloaded */
    return status;
}

/* Reports a failure on stderr and continues with the other plug-ins. */
static bool load_plugin_or_report(const char *path, const char *source) {
    bool loaded = load_plugin(path) == TU_OK;
    if (!loaded) fprintf(stderr, "tutti: %s: %s\n", source, tu_message());
    return loaded;
}

/* Loads the CUDA plug-in, if it is installed and TUTTI_CUDA is not "off". Loading does not touch the driver: the
 * plug-in looks for GPUs on first use. If it cannot be loaded and there is a GPU, registers the replacement that
 * reports the reason. */
static void load_cuda(void) {
    const char *setting = getenv("TUTTI_CUDA");
    bool off = setting && strcmp(setting, "off") == 0,
         valid = off || !setting || !*setting || strcmp(setting, "on") == 0;
    if (!valid) fprintf(stderr, "tutti: TUTTI_CUDA is '%s': expected on or off; using on\n", setting);
    char path[PATH_MAX];
    if (off) return;
    if (tu__bundled_plugin("libtutti_cuda.so", sizeof path, path)) {
        if (load_plugin_or_report(path, "CUDA")) return;
        tu__set_missing_cuda_reason(tu_message());
    }
    if (tu__find_nvidia_gpu(sizeof path, path)) add_kind(&tu__missing_cuda_api);
}

/* Loads the plug-ins that TUTTI_DEVICES lists. */
static void load_tutti_devices(void) {
    const char *list = getenv("TUTTI_DEVICES");
    char path[PATH_MAX];
    while (list && *list) {
        size_t length = strcspn(list, ":");
        if (length >= sizeof path) {
            fprintf(stderr, "tutti: TUTTI_DEVICES: '%.60s...' is longer than %d characters\n", list,
                    PATH_MAX - 1);
        } else if (length) {
            snprintf(path, sizeof path, "%.*s", (int)length, list);
            load_plugin_or_report(path, "TUTTI_DEVICES");
        }
        list += length + (list[length] == ':');
    }
}

static void add_own_kinds(void) {
    if (kind_count) return;
    add_kind(&tu__cpu_api);
    add_kind(&tu__ref_api);
    add_kind(&tu__null_api);
}

/* Also loads the plug-ins, which takes milliseconds: not before another kind than our own is asked for. */
static void load_kinds(void) {
    static bool are_loaded;
    if (are_loaded) return;
    are_loaded = true;
    add_own_kinds();
    load_cuda();
    load_tutti_devices();
}

tu_status tu__device_kind_add(const tu_device_api *api) {
    pthread_mutex_lock(&registry_lock);
    load_kinds();
    tu_status status = add_kind(api);
    pthread_mutex_unlock(&registry_lock);
    return status;
}

tu_status tu_device_load(const char *path) {
    pthread_mutex_lock(&registry_lock);
    load_kinds();
    tu_status status = load_plugin(path);
    pthread_mutex_unlock(&registry_lock);
    return status;
}

tu_status tu__device_describe(const tu_device_api *api, tu_device_instance *instance, int index,
                              tu_device_info *info) {
    /* A plug-in of a later version may fill a longer structure. */
    union {
        tu_device_info info;
        char bytes[1024];
    } buffer = {.bytes = {0}};
    if (index >= MAX_DEVICES)
        return tu_fail(TU_NOT_FOUND, "device plug-in '%s' describes more than %d devices", api->kind,
                       MAX_DEVICES);
    buffer.info.struct_size = sizeof *info;
    tu_status status = api->describe(instance, index, &buffer.info);
    *info = buffer.info;
    info->struct_size = sizeof *info;
    info->accelerator = api->accelerator;
    return status;
}

/* Describes device `index` in `info` and counts the devices up to it: all of them if there is no such device. The
 * last device of a kind is found by asking for one more, which fails; this thread's message stays as it was. */
static bool find_described(size_t index, tu_device_info *info, size_t *count) {
    bool found = false;
    char message[1024];
    snprintf(message, sizeof message, "%s", tu_message());
    *count = 0;
    pthread_mutex_lock(&registry_lock);
    load_kinds();
    for (int k = 0; k < kind_count && !found; k++)
        for (int i = 0; !found && tu__device_describe(kinds[k], NULL, i, info) == TU_OK; i++)
            found = (*count)++ == index;
    pthread_mutex_unlock(&registry_lock);
    tu_fail(TU_OK, "%s", message);
    return found;
}

size_t tu_device_count(void) {
    tu_device_info info = TU_SIZED(tu_device_info);
    size_t count;
    find_described(SIZE_MAX, &info, &count);
    return count;
}

tu_status tu_device(size_t index, tu_device_info *info) {
    tu_device_info full = TU_SIZED(tu_device_info);
    size_t count;
    TU_TRY(TU__CHECK_SIZED(tu_device_info, info));
    if (!find_described(index, &full, &count))
        return tu_fail(TU_NOT_FOUND,
                       "device index %zu is out of range: there are %zu devices, counted from 0", index,
                       count);
    TU__COPY_SIZED(info, full);
    return TU_OK;
}

/* ---- Device specs ---- */

typedef struct device_spec {
    const tu_device_api *api;
    int first, last;                  /* indices */
    int logical_index, logical_count; /* logical devices: which one (-1: all), and how many */
} device_spec;

/* Lists the devices that can be used, or those that cannot, separated by commas. */
static void list_devices(tu__text *text, bool usable) {
    tu_device_info info = TU_SIZED(tu_device_info);
    for (int k = 0; k < kind_count; k++)
        for (int i = 0; tu__device_describe(kinds[k], NULL, i, &info) == TU_OK; i++)
            if (strcmp(kinds[k]->kind, "null") != 0 && !info.unusable == usable)
                tu__text_printf(text, "%s%s", text->length ? ", " : "", info.name);
}

static tu_status fail_unknown_device(const char *name) {
    tu__text usable = {0}, unusable = {0};
    load_kinds();
    list_devices(&usable, true);
    list_devices(&unusable, false);
    tu_fail(TU_NOT_FOUND,
            "there is no device '%s': the devices are %s (\"cpu:0/2\": two logical devices of cpu:0)%s%s%s",
            name, tu__text_string(&usable), unusable.length ? "; " : "", tu__text_string(&unusable),
            unusable.length ? " cannot be used: 'tutti devices' shows the reason" : "");
    tu__text_free(&usable);
    tu__text_free(&unusable);
    return TU_NOT_FOUND;
}

/* Parses a number at *text and advances; returns -1 if there is none. */
static int parse_number(const char **text) {
    if (!isdigit((unsigned char)**text)) return -1;
    long value = strtol(*text, (char **)text, 10);
    return value > 1 << 20 ? -1 : (int)value;
}

/* Distinguishes a device that does not exist from one that cannot be used. */
static tu_status check_usable(const tu_device_api *api, int index, const char *name) {
    tu_device_info info = TU_SIZED(tu_device_info);
    tu_status status = tu__device_describe(api, NULL, index, &info);
    if (status == TU_NOT_FOUND) return fail_unknown_device(name);
    if (status != TU_OK) return tu_fail(status, "device '%s' cannot be used: %s", name, tu_message());
    if (info.unusable) return tu_fail(TU_UNSUPPORTED, "device '%s' cannot be used: %s", name, info.unusable);
    return TU_OK;
}

static const tu_device_api *find_added_kind(const char *name, size_t length) {
    for (int k = 0; k < kind_count; k++)
        if (strlen(kinds[k]->kind) == length && strncmp(kinds[k]->kind, name, length) == 0) return kinds[k];
    return NULL;
}

static const tu_device_api *find_kind(const char *name, size_t length) {
    add_own_kinds();
    const tu_device_api *api = find_added_kind(name, length);
    if (api) return api;
    load_kinds();
    return find_added_kind(name, length);
}

static tu_status parse_device_spec(const char *name, device_spec *spec) {
    size_t length = strcspn(name, ":");
    const char *rest = name + length;
    *spec = (device_spec){.logical_count = 1};
    spec->api = find_kind(name, length);
    if (!spec->api) return fail_unknown_device(name);
    bool is_valid = true;
    if (*rest == ':') {
        rest++;
        spec->first = spec->last = parse_number(&rest);
        if (*rest == '-') rest++, spec->last = parse_number(&rest);
        bool is_single = *rest == '.';
        if (is_single) rest++, spec->logical_index = parse_number(&rest);
        if (*rest == '/') {
            rest++;
            spec->logical_count = parse_number(&rest);
            if (!is_single) spec->logical_index = -1;
        }
        is_valid = !*rest && spec->first >= 0 && spec->last >= spec->first && spec->logical_count >= 1 &&
                   spec->logical_count <= MAX_LOGICAL && spec->logical_index < spec->logical_count &&
                   (!is_single || spec->logical_index >= 0);
    } else if (*rest) {
        is_valid = false;
    }
    if (!is_valid)
        return tu_fail(TU_INVALID,
                       "device '%s': expected KIND, KIND:N, KIND:N-M, KIND:N/PARTS or KIND:N.PART/PARTS, "
                       "with 1 to %d PARTS",
                       name, MAX_LOGICAL);
    for (int i = spec->first; i <= spec->last; i++) TU_TRY(check_usable(spec->api, i, name));
    return TU_OK;
}

/* ---- Opening ---- */

static tu__device *find_opened(const tu_device_api *api, const tu_open_options *o) {
    for (tu__device *d = opened; d; d = d->next)
        if (d->api == api && d->options.index == o->index && d->options.logical_index == o->logical_index &&
            d->options.logical_count == o->logical_count && d->options.threads == o->threads &&
            d->options.tune == o->tune && d->options.nondeterministic == o->nondeterministic &&
            d->options.streams == o->streams && d->options.whole_device_kernels == o->whole_device_kernels)
            return d;
    return NULL;
}

static void name_device(tu__device *d) {
    const tu_open_options *o = &d->options;
    int used = snprintf(d->name, sizeof d->name, "%s:%d", d->api->kind, o->index);
    if (o->logical_count > 1)
        snprintf(d->name + used, sizeof d->name - (size_t)used, ".%d", o->logical_index);
    used = snprintf(d->spec, sizeof d->spec, "%s", d->name);
    if (o->logical_count > 1)
        snprintf(d->spec + used, sizeof d->spec - (size_t)used, "/%d", o->logical_count);
}

/* Returns the cores of a logical device: `count` of those of this thread, from index `first` on. */
static bool select_cores(int first, int count, cpu_set_t *cores) {
    cpu_set_t mask;
    int index = 0;
    CPU_ZERO(&mask);
    CPU_ZERO(cores);
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return false;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &mask) && index++ >= first && index <= first + count) CPU_SET(core, cores);
    return CPU_COUNT(cores) == count;
}

static void read_properties(tu__device *d) {
    tu_device_info info;
    d->threads = 1;
    if (tu__device_describe(d->api, d->instance, d->options.index, &info) != TU_OK) return;
    if (info.threads > 0) d->threads = info.threads;
    d->pins_threads = d->options.logical_count > 1 && info.cores > 0 &&
                      select_cores(info.first_core, info.cores, &d->cores);
}

tu_status tu__device_pin_thread(const tu__device *device) {
    if (device->pins_threads && sched_setaffinity(0, sizeof device->cores, &device->cores) != 0)
        return tu_fail(TU_INTERNAL, "%s: the host thread could not be pinned to its %d cores", device->name,
                       CPU_COUNT(&device->cores));
    return TU_OK;
}

static tu_status open_one(const tu_device_api *api, const tu_open_options *o, tu__device **device) {
    tu__device *d = find_opened(api, o);
    if (!d) {
        d = tu__alloc(sizeof *d, "a device");
        if (!d) return TU_NO_MEMORY;
        d->api = api;
        d->options = *o;
        name_device(d);
        tu_status status = api->open(o, &d->instance);
        if (status != TU_OK) {
            tu__free(d);
            return status;
        }
        read_properties(d);
        tu__session_device_init(&d->shared, d);
        d->next = opened;
        opened = d;
    }
    d->users++;
    *device = d;
    return TU_OK;
}

/* The caller must hold the registry's lock. */
static void close_one(tu__device *device) {
    if (--device->users) return;
    tu__device **at = &opened;
    while (*at != device) at = &(*at)->next;
    *at = device->next;
    tu__device *pinned_by = device->shared.pinned_by;
    tu__session_device_free(&device->shared);
    if (pinned_by) close_one(pinned_by);
    device->api->close(device->instance);
    tu__free(device);
}

static tu_status open_spec(const device_spec *spec, tu_open_options *o, size_t capacity, tu__device **devices,
                           size_t *count) {
    for (o->index = spec->first; o->index <= spec->last; o->index++)
        for (int index = 0; index < spec->logical_count; index++) {
            if (spec->logical_index >= 0 && index != spec->logical_index) continue;
            o->logical_index = index;
            o->logical_count = spec->logical_count;
            if (*count == capacity)
                return tu_fail(TU_UNSUPPORTED, "too many devices in one program: expected at most %zu",
                               capacity);
            TU_TRY(open_one(spec->api, o, &devices[*count]));
            for (size_t i = 0; i < *count; i++)
                if (strcmp(devices[i]->name, devices[*count]->name) == 0) {
                    close_one(devices[*count]);
                    return tu_fail(TU_INVALID, "device '%s' is in the list twice", devices[i]->name);
                }
            ++*count;
        }
    return TU_OK;
}

/* Opens the GPUs that can be used; if there are none, the CPU. */
static tu_status open_all(tu_open_options *o, size_t capacity, tu__device **devices, size_t *count) {
    size_t before = *count;
    tu_device_info info = TU_SIZED(tu_device_info);
    load_kinds();
    for (int k = 0; k < kind_count; k++)
        for (int i = 0; kinds[k]->accelerator && tu__device_describe(kinds[k], NULL, i, &info) == TU_OK;
             i++) {
            device_spec gpu = {.api = kinds[k], .first = i, .last = i, .logical_count = 1};
            if (!info.unusable) TU_TRY(open_spec(&gpu, o, capacity, devices, count));
        }
    if (*count > before) return TU_OK;
    device_spec cpu = {.api = &tu__cpu_api, .logical_count = 1};
    return open_spec(&cpu, o, capacity, devices, count);
}

/* True if a GPU device cannot be used although there is a GPU: the driver reports memory for it, or, without a
 * driver, a file shows that there is one. */
static bool is_unused_gpu(const tu_device_api *api, const tu_device_info *info) {
    char path[256];
    return info->unusable &&
           (info->memory_bytes || api == &tu__missing_cuda_api || tu__find_nvidia_gpu(sizeof path, path));
}

const char *tu__unused_gpu_reason(void) {
    static _Thread_local char text[1200];
    const char *notice = NULL;
    tu_device_info info = TU_SIZED(tu_device_info);
    pthread_mutex_lock(&registry_lock);
    load_kinds();
    for (int k = 0; k < kind_count && !notice; k++)
        if (kinds[k]->accelerator && tu__device_describe(kinds[k], NULL, 0, &info) == TU_OK &&
            is_unused_gpu(kinds[k], &info)) {
            snprintf(text, sizeof text, "%s cannot be used, so the CPU is used: %s", info.name,
                     info.unusable);
            notice = text;
        }
    pthread_mutex_unlock(&registry_lock);
    return notice;
}

static tu_status open_list(const char *list, tu_open_options *o, size_t capacity, tu__device **devices,
                           size_t *count) {
    char name[64];
    while (*list) {
        size_t length = strcspn(list, ",");
        if (length == 0 || length >= sizeof name)
            return tu_fail(TU_INVALID, "devices '%s': expected names separated by commas", list);
        snprintf(name, sizeof name, "%.*s", (int)length, list);
        if (strcmp(name, "all") == 0) {
            TU_TRY(open_all(o, capacity, devices, count));
        } else {
            device_spec spec;
            TU_TRY(parse_device_spec(name, &spec));
            TU_TRY(open_spec(&spec, o, capacity, devices, count));
        }
        list += length + (list[length] == ',');
    }
    return *count ? TU_OK : tu_fail(TU_INVALID, "the list names no device: expected for example \"cpu:0\"");
}

tu_status tu__devices_open(const char *list, const tu_open_options *options, size_t capacity,
                           tu__device **devices, size_t *count) {
    *count = 0;
    tu_open_options o = options ? *options : (tu_open_options){0};
    o.struct_size = sizeof o;
    pthread_mutex_lock(&registry_lock);
    tu_status status = open_list(list ? list : "all", &o, capacity, devices, count);
    for (; status != TU_OK && *count; --*count) close_one(devices[*count - 1]);
    pthread_mutex_unlock(&registry_lock);
    return status;
}

void tu__devices_close(size_t count, tu__device **devices) {
    pthread_mutex_lock(&registry_lock);
    for (size_t i = 0; i < count; i++) close_one(devices[i]);
    pthread_mutex_unlock(&registry_lock);
}

void tu__device_retain(tu__device *device) {
    pthread_mutex_lock(&registry_lock);
    device->users++;
    pthread_mutex_unlock(&registry_lock);
}

/* ---- Copies ---- */

/* The engine's view of an address for the interface: memory of host devices is host memory. */
static tu_memory memory_of(const tu__device *device, const void *address) {
    union { /* `copy` does not write to its source, but has one type for both ends */
        const void *constant;
        void *address;
    } cast = {address};
    return (tu_memory){device->api->host_memory ? NULL : device->instance, cast.address};
}

static tu_memory host_memory(const void *address) {
    union {
        const void *constant;
        void *address;
    } cast = {address};
    return (tu_memory){NULL, cast.address};
}

tu_status tu__upload(const tu__device *device, void *to, const void *host, size_t bytes) {
    return device->api->copy(device->instance, NULL, memory_of(device, to), host_memory(host), bytes);
}

tu_status tu__download(const tu__device *device, void *host, const void *from, size_t bytes) {
    return device->api->copy(device->instance, NULL, host_memory(host), memory_of(device, from), bytes);
}

/* True if devices of this kind copy from each other. */
static bool copies_directly(const tu__device *to, const tu__device *from) {
    return to == from || (to->api == from->api && (to->api->peer_access || to->api->host_memory));
}

tu_status tu__device_copy(tu__device *to, void *to_address, tu__device *from, const void *from_address,
                          size_t bytes) {
    tu_memory target = memory_of(to, to_address), source = memory_of(from, from_address);
    if (copies_directly(to, from)) return to->api->copy(to->instance, NULL, target, source, bytes);
    if (from->api->host_memory) return to->api->copy(to->instance, NULL, target, source, bytes);
    if (to->api->host_memory) return from->api->copy(from->instance, NULL, target, source, bytes);
    void *host = tu__alloc_aligned(bytes, "a copy between devices");
    if (!host) return TU_NO_MEMORY;
    tu_status status = tu__download(from, host, from_address, bytes);
    if (status == TU_OK) status = tu__upload(to, to_address, host, bytes);
    tu__free_aligned(host);
    return status;
}
