/* Matches tensors with variables by name and shape. See initialize.h. */
#include "train/initialize.h"

#include <string.h>
#include <sys/stat.h>

#include "base/name_list.h"
#include "base/open_file.h"
#include "io/safetensors.h"
#include "run/snapshot.h"
#include "run/state_file.h"
#include "train/checkpoint.h"
#include "train/checkpoint_metadata.h"

/* Returns the tensor for a variable: its moving average if the file has one. */
static const tu__named_tensor *find_tensor(const tu__safetensors *file, const char *name) {
    tu__text average = {0};
    tu__text_printf(&average, "average/%s", name);
    const tu__named_tensor *tensor = average.failed ? NULL : tu__safetensors_find(file, average.data);
    tu__text_free(&average);
    return tensor ? tensor : tu__safetensors_find(file, name);
}

static tu_status load_matching(const tu__safetensors *file, tu_state *state, size_t *loaded,
                               tu__name_list *unmatched) {
    for (size_t i = 0; i < tu_state_variable_count(state); i++) {
        const char *name;
        tu_type type;
        TU_TRY(tu_state_variable(state, i, &name, &type));
        if (!tu__is_network_name(name)) continue;
        const tu__named_tensor *tensor = find_tensor(file, name);
        if (!tensor || !tu__tensor_is_compatible(tensor, type, true)) {
            tu__name_list_add(unmatched, name);
            continue;
        }
        TU_TRY(tu__state_set_from_tensor(state, name, type, tensor));
        ++*loaded;
    }
    return TU_OK;
}

static void list_unused(const tu__safetensors *file, const tu_state *state, tu__name_list *unused) {
    for (size_t i = 0; i < file->tensor_count; i++) {
        const char *name = file->tensors[i].name;
        if (!tu__is_network_name(name)) continue;
        bool used = false;
        for (size_t k = 0; !used && k < tu_state_variable_count(state); k++) {
            const char *variable;
            used = tu_state_variable(state, k, &variable, NULL) == TU_OK && strcmp(variable, name) == 0;
        }
        if (!used) tu__name_list_add(unused, name);
    }
}

static tu_status load_weights(const char *source, const tu__safetensors *file, tu_state *state,
                              tu__text *summary) {
    size_t loaded = 0;
    tu__name_list unmatched = {0}, unused = {0};
    tu_status status = load_matching(file, state, &loaded, &unmatched);
    if (status == TU_OK && loaded == 0)
        status = tu_fail(
            TU_INVALID,
            "no tensor in '%s' matches a variable of the network by name and shape: expected for example '%s'",
            source, tu__text_string(&unmatched.text));
    if (status == TU_OK) {
        list_unused(file, state, &unused);
        tu__text_printf(summary, "loaded %zu variable%s from '%s'", loaded, loaded == 1 ? "" : "s", source);
        tu__name_list_append_to(&unmatched, "not in the file, keep their initial values", summary);
        tu__name_list_append_to(&unused, "unused in the file", summary);
    }
    tu__text_free(&unmatched.text);
    tu__text_free(&unused.text);
    return status;
}

/* Finds the file to load: `source` itself, or the newest checkpoint if it is a run folder, then `folder`. */
static tu_status find_file(const char *source, const char **folder, tu__path *path) {
    *folder = NULL;
    struct stat info;
    if (strlen(source) > TU__MAX_FOLDER_LENGTH)
        return tu_fail(TU_INVALID, "--init '%.60s…': the path is too long", source);
    if (stat(source, &info) == 0 && S_ISDIR(info.st_mode)) {
        if (tu_ensemble_members(source))
            return tu_fail(
                TU_INVALID,
                "--init '%s' is an ensemble: expected one of its members, for example '%s/members/0'", source,
                source);
        if (tu__run_folder_has_run(source)) {
            *folder = source;
            return tu__checkpoint_find(source, "last", path);
        }
        return tu_fail(
            TU_NOT_FOUND,
            "--init '%s' is not a run folder (it has no config.json): expected a folder created by 'tutti train', or a safetensors file",
            source);
    }
    memcpy(path->text, source, strlen(source) + 1);
    return TU_OK;
}

tu_status tu__initialize_from(const char *source, tu_state *state, tu__text *summary) {
    tu__path path;
    tu__safetensors file;
    const char *folder;
    TU_TRY(find_file(source, &folder, &path));
    TU_TRY(tu__safetensors_open_in(folder, path.text, &file));
    tu_status status = tu__metadata_is_checkpoint(&file)
                           ? tu__metadata_check(&file, tu__file_path(folder, path.text).text)
                           : TU_OK;
    if (status == TU_OK) status = load_weights(source, &file, state, summary);
    if (status == TU_OK) status = tu__safetensors_intact(&file);
    tu__safetensors_close(&file);
    return status;
}
