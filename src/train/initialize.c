/* Matching variables by name and shape. See initialize.h. */
#include "train/initialize.h"

#include <string.h>
#include <sys/stat.h>

#include "base/name_list.h"
#include "io/safetensors.h"
#include "run/snapshot.h"
#include "run/state_file.h"
#include "train/checkpoint.h"
#include "train/checkpoint_metadata.h"

/* The tensor for a variable: its average where there is one. */
static const tu__named_tensor *find(const tu__safetensors *file, const char *name) {
    tu__text average = {0};
    tu__text_printf(&average, "average/%s", name);
    const tu__named_tensor *tensor = average.failed ? NULL : tu__safetensors_find(file, average.data);
    tu__text_free(&average);
    return tensor ? tensor : tu__safetensors_find(file, name);
}

static tu_status take_all(const tu__safetensors *file, tu_state *state, size_t *taken, tu__name_list *fresh) {
    for (size_t i = 0; i < tu_state_variable_count(state); i++) {
        const char *name;
        tu_type type;
        TU_TRY(tu_state_variable(state, i, &name, &type));
        if (!tu__is_network_name(name)) continue;
        const tu__named_tensor *tensor = find(file, name);
        if (!tensor || !tu__tensor_fits(tensor, type, true)) {
            tu__name_list_add(fresh, name);
            continue;
        }
        TU_TRY(tu__state_take(state, name, type, tensor));
        ++*taken;
    }
    return TU_OK;
}

static void list_left_over(const tu__safetensors *file, const tu_state *state, tu__name_list *left) {
    for (size_t i = 0; i < file->tensor_count; i++) {
        const char *name = file->tensors[i].name;
        if (!tu__is_network_name(name)) continue;
        bool known = false;
        for (size_t k = 0; !known && k < tu_state_variable_count(state); k++) {
            const char *variable;
            known = tu_state_variable(state, k, &variable, NULL) == TU_OK && strcmp(variable, name) == 0;
        }
        if (!known) tu__name_list_add(left, name);
    }
}

static tu_status initialize(const char *source, const tu__safetensors *file, tu_state *state,
                            tu__text *story) {
    size_t taken = 0;
    tu__name_list fresh = {0}, left = {0};
    tu_status status = take_all(file, state, &taken, &fresh);
    if (status == TU_OK && taken == 0)
        status = tu_fail(TU_INVALID,
                         "nothing in '%s' fits the network: it has no variable like '%s' of the same shape",
                         source, tu__text_string(&fresh.text));
    if (status == TU_OK) {
        list_left_over(file, state, &left);
        tu__text_printf(story, "%zu variable%s from '%s'", taken, taken == 1 ? "" : "s", source);
        tu__name_list_tell(&fresh, "new", story);
        tu__name_list_tell(&left, "left over", story);
    }
    tu__text_free(&fresh.text);
    tu__text_free(&left.text);
    return status;
}

/* The file that `source` stands for: itself, or the newest checkpoint of a run. */
static tu_status find_file(const char *source, tu__path *path) {
    struct stat info;
    if (strlen(source) > TU__LONGEST_FOLDER)
        return tu_fail(TU_INVALID, "--init '%.60s…': the path is too long", source);
    if (stat(source, &info) == 0 && S_ISDIR(info.st_mode)) {
        if (tu_ensemble_members(source))
            return tu_fail(TU_INVALID,
                           "--init '%s' is an ensemble: expected one of its members, as in '%s/members/0'",
                           source, source);
        if (tu__run_folder_holds_run(source)) return tu__checkpoint_find(source, "last", path);
        return tu_fail(TU_NOT_FOUND,
                       "--init '%s' is no run folder: it has no config.json; expected one that 'tutti train' "
                       "made, or a safetensors file",
                       source);
    }
    memcpy(path->text, source, strlen(source) + 1);
    return TU_OK;
}

tu_status tu__initialize_from(const char *source, tu_state *state, tu__text *story) {
    tu__path path;
    tu__safetensors file;
    TU_TRY(find_file(source, &path));
    TU_TRY(tu__safetensors_open(path.text, &file));
    tu_status status = tu__metadata_is_checkpoint(&file) ? tu__metadata_check(&file, path.text) : TU_OK;
    if (status == TU_OK) status = initialize(source, &file, state, story);
    tu__safetensors_close(&file);
    return status;
}
