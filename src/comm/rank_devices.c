/* Divides the devices of a host among its processes: tu_process_group_devices. */
#include <tutti/process_group.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/device.h>

#include "base/text.h"

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
    return !*rest && s->last >= s->first && s->count > 0;
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

/* Appends the share of process `rank` of `size`. */
static void append_share(const spec *s, long rank, long size, tu__text *list) {
    long devices = s->last - s->first + 1;
    if (devices >= size && s->count == 1) { /* whole devices */
        for (long i = rank * devices / size; i < (rank + 1) * devices / size; i++)
            tu__text_printf(list, "%s%s:%ld", list->length ? "," : "", s->kind, s->first + i);
        return;
    }
    /* Parts of devices: several processes on each. */
    for (long i = 0; i < devices; i++) {
        long first = 0, end = size; /* the processes on device i */
        if (devices > 1 && devices < size) {
            first = (i * size + devices - 1) / devices;
            end = ((i + 1) * size + devices - 1) / devices;
        }
        if (rank < first || rank >= end) continue;
        for (long k = 0; k < s->count; k++) {
            if (s->index >= 0 && s->index != k) continue;
            tu__text_printf(list, "%s%s:%ld.%ld/%ld", list->length ? "," : "", s->kind, s->first + i,
                            (rank - first) * s->count + k, (end - first) * s->count);
        }
    }
}

static void divide(const tu_process_info *info, const char *list, tu__text *own) {
    for (const char *text = list; *text;) {
        size_t length = strcspn(text, ",");
        spec s;
        bool is_host = strncmp(text, "ref", 3) == 0 ||
                       strncmp(text, "null", 4) == 0; /* they have no cores of their own */
        if (is_host || !read_spec(text, length, &s)) {
            tu__text_printf(own, "%s%.*s", own->length ? "," : "", (int)length, text);
        } else {
            resolve_all(&s);
            bool is_cpu = strcmp(s.kind, "cpu") == 0;
            append_share(&s, is_cpu ? info->core_rank : info->host_rank,
                         is_cpu ? info->core_size : info->host_size, own);
        }
        text += length + (text[length] == ',');
    }
}

tu_status tu_process_group_devices(const tu_process_group *group, const char *list, char *devices,
                                   size_t size) {
    tu_process_info info = TU_SIZED(tu_process_info);
    tu__text own = {0};
    TU_TRY(tu_process_group_describe(group, &info));
    divide(&info, list ? list : "all", &own);
    bool fits = !own.failed && own.length < size;
    if (fits) memcpy(devices, tu__text_string(&own), own.length + 1);
    tu__text_free(&own);
    return fits ? TU_OK
                : tu_fail(TU_INVALID, "the devices '%.100s' do not fit into %zu bytes", list ? list : "all",
                          size);
}
