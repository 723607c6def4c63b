/* Saving, finding and loading checkpoints. See checkpoint.h. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/open_file.h"
#include "io/safetensors.h"
#include "train/checkpoint_metadata.h"

/* ---- Saving ---- */

/* Returns the file of a step in a run folder. */
static tu__path step_file(int64_t step) {
    tu__path name;
    snprintf(name.text, sizeof name.text, "checkpoints/step-%" PRId64 ".safetensors", step);
    return name;
}

tu_status tu__checkpoint_save(const char *folder, bool best, const tu__run_config *config,
                              tu__snapshot *snapshot, const tu__progress *progress) {
    tu__path name = step_file(progress->step);
    tu__checkpoint_metadata m;
    TU_TRY(tu__metadata_build(config, progress, tu__snapshot_digest(snapshot), &m));
    return tu__safetensors_save_in(folder, best ? TU__BEST_CHECKPOINT : name.text, snapshot->count,
                                   snapshot->tensors, m.count, m.entries);
}

/* ---- Finding ---- */

static int compare_descending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Returns N for "step-N.safetensors", -1 for any other name, also for a number with leading zeros: its step is that of
 * another file. */
static int64_t parse_step(const char *name) {
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
    if (name[5] == '0' && name[6] >= '0' && name[6] <= '9') return -1;
    errno = 0;
    intmax_t step = strtoimax(name + 5, &end, 10);
    return strcmp(end, ".safetensors") == 0 && errno == 0 ? (int64_t)step : -1;
}

/* Lists the steps that have a checkpoint, newest first. The caller frees `*steps` with tu__free. */
static tu_status list_steps(const char *folder, size_t *count, int64_t **steps) {
    *count = 0;
    *steps = NULL;
    size_t capacity = 0;
    DIR *directory = tu__list_folder(folder, "checkpoints");
    if (!directory && errno == ENOENT) return TU_OK;
    if (!directory)
        return tu_fail(TU_IO, "cannot read the folder '%s/checkpoints': %s", folder, tu__file_reason(errno));
    tu_status status = TU_OK;
    for (struct dirent *entry; status == TU_OK && (entry = readdir(directory));) {
        int64_t step = parse_step(entry->d_name);
        if (step < 0) continue;
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            int64_t *more = tu__realloc(*steps, capacity * sizeof **steps, "a list of checkpoints");
            if (more) *steps = more;
            status = more ? TU_OK : TU_NO_MEMORY;
        }
        if (status == TU_OK) (*steps)[(*count)++] = step;
    }
    closedir(directory);
    if (*count) qsort(*steps, *count, sizeof **steps, compare_descending);
    return status;
}

tu_status tu__checkpoint_remove(const char *folder, int64_t step) {
    tu__path name = step_file(step);
    if (tu__remove_file(folder, name.text) == 0 || errno == ENOENT) return TU_OK;
    return tu_fail(TU_IO, "cannot remove the old checkpoint '%s/%s': %s", folder, name.text,
                   tu__file_reason(errno));
}

tu_status tu__checkpoint_prune(const char *folder, int64_t newest, int64_t keep) {
    size_t count;
    int64_t *steps, kept = 0;
    tu_status status = list_steps(folder, &count, &steps);
    for (size_t i = 0; status == TU_OK && i < count; i++)
        if (steps[i] <= newest && kept++ >= keep) status = tu__checkpoint_remove(folder, steps[i]);
    tu__free(steps);
    return status;
}

tu_status tu__checkpoint_find(const char *folder, const char *name, tu__path *path) {
    if (!name || strcmp(name, "last") == 0) {
        size_t count;
        int64_t *steps;
        tu_status status = list_steps(folder, &count, &steps);
        if (status == TU_OK && count)
            *path = step_file(steps[0]);
        else if (status == TU_OK)
            status =
                tu_fail(TU_NOT_FOUND, "run '%s' has no checkpoint yet: train further with --resume", folder);
        tu__free(steps);
        return status;
    }
    snprintf(path->text, sizeof path->text, "checkpoints/%s%.60s.safetensors",
             strcmp(name, "best") == 0 ? "" : "step-", name);
    bool valid = strcmp(name, "best") == 0 || strspn(name, "0123456789") == strlen(name);
    if (valid && tu__file_exists(folder, path->text)) return TU_OK;
    return tu_fail(
        TU_NOT_FOUND,
        "checkpoint '%.60s' of run '%s' does not exist: expected last, best or the step of a file in its folder 'checkpoints'",
        name, folder);
}

/* ---- Loading ---- */

/* Fails unless the checkpoint belongs to this run's graph. */
static tu_status check_origin(const tu__safetensors *file, const char *path, const tu__run_config *config) {
    const char *graph = tu__safetensors_metadata(file, "graph");
    if (graph && strcmp(graph, config->graph_digest) == 0) return TU_OK;
    return tu_fail(TU_INVALID,
                   "checkpoint '%s' belongs to another network: its graph digest is %.12s, expected %.12s",
                   path, graph ? graph : "", config->graph_digest);
}

static tu_status check_tensors(const tu__safetensors *file, const char *path, const tu_state *state) {
    for (size_t i = 0; i < tu_state_variable_count(state); i++) {
        const char *name;
        tu_type type;
        TU_TRY(tu_state_variable(state, i, &name, &type));
        const tu__named_tensor *tensor = tu__safetensors_find(file, name);
        if (!tensor || tensor->type.dtype != type.dtype || !tu_shape_equal(tensor->type.shape, type.shape))
            return tu_fail(TU_CORRUPT, "checkpoint '%s': variable '%s' is %s, expected %s", path, name,
                           tensor ? tu__type_string(tensor->type) : "missing", tu__type_string(type));
    }
    return TU_OK;
}

static tu_status load_tensors(const tu__safetensors *file, const char *path, const tu__run_config *config,
                              tu_state *state, tu__progress *progress) {
    tu__progress read = tu__progress_initial();
    TU_TRY(tu__metadata_check(file, path));
    TU_TRY(check_origin(file, path, config));
    TU_TRY(tu__metadata_progress(file, path, config, &read));
    TU_TRY(check_tensors(file, path, state));
    for (size_t i = 0; i < tu_state_variable_count(state); i++) {
        const char *name;
        tu_type type;
        TU_TRY(tu_state_variable(state, i, &name, &type));
        TU_TRY(tu_state_set(state, name, tu__safetensors_find(file, name)->data, tu_type_bytes(type)));
    }
    tu_state_set_sample(state, read.sample);
    if (progress) *progress = read;
    return TU_OK;
}

tu_status tu__checkpoint_load(const char *folder, const char *name, const tu__run_config *config,
                              tu_state *state, tu__progress *progress) {
    tu__safetensors file;
    TU_TRY(tu__safetensors_open_in(folder, name, &file));
    tu_status status = load_tensors(&file, tu__file_path(folder, name).text, config, state, progress);
    if (status == TU_OK) status = tu__safetensors_intact(&file);
    tu__safetensors_close(&file);
    return status;
}

tu_status tu__checkpoint_load_named(const char *folder, const char *name, const tu__run_config *config,
                                    tu_state *state, tu__progress *progress) {
    enum { TRIES = 100 }; /* each time a newer checkpoint has been written in the meantime */
    tu_status status = TU_NOT_FOUND;
    for (int i = 0; i < TRIES && status == TU_NOT_FOUND; i++) {
        tu__path file;
        TU_TRY(tu__checkpoint_find(folder, name, &file));
        status = tu__checkpoint_load(folder, file.text, config, state, progress);
    }
    return status;
}

/* ---- Resuming ---- */

static void notify_damaged(void (*notice)(void *context, const char *message), void *context, bool last) {
    char message[1024];
    snprintf(message, sizeof message, "%s%s", tu_message(), last ? "" : "; loading the previous checkpoint");
    notice(context, message);
}

/* Renames the first `count` checkpoints, which could not be read. */
static tu_status rename_damaged(const char *folder, size_t count, const int64_t *steps) {
    for (size_t i = 0; i < count; i++) {
        tu__path name = step_file(steps[i]);
        char renamed[80];
        snprintf(renamed, sizeof renamed, "step-%" PRId64 ".safetensors.damaged", steps[i]);
        if (tu__rename_file(folder, name.text, renamed) != 0)
            return tu_fail(TU_IO, "cannot rename the damaged checkpoint '%s/%s' to '%s': %s", folder,
                           name.text, renamed, tu__file_reason(errno));
    }
    return TU_OK;
}

tu_status tu__checkpoint_load_newest(const char *folder, const tu__run_config *config, tu_state *state,
                                     tu__progress *progress, bool *found,
                                     void (*notice)(void *context, const char *message), void *context) {
    size_t count;
    int64_t *steps;
    tu_status status = list_steps(folder, &count, &steps);
    *found = false;
    for (size_t i = 0; status == TU_OK && !*found && i < count; i++) {
        status = tu__checkpoint_load(folder, step_file(steps[i]).text, config, state, progress);
        *found = status == TU_OK;
        if (*found) status = rename_damaged(folder, i, steps);
        if (status != TU_CORRUPT) continue;
        bool last = i + 1 == count;
        notify_damaged(notice, context, last);
        if (!last) status = TU_OK;
    }
    tu__free(steps);
    return status;
}
