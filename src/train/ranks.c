/* A run on several processes. See ranks.h. */
#include "train/ranks.h"

#include <stdio.h>
#include <string.h>

#include <tutti/network.h>

#include "base/alloc.h"
#include "base/build_id.h"
#include "base/sha256.h"
#include "base/text.h"
#include "comm/process_group.h"
#include "graph/graph.h"
#include "train/compile_options.h"

static tu_process_group *group_of(const tu__trainer *t) {
    return t->options.group;
}

uint32_t tu__ranks_count(const tu__trainer *t) {
    return group_of(t) ? group_of(t)->info.size : 1;
}

bool tu__is_writer(const tu__trainer *t) {
    return !group_of(t) || group_of(t)->info.rank == 0;
}

/* ---- Before the first step ---- */

tu_status tu__ranks_set_devices(tu__trainer *t) {
    t->config.group = group_of(t);
    if (!t->config.group) return TU_OK;
    const tu__settings *s = &t->config.settings;
    if (*s->place || *s->lock || strcmp(s->strategy, "single") == 0)
        return tu_fail(
            TU_INVALID,
            "%s is for the devices of one process, but this run has %u processes: expected --strategy "
            "mirrored or central",
            *s->place  ? "--place"
            : *s->lock ? "--lock"
                       : "--strategy single",
            t->config.group->info.size);
    char devices[1024];
    TU_TRY(tu_process_group_devices(t->config.group, s->devices, devices, sizeof devices));
    t->config.rank_devices = tu__arena_string(&t->arena, devices);
    return t->config.rank_devices ? TU_OK : TU_NO_MEMORY;
}

/* What must be equal in all processes. The graph is compared when it is compiled (compile/group_replicas.c). */
typedef struct run_facts {
    char build[TU__BUILD_ID_TEXT]; /* of libtutti_train */
    char start[16], model[128], devices[64], data[64], data_digest[72], settings_digest[72];
} run_facts;

static void write_settings(const tu__settings *settings, tu__text *text) {
    tu_json json = tu__json_to_text(text);
    tu_json_begin_object(&json, NULL);
    tu__settings_write(settings, &json);
    tu_json_end_object(&json);
}

static tu_status digest_settings(const tu__settings *settings, char *digest) {
    tu__text text = {0};
    unsigned char bytes[TU__SHA256_BYTES];
    write_settings(settings, &text);
    tu_status status = text.failed ? tu_fail(TU_NO_MEMORY, "out of memory for the settings") : TU_OK;
    tu__sha256_of(tu__text_string(&text), text.length, bytes);
    tu__sha256_hex(bytes, digest);
    tu__text_free(&text);
    return status;
}

/* Writes the kinds of a device list, each once: "cpu,gpu". */
static void list_kinds(const char *devices, char *kinds, size_t bytes) {
    kinds[0] = '\0';
    for (size_t length; *devices; devices += length + (devices[length] == ',')) {
        char kind[20];
        length = strcspn(devices, ",");
        snprintf(kind, sizeof kind, "%.*s", (int)strcspn(devices, ":,"), devices);
        size_t used = strlen(kinds);
        if (!strstr(kinds, kind)) snprintf(kinds + used, bytes - used, "%s%s", used ? "," : "", kind);
    }
}

static tu_status collect_facts(const tu__trainer *t, bool is_resumed, run_facts *f) {
    static const char here = 0; /* in this library */
    *f = (run_facts){.start = {0}};
    tu__build_id(&here, f->build);
    snprintf(f->start, sizeof f->start, "%s", is_resumed ? "resumed" : "new");
    if (!tu_network_is_file(t->config.model)) snprintf(f->model, sizeof f->model, "%s", t->config.model);
    list_kinds(t->config.rank_devices, f->devices, sizeof f->devices);
    snprintf(f->data, sizeof f->data, "%s", t->config.dataset.name);
    snprintf(f->data_digest, sizeof f->data_digest, "%s", t->config.dataset.digest);
    return digest_settings(&t->config.settings, f->settings_digest);
}

/* Describes what differs, in words of the first process. False if nothing does. */
static bool find_difference(const run_facts *a, const run_facts *b, char *text, size_t bytes) {
    if (strcmp(a->build, b->build) != 0)
        snprintf(text, bytes, "its libtutti_train is another build (%.12s instead of %.12s)", a->build,
                 b->build);
    else if (strcmp(a->start, b->start) != 0)
        snprintf(text, bytes, "its run is %s, the other is %s", a->start, b->start);
    else if (*a->model && *b->model && strcmp(a->model, b->model) != 0)
        snprintf(text, bytes, "its model is %s instead of %s", a->model, b->model);
    else if (strcmp(a->data_digest, b->data_digest) != 0)
        snprintf(text, bytes, "its data set is %s with digest %.12s instead of %s with digest %.12s", a->data,
                 a->data_digest, b->data, b->data_digest);
    else if (strcmp(a->devices, b->devices) != 0)
        snprintf(text, bytes, "its devices are of kind %s instead of %s", a->devices, b->devices);
    else
        return false;
    return true;
}

static tu_status compare(const tu_process_group *g, const run_facts *all) {
    char what[400];
    for (uint32_t r = 1; r < g->info.size; r++)
        if (find_difference(&all[r], &all[0], what, sizeof what))
            return tu_fail(TU_INVALID,
                           "rank %u on host '%s' and rank 0 on host '%s' cannot train together: %s", r,
                           g->processes[r].host, g->processes[0].host, what);
    return TU_OK;
}

/* Compares the settings with those of rank 0, in their JSON form. */
static tu_status compare_settings(tu__trainer *t, const char *json) {
    tu__settings first;
    const tu__json_value *root;
    char difference[512];
    TU_TRY(tu__json_parse(&t->arena, "the settings of rank 0", json, strlen(json), &root));
    TU_TRY(tu__settings_read("the settings of rank 0", root, &t->arena, &first));
    tu__settings_difference(&t->config.settings, &first, difference, sizeof difference);
    if (!*difference) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "its options are not those of rank 0: %s; if each process is to train alone, add --independent",
        difference);
}

/* Names the first option that differs: rank 0 sends its settings to all. */
static tu_status name_difference(tu__trainer *t) {
    tu__text text = {0};
    write_settings(&t->config.settings, &text);
    uint64_t bytes = text.length + 1;
    tu_status status = tu_process_group_broadcast(group_of(t), 0, &bytes, sizeof bytes);
    char *json = status == TU_OK ? tu__alloc(bytes, "the settings of rank 0") : NULL;
    if (status == TU_OK && !json) status = TU_NO_MEMORY;
    if (json && tu__is_writer(t)) memcpy(json, tu__text_string(&text), bytes);
    if (status == TU_OK) status = tu_process_group_broadcast(group_of(t), 0, json, bytes);
    if (status == TU_OK) status = tu__ranks_agree(t, compare_settings(t, json));
    tu__free(json);
    tu__text_free(&text);
    return status;
}

tu_status tu__ranks_check(tu__trainer *t, bool is_resumed) {
    tu_process_group *g = group_of(t);
    run_facts mine, all[TU__MAX_PROCESSES];
    if (!g) return TU_OK;
    TU_TRY(collect_facts(t, is_resumed, &mine));
    TU_TRY(tu_process_group_gather(g, &mine, sizeof mine, all));
    TU_TRY(compare(g, all));
    for (uint32_t r = 1; r < g->info.size; r++)
        if (strcmp(all[r].settings_digest, all[0].settings_digest) != 0) return name_difference(t);
    return TU_OK;
}

tu_status tu__ranks_compare_threads(const tu__trainer *t, int64_t *threads) {
    int64_t all[TU__MAX_PROCESSES];
    if (!group_of(t)) return TU_OK;
    TU_TRY(tu_process_group_gather(group_of(t), threads, sizeof *threads, all));
    for (uint32_t r = 1; r < tu__ranks_count(t); r++)
        if (all[r] != all[0]) *threads = 0;
    return TU_OK;
}

static tu_status find_largest_variable(const tu__trainer *t, size_t *largest) {
    const char *name;
    tu_type type;
    *largest = 0;
    for (size_t i = 0; i < tu_state_variable_count(t->state); i++) {
        TU_TRY(tu_state_variable(t->state, i, &name, &type));
        if (tu_type_bytes(type) > *largest) *largest = tu_type_bytes(type);
    }
    return TU_OK;
}

/* Copies a variable through `data`. A process that cannot read or write its own state, `*status`, takes part in the
 * broadcast nevertheless: the others wait for it. */
static tu_status copy_variable(tu__trainer *t, size_t index, void *data, tu_status *status) {
    const char *name;
    tu_type type;
    TU_TRY(tu_state_variable(t->state, index, &name, &type));
    size_t bytes = tu_type_bytes(type);
    if (*status == TU_OK && tu__is_writer(t)) *status = tu_state_get(t->state, name, data, bytes);
    TU_TRY(tu_process_group_broadcast(group_of(t), 0, data, bytes));
    if (*status == TU_OK && !tu__is_writer(t)) *status = tu_state_set(t->state, name, data, bytes);
    return TU_OK;
}

static tu_status copy_variables(tu__trainer *t) {
    tu_status status = TU_OK;
    size_t bytes;
    TU_TRY(find_largest_variable(t, &bytes));
    void *data = tu__alloc_aligned(bytes, "a variable");
    tu_status allocated = tu__ranks_agree(t, data ? TU_OK : TU_NO_MEMORY);
    for (size_t i = 0; allocated == TU_OK && status != TU_LOST && i < tu_state_variable_count(t->state);
         i++) {
        tu_status copied = copy_variable(t, i, data, &status);
        if (copied != TU_OK) status = copied;
    }
    tu__free_aligned(data);
    return allocated == TU_OK ? tu__ranks_agree(t, status) : allocated;
}

tu_status tu__ranks_copy_state(tu__trainer *t) {
    tu_process_group *g = group_of(t);
    if (!g) return TU_OK;
    TU_TRY(tu_process_group_broadcast(g, 0, &t->progress, sizeof t->progress));
    bool all_have_variables = strcmp(tu__strategy_of(&t->config), "central") != 0;
    if (all_have_variables) TU_TRY(copy_variables(t));
    int64_t sample = tu_state_sample(t->state);
    TU_TRY(tu_process_group_broadcast(g, 0, &sample, sizeof sample));
    tu_state_set_sample(t->state, sample);
    return TU_OK;
}

tu_status tu__ranks_copy_digest(const tu__trainer *t, char *digest, size_t size) {
    return group_of(t) ? tu_process_group_broadcast(group_of(t), 0, digest, size) : TU_OK;
}

tu_status tu__ranks_report(tu__trainer *t) {
    enum { SHOWN = 8 };
    tu_process_group *g = group_of(t);
    struct place {
        char host[64], devices[96];
    } mine = {{0}, {0}}, all[TU__MAX_PROCESSES];
    if (!g) return TU_OK;
    snprintf(mine.host, sizeof mine.host, "%s", g->info.host);
    snprintf(mine.devices, sizeof mine.devices, "%.90s", t->config.rank_devices);
    TU_TRY(tu_process_group_gather(g, &mine, sizeof mine, all));
    tu__text text = {0};
    tu__text_printf(&text, "%u processes (%s):", g->info.size, g->info.library);
    for (uint32_t r = 0; r < g->info.size && r < SHOWN; r++)
        tu__text_printf(&text, "%s rank %u on %s: %s", r ? ";" : "", r, all[r].host, all[r].devices);
    if (g->info.size > SHOWN) tu__text_printf(&text, "; and %u more", g->info.size - SHOWN);
    tu__trainer_notice(t, tu__text_string(&text));
    tu__text_free(&text);
    return TU_OK;
}

/* ---- Agreement ---- */

tu_status tu__ranks_agree(const tu__trainer *t, tu_status status) {
    return group_of(t) ? tu_process_group_agree(group_of(t), status) : status;
}

tu_status tu__ranks_agree_to_stop(tu__trainer *t, bool *stop) {
    struct {
        double waited;
        int64_t stop, length;
    } mine = {.stop = *stop, .length = t->multi_step.length}, all[TU__MAX_PROCESSES];
    double waited[TU__MAX_PROCESSES];
    tu_process_group *g = group_of(t);
    if (!g) return TU_OK;
    if (!t->waits) t->waits = tu__alloc(sizeof *t->waits, "the waits of processes");
    if (!t->waits) return TU_NO_MEMORY;
    tu__group_set_step(g, t->progress.step);
    mine.waited = tu__group_take_waited(g);
    TU_TRY(tu_process_group_gather(g, &mine, sizeof mine, all));
    tu__group_set_common_step(g, t->progress.step);
    for (uint32_t r = 0; r < g->info.size; r++) {
        *stop = *stop || all[r].stop;
        if (all[r].length < t->multi_step.length) t->multi_step.length = all[r].length;
        waited[r] = all[r].waited;
    }
    int64_t steps = t->progress.step - t->waited_step;
    if (steps > 0) tu__rank_waits_add(t->waits, g->info.size, waited, steps);
    t->waited_step = t->progress.step;
    t->report.processes = g->info.size;
    t->report.wait_ms = t->waits->median_ms;
    t->report.worst_wait_ms = t->waits->worst_ms;
    return TU_OK;
}

void tu__ranks_measure(tu__trainer *t) {
    if (!t->waits) return;
    double step_ms = t->report.images_per_second > 0
                         ? 1e3 * (double)t->config.settings.batch / t->report.images_per_second
                         : 0;
    tu__rank_waits_update(t->waits);
    t->report.slow_rank = tu__rank_waits_slowest(t->waits, step_ms);
}

void tu__ranks_fill_result(tu__trainer *t, tu_train_result *result) {
    const tu__rank_waits *w = t->waits;
    result->slow_rank = -1;
    if (!w || !w->has_begun) return;
    tu__rank_waits_update(t->waits);
    double step_ms = t->images ? 1e3 * result->seconds / (double)(t->progress.step - t->first_step) : 0;
    result->processes = w->ranks;
    result->slow_rank = tu__rank_waits_slowest(w, step_ms);
    result->slow_steps = result->slow_rank < 0 ? 0 : w->least[result->slow_rank];
    result->compared_steps = w->steps;
    result->min_wait_ms = result->max_wait_ms = w->median_ms[0];
    for (uint32_t r = 0; r < w->ranks; r++) {
        if (w->median_ms[r] < result->min_wait_ms) result->min_wait_ms = w->median_ms[r];
        if (w->median_ms[r] > result->max_wait_ms) result->max_wait_ms = w->median_ms[r];
    }
    result->worst_wait_ms = w->longest_ms;
    result->worst_wait_rank = w->samples ? w->longest_for : -1;
}

tu_status tu__ranks_end(const tu__trainer *t, tu_status status) {
    if (status == TU_OK || !group_of(t)) return status;
    return tu__group_end_alike(group_of(t), status);
}
