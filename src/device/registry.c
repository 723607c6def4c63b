/* The devices there are: kinds built in and plugged in, and those that programs have opened.
 *
 * A list of devices is written as on the command line: names with commas; a range "null:0-3"; "cpu:0/2" for a
 * device split into logical ones, "cpu:0.1/2" for one of these; a kind alone means its number 0; "all" means the GPUs
 * if there are any that can be used, else the CPU. */
#include <ctype.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/worker.h"
#include "device/device.h"

/* ---- Kinds ---- */

enum { MAX_KINDS = 32, MAX_PARTS = 1024 };

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static const tu_device_api *kinds[MAX_KINDS];
static tu_device_api plugins[MAX_KINDS]; /* what plug-ins gave, with the slots they do not know empty */
static const tu_device_api *plugin_tables[MAX_KINDS];
static int plugin_count;
static int kind_count;
static tu__device *opened;

static tu_status add_kind(const tu_device_api *api) {
    for (int i = 0; i < kind_count; i++)
        if (kinds[i] == &tu__missing_cuda_api && strcmp(api->kind, "gpu") == 0) {
            kinds[i] = api;
            return TU_OK;
        } else if (strcmp(kinds[i]->kind, api->kind) == 0)
            return kinds[i] == api ? TU_OK
                                   : tu_fail(TU_INVALID, "device kind '%s' is there already", api->kind);
    if (kind_count == MAX_KINDS) return tu_fail(TU_UNSUPPORTED, "at most %d kinds of devices", MAX_KINDS);
    kinds[kind_count++] = api;
    return TU_OK;
}

static tu_status check_plugin(const char *path, const tu_device_api *api) {
    if (!api) return tu_fail(TU_INVALID, "device plug-in '%s' describes no device", path);
    if (api->abi != TU_DEVICE_ABI)
        return tu_fail(TU_UNSUPPORTED,
                       "device plug-in '%s' is made for device interface %u, this library has %d: "
                       "build the plug-in against this library's headers",
                       path, api->abi, TU_DEVICE_ABI);
    size_t letters = api->kind ? strspn(api->kind, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
    if (letters < 1 || letters > 16 || api->kind[letters])
        return tu_fail(TU_INVALID,
                       "device plug-in '%s' calls its kind '%s': expected 1 to 16 of a-z, 0-9 and _", path,
                       api->kind ? api->kind : "");
    if (api->struct_size < offsetof(tu_device_api, inspect) || !api->describe || !api->open || !api->close ||
        !api->allocate || !api->release || !api->upload || !api->download || !api->select || !api->build ||
        !api->plan_free || !api->launch)
        return tu_fail(TU_INVALID, "device plug-in '%s' (%s) leaves out functions that are not optional",
                       path, api->kind);
    return TU_OK;
}

/* A plug-in older than a slot has a shorter table: it is copied, and what it lacks stays empty. */
static tu_status add_plugin(const tu_device_api *api) {
    for (int i = 0; i < plugin_count; i++)
        if (plugin_tables[i] == api) return TU_OK;
    if (plugin_count == MAX_KINDS) return add_kind(api); /* which refuses */
    tu_device_api *own = &plugins[plugin_count];
    *own = (tu_device_api){0};
    memcpy(own, api, api->struct_size < sizeof *own ? api->struct_size : sizeof *own);
    TU_TRY(add_kind(own));
    plugin_tables[plugin_count++] = api;
    return TU_OK;
}

static tu_status take_plugin(const char *path, void *library) {
    const tu_device_api *(*entry)(void);
    *(void **)&entry = dlsym(library, "tu_device_plugin");
    if (!entry) return tu_fail(TU_INVALID, "'%s' is no device plug-in: it exports no tu_device_plugin", path);
    const tu_device_api *api = entry();
    TU_TRY(check_plugin(path, api));
    return add_plugin(api);
}

static tu_status load_plugin(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return tu_fail(TU_NOT_FOUND, "device plug-in '%s' cannot be loaded: %s", path, dlerror());
    tu_status status = take_plugin(path, library);
    if (status != TU_OK) dlclose(library); /* a kind that was taken is never unloaded */
    return status;
}

/* One that fails is reported, the others serve. */
static bool load_or_report(const char *path, const char *who) {
    bool loaded = load_plugin(path) == TU_OK;
    if (!loaded) fprintf(stderr, "tutti: %s: %s\n", who, tu_message());
    return loaded;
}

/* The CUDA device, if it lies beside the engine and TUTTI_CUDA is not "off". Loading it touches no driver: it looks for
 * cards when somebody asks for them. Where it cannot be loaded, and there is a card, its stand-in says so. */
static void load_cuda(void) {
    const char *wish = getenv("TUTTI_CUDA");
    bool off = wish && strcmp(wish, "off") == 0, known = off || !wish || !*wish || strcmp(wish, "on") == 0;
    if (!known) fprintf(stderr, "tutti: TUTTI_CUDA is '%s': expected on or off; taken as on\n", wish);
    char path[1024];
    if (off) return;
    if (tu__bundled_plugin("libtutti_cuda.so", sizeof path, path)) {
        if (load_or_report(path, "CUDA")) return;
        tu__missing_cuda_because(tu_message());
    }
    if (tu__nvidia_card(sizeof path, path)) add_kind(&tu__missing_cuda_api);
}

/* The plug-ins that TUTTI_DEVICES names. */
static void load_named(void) {
    const char *list = getenv("TUTTI_DEVICES");
    char path[1024];
    while (list && *list) {
        size_t length = strcspn(list, ":");
        if (length && length < sizeof path) {
            snprintf(path, sizeof path, "%.*s", (int)length, list);
            load_or_report(path, "TUTTI_DEVICES");
        }
        list += length + (list[length] == ':');
    }
}

static void load_kinds(void) {
    if (kind_count) return;
    add_kind(&tu__cpu_api);
    add_kind(&tu__ref_api);
    add_kind(&tu__null_api);
    load_cuda();
    load_named();
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

tu_status tu__device_describe(const tu_device_api *api, int index, tu_device_info *info) {
    /* A plug-in of a later version may fill a longer structure. */
    union {
        tu_device_info info;
        char room[1024];
    } filled = {.room = {0}};
    filled.info.struct_size = sizeof *info;
    tu_status status = api->describe(index, &filled.info);
    *info = filled.info;
    info->struct_size = sizeof *info;
    return status;
}

/* Describes device `index` in `info` and counts the devices up to it: all of them if there is no such device. The last
 * device of a kind is found by asking for one more, which fails; this thread's message stays as it was. */
static bool find_described(size_t index, tu_device_info *info, size_t *count) {
    bool found = false;
    char message[1024];
    snprintf(message, sizeof message, "%s", tu_message());
    *count = 0;
    pthread_mutex_lock(&registry_lock);
    load_kinds();
    for (int k = 0; k < kind_count && !found; k++)
        for (int i = 0; !found && tu__device_describe(kinds[k], i, info) == TU_OK; i++)
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
        return tu_fail(TU_NOT_FOUND, "there is no device number %zu: there are %zu", index, count);
    TU__GIVE_SIZED(info, full);
    return TU_OK;
}

/* ---- Names ---- */

typedef struct wanted {
    const tu_device_api *api;
    int first, last; /* indices */
    int part, parts; /* part -1: all of them */
} wanted;

/* The devices that can be used, or those that cannot, with commas between. */
static void list_devices(tu__text *text, bool usable) {
    tu_device_info info = TU_SIZED(tu_device_info);
    for (int k = 0; k < kind_count; k++)
        for (int i = 0; tu__device_describe(kinds[k], i, &info) == TU_OK; i++)
            if (strcmp(kinds[k]->kind, "null") != 0 && !info.unusable == usable)
                tu__text_printf(text, "%s%s", text->length ? ", " : "", info.name);
}

static tu_status unknown(const char *name) {
    tu__text usable = {0}, others = {0};
    list_devices(&usable, true);
    list_devices(&others, false);
    tu_fail(TU_NOT_FOUND, "there is no device '%s': the devices are %s (\"cpu:0/2\" splits one in two)%s%s%s",
            name, tu__text_string(&usable), others.length ? "; " : "", tu__text_string(&others),
            others.length ? " cannot be used: 'tutti devices' says why" : "");
    tu__text_free(&usable);
    tu__text_free(&others);
    return TU_NOT_FOUND;
}

/* A number at *text, moved over; -1 when there is none. */
static int number(const char **text) {
    if (!isdigit((unsigned char)**text)) return -1;
    long value = strtol(*text, (char **)text, 10);
    return value > 1 << 20 ? -1 : (int)value;
}

/* One that is not there is another thing than one that cannot be asked. */
static tu_status check_usable(const tu_device_api *api, int index, const char *name) {
    tu_device_info info = TU_SIZED(tu_device_info);
    tu_status status = tu__device_describe(api, index, &info);
    if (status == TU_NOT_FOUND) return unknown(name);
    if (status != TU_OK) return tu_fail(status, "device '%s' cannot be used: %s", name, tu_message());
    if (info.unusable) return tu_fail(TU_UNSUPPORTED, "device '%s' cannot be used: %s", name, info.unusable);
    return TU_OK;
}

static tu_status parse_name(const char *name, wanted *w) {
    size_t length = strcspn(name, ":");
    const char *rest = name + length;
    *w = (wanted){.parts = 1};
    for (int k = 0; k < kind_count && !w->api; k++)
        if (strlen(kinds[k]->kind) == length && strncmp(kinds[k]->kind, name, length) == 0) w->api = kinds[k];
    if (!w->api) return unknown(name);
    bool good = true;
    if (*rest == ':') {
        rest++;
        w->first = w->last = number(&rest);
        if (*rest == '-') rest++, w->last = number(&rest);
        bool one = *rest == '.';
        if (one) rest++, w->part = number(&rest);
        if (*rest == '/') {
            rest++;
            w->parts = number(&rest);
            if (!one) w->part = -1;
        }
        good = !*rest && w->first >= 0 && w->last >= w->first && w->parts >= 1 && w->parts <= MAX_PARTS &&
               w->part < w->parts && (!one || w->part >= 0);
    } else if (*rest) {
        good = false;
    }
    if (!good)
        return tu_fail(TU_INVALID,
                       "device '%s': expected KIND, KIND:N, KIND:N-M, KIND:N/PARTS or KIND:N.PART/PARTS, "
                       "with 1 to %d PARTS",
                       name, MAX_PARTS);
    for (int i = w->first; i <= w->last; i++) TU_TRY(check_usable(w->api, i, name));
    return TU_OK;
}

/* ---- Opening ---- */

static tu__device *find_opened(const tu_device_api *api, const tu_open_options *o) {
    for (tu__device *d = opened; d; d = d->next)
        if (d->api == api && d->options.index == o->index && d->options.part == o->part &&
            d->options.parts == o->parts && d->options.threads == o->threads && d->options.tune == o->tune &&
            d->options.any_order == o->any_order && d->options.streams == o->streams &&
            d->options.alike == o->alike)
            return d;
    return NULL;
}

static void name_device(tu__device *d) {
    const tu_open_options *o = &d->options;
    int used = snprintf(d->name, sizeof d->name, "%s:%d", d->api->kind, o->index);
    if (o->parts > 1) snprintf(d->name + used, sizeof d->name - (size_t)used, ".%d", o->part);
    used = snprintf(d->word, sizeof d->word, "%s", d->name);
    if (o->parts > 1) snprintf(d->word + used, sizeof d->word - (size_t)used, "/%d", o->parts);
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
        pthread_mutex_init(&d->turn, NULL);
        d->next = opened;
        opened = d;
    }
    d->users++;
    *device = d;
    return TU_OK;
}

/* Call with the registry's lock held. */
static void close_one(tu__device *device);

static void release_scratch(tu__device *device) {
    if (device->pinned_by) device->pinned_by->api->unpin(device->pinned_by->instance, device->scratch);
    if (device->scratch) device->api->release(device->instance, device->scratch);
    device->scratch = NULL;
    device->scratch_bytes = 0;
}

static void close_one(tu__device *device) {
    if (--device->users) return;
    tu__device **at = &opened;
    while (*at != device) at = &(*at)->next;
    *at = device->next;
    tu__worker_stop(device->compute);
    tu__worker_stop(device->copier);
    release_scratch(device);
    if (device->pinned_by) close_one(device->pinned_by);
    device->api->close(device->instance);
    pthread_mutex_destroy(&device->turn);
    tu__free(device);
}

static tu_status open_wanted(const wanted *w, tu_open_options *o, size_t capacity, tu__device **devices,
                             size_t *count) {
    for (o->index = w->first; o->index <= w->last; o->index++)
        for (int part = 0; part < w->parts; part++) {
            if (w->part >= 0 && part != w->part) continue;
            o->part = part;
            o->parts = w->parts;
            if (*count == capacity)
                return tu_fail(TU_UNSUPPORTED, "at most %zu devices in one program", capacity);
            TU_TRY(open_one(w->api, o, &devices[*count]));
            for (size_t i = 0; i < *count; i++)
                if (strcmp(devices[i]->name, devices[*count]->name) == 0) {
                    close_one(devices[*count]);
                    return tu_fail(TU_INVALID, "device '%s' is in the list twice", devices[i]->name);
                }
            ++*count;
        }
    return TU_OK;
}

/* The GPUs that can be used; where there are none, the CPU. */
static tu_status open_all(tu_open_options *o, size_t capacity, tu__device **devices, size_t *count) {
    size_t before = *count;
    tu_device_info info = TU_SIZED(tu_device_info);
    for (int k = 0; k < kind_count; k++)
        for (int i = 0;
             strcmp(kinds[k]->kind, "gpu") == 0 && tu__device_describe(kinds[k], i, &info) == TU_OK; i++) {
            wanted gpu = {.api = kinds[k], .first = i, .last = i, .parts = 1};
            if (!info.unusable) TU_TRY(open_wanted(&gpu, o, capacity, devices, count));
        }
    if (*count > before) return TU_OK;
    wanted cpu = {.api = &tu__cpu_api, .parts = 1};
    return open_wanted(&cpu, o, capacity, devices, count);
}

/* Why a GPU that is listed does nothing; false where no card is known to be behind it. A card that the driver shows has
 * memory; where no driver answers, a file may still show that there is one. */
static bool card_is_unused(const tu_device_api *api, const tu_device_info *info) {
    char path[256];
    return info->unusable &&
           (info->memory_bytes || api == &tu__missing_cuda_api || tu__nvidia_card(sizeof path, path));
}

const char *tu__unused_card(void) {
    static _Thread_local char text[1200];
    const char *said = NULL;
    tu_device_info info = TU_SIZED(tu_device_info);
    pthread_mutex_lock(&registry_lock);
    load_kinds();
    for (int k = 0; k < kind_count && !said; k++)
        if (strcmp(kinds[k]->kind, "gpu") == 0 && tu__device_describe(kinds[k], 0, &info) == TU_OK &&
            card_is_unused(kinds[k], &info)) {
            snprintf(text, sizeof text, "%s cannot be used, so the CPU computes: %s", info.name,
                     info.unusable);
            said = text;
        }
    pthread_mutex_unlock(&registry_lock);
    return said;
}

static tu_status open_list(const char *list, tu_open_options *o, size_t capacity, tu__device **devices,
                           size_t *count) {
    char name[64];
    while (*list) {
        size_t length = strcspn(list, ",");
        if (length == 0 || length >= sizeof name)
            return tu_fail(TU_INVALID, "devices '%s': expected names with commas between", list);
        snprintf(name, sizeof name, "%.*s", (int)length, list);
        if (strcmp(name, "all") == 0) {
            TU_TRY(open_all(o, capacity, devices, count));
        } else {
            wanted w;
            TU_TRY(parse_name(name, &w));
            TU_TRY(open_wanted(&w, o, capacity, devices, count));
        }
        list += length + (list[length] == ',');
    }
    return *count ? TU_OK : tu_fail(TU_INVALID, "no device is named: expected for example \"cpu:0\"");
}

tu_status tu__devices_open(const char *list, const tu_open_options *options, size_t capacity,
                           tu__device **devices, size_t *count) {
    *count = 0;
    tu_open_options o = options ? *options : (tu_open_options){0};
    o.struct_size = sizeof o;
    pthread_mutex_lock(&registry_lock);
    load_kinds();
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

void tu__device_keep(tu__device *device) {
    pthread_mutex_lock(&registry_lock);
    device->users++;
    pthread_mutex_unlock(&registry_lock);
}

int tu__device_threads(const tu__device *device) {
    int threads = 1;
    const char *notice;
    if (!device->api->inspect || device->api->inspect(device->instance, &threads, &notice) != TU_OK) return 1;
    return threads > 0 ? threads : 1;
}

/* ---- Memory ---- */

tu_status tu__device_scratch(tu__device *device, size_t bytes) {
    if (bytes <= device->scratch_bytes) return TU_OK;
    release_scratch(device);
    if (device->pinned_by) tu__devices_close(1, &device->pinned_by);
    device->pinned_by = NULL;
    device->scratch_generation++;
    TU_TRY(device->api->allocate(device->instance, bytes, &device->scratch));
    device->scratch_bytes = bytes;
    return TU_OK;
}

bool tu__device_pin(tu__device *device, void *host, size_t bytes) {
    if (bytes < TU__PINNABLE_BYTES || !device->api->pin) return false;
    if (device->api->pin(device->instance, host, bytes) != TU_OK) return false;
    tu__device_keep(device);
    return true;
}

void tu__device_pin_scratch(tu__device *host, tu__device *device) {
    if (host->pinned_by || !tu__device_pin(device, host->scratch, host->scratch_bytes)) return;
    host->pinned_by = device;
}

tu_status tu__device_copy(tu__device *to, void *to_address, tu__device *from, const void *from_address,
                          size_t bytes) {
    if (to->api->copy) {
        tu_status status =
            to->api->copy(to->instance, to_address, from->instance, from->api, from_address, bytes);
        if (status != TU_UNSUPPORTED) return status;
    }
    if (from->api->host_memory) return to->api->upload(to->instance, to_address, from_address, bytes);
    if (to->api->host_memory) return from->api->download(from->instance, to_address, from_address, bytes);
    void *host = tu__alloc_aligned(bytes, "a copy between devices");
    if (!host) return TU_NO_MEMORY;
    tu_status status = from->api->download(from->instance, host, from_address, bytes);
    if (status == TU_OK) status = to->api->upload(to->instance, to_address, host, bytes);
    tu__free_aligned(host);
    return status;
}
