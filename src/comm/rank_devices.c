/* Divides the devices of a host among its processes: tu_process_group_devices. */
#include <tutti/process_group.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/device.h>

#include "base/text.h"

enum { MAX_NUMBER = 1 << 16 }; /* of devices, and of logical devices */

/* A device spec: kind:first-last, or kind:first.index/count. */
typedef struct spec {
    char kind[17];
    long first, last;  /* devices */
    long index, count; /* logical devices: which one (-1: all), of how many */
} spec;

/* Reads a spec; false if it is not valid, which opening the devices then reports. */
static bool read_spec(const char *text, size_t length, spec *s) {
    char copy[64];
    *s = (spec){.index = -1, .count = 1};
    if (length >= sizeof copy) return false;
    memcpy(copy, text, length);
    copy[length] = 0;
    size_t kind = strcspn(copy, ":");
    if (kind >= sizeof s->kind) return false;
    memcpy(s->kind, copy, kind);
    if (!copy[kind]) return true;
    char *rest;
    s->first = s->last = strtol(copy + kind + 1, &rest, 10);
    if (*rest == '-') s->last = strtol(rest + 1, &rest, 10);
    if (*rest == '.') s->index = strtol(rest + 1, &rest, 10);
    if (*rest == '/') s->count = strtol(rest + 1, &rest, 10);
    return !*rest && s->first >= 0 && s->last >= s->first && s->last < MAX_NUMBER && s->count > 0 &&
           s->count < MAX_NUMBER && s->index < s->count;
}

static long count_gpus(void) {
    tu_device_info info = TU_SIZED(tu_device_info);
    long gpus = 0;
    for (size_t i = 0, count = tu_device_count(); i < count && tu_device(i, &info) == TU_OK; i++)
        gpus += !info.unusable && info.accelerator;
    return gpus;
}

/* Replaces "all" by the GPUs, or the CPU. */
static void resolve_all(spec *s) {
    if (strcmp(s->kind, "all") != 0) return;
    long gpus = count_gpus();
    snprintf(s->kind, sizeof s->kind, "%s", gpus ? "gpu" : "cpu");
    s->last = gpus ? gpus - 1 : 0;
}

/* ---- Dividing ----
 *
 * The devices of a kind, whichever specs of the list name them, are divided together: P processes get the devices
 * floor(rank D / P) to floor((rank + 1) D / P) of D, or, if there are more processes than devices, the processes
 * ceil(device P / D) to ceil((device + 1) P / D) get equal parts of a device. What a spec calls a device may be a logical
 * one, "gpu:0.1/2". */

/* A process of those that share the devices of a kind, and the number of these devices. */
typedef struct division {
    long rank, size, devices;
} division;

static void append_device(const spec *s, long device, tu__text *list) {
    tu__text_printf(list, "%s%s:%ld", list->length ? "," : "", s->kind, device);
    if (s->index >= 0) tu__text_printf(list, ".%ld", s->index);
    if (s->index >= 0 || s->count > 1) tu__text_printf(list, "/%ld", s->count);
}

/* Appends one of so many equal parts of a device. */
static void append_part(const spec *s, long device, long part, long parts, tu__text *list) {
    spec logical = *s;
    logical.count = s->count * parts;
    if (parts == 1) {
        append_device(s, device, list);
    } else if (s->index >= 0) {
        logical.index = s->index * parts + part;
        append_device(&logical, device, list);
    } else {
        for (long k = 0; k < s->count; k++) {
            logical.index = part * s->count + k;
            append_device(&logical, device, list);
        }
    }
}

/* Appends this process's share of the device with index `i` of those of its kind. */
static void append_share(const spec *s, long device, long i, const division *d, tu__text *list) {
    if (d->devices <= 0) return;
    if (d->devices >= d->size) { /* whole devices */
        if (i >= d->rank * d->devices / d->size && i < (d->rank + 1) * d->devices / d->size)
            append_device(s, device, list);
        return;
    }
    long first = (i * d->size + d->devices - 1) / d->devices;
    long end = ((i + 1) * d->size + d->devices - 1) / d->devices;
    if (d->rank >= first && d->rank < end) append_part(s, device, d->rank - first, end - first, list);
}

/* Reads the next spec of a list. False if it is not divided: it is not valid, or it is of a kind that computes on the
 * host without cores of its own. */
static bool next_spec(const char **list, const char **text, size_t *length, spec *s) {
    *text = *list;
    *length = strcspn(*list, ",");
    *list += *length + ((*list)[*length] == ',');
    if (!read_spec(*text, *length, s)) return false;
    resolve_all(s);
    return strcmp(s->kind, "ref") != 0 && strcmp(s->kind, "null") != 0;
}

/* Counts the devices of a kind in a list. */
static long count_devices(const char *list, const char *kind) {
    const char *text;
    size_t length;
    spec s;
    long count = 0;
    while (*list)
        if (next_spec(&list, &text, &length, &s) && strcmp(s.kind, kind) == 0) count += s.last - s.first + 1;
    return count;
}

static bool overlap(const spec *a, const spec *b) {
    return strcmp(a->kind, b->kind) == 0 && a->first <= b->last && b->first <= a->last &&
           a->index == b->index && a->count == b->count;
}

/* True if two specs of a list name the same device, which opening the devices then reports. */
static bool names_one_twice(const char *list) {
    const char *text;
    size_t length;
    spec s, other;
    while (*list) {
        if (!next_spec(&list, &text, &length, &s)) continue;
        for (const char *rest = list; *rest;)
            if (next_spec(&rest, &text, &length, &other) && overlap(&s, &other)) return true;
    }
    return false;
}

static void divide(const tu_process_info *info, const char *list, tu__text *own) {
    const char *text, *rest = list;
    size_t length;
    spec s;
    while (*rest) {
        const char *before = rest;
        if (!next_spec(&rest, &text, &length, &s)) {
            tu__text_printf(own, "%s%.*s", own->length ? "," : "", (int)length, text);
            continue;
        }
        bool is_cpu = strcmp(s.kind, "cpu") == 0;
        const division d = {.rank = is_cpu ? info->core_rank : info->host_rank,
                            .size = is_cpu ? info->core_size : info->host_size,
                            .devices = count_devices(list, s.kind)};
        long i = d.devices - count_devices(before, s.kind); /* devices of the kind in earlier specs */
        for (long device = s.first; device <= s.last; device++) append_share(&s, device, i++, &d, own);
    }
}

tu_status tu_process_group_devices(const tu_process_group *group, const char *list, char *devices,
                                   size_t size) {
    tu_process_info info = TU_SIZED(tu_process_info);
    tu__text own = {0};
    TU_TRY(tu_process_group_describe(group, &info));
    if (!list) list = "all";
    if (names_one_twice(list))
        tu__text_printf(&own, "%s", list);
    else
        divide(&info, list, &own);
    bool fits = !own.failed && own.length < size;
    if (fits) memcpy(devices, tu__text_string(&own), own.length + 1);
    tu__text_free(&own);
    return fits ? TU_OK : tu_fail(TU_INVALID, "the devices '%.100s' do not fit into %zu bytes", list, size);
}
