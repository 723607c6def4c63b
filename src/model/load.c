/* Loads a user's model from a shared object, or from a C file, which is compiled first. Its definition is checked
 * before any of its functions is called, because the object may be for another version.
 *
 * A loaded object is never unloaded: the registry uses its function and strings. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_name.h"
#include "base/sized.h"
#include "graph/graph.h"
#include "model/compile.h"
#include "model/model.h"

/* ---- Checking the definition ---- */

static bool name_is_usable(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return name && *name && strlen(name) <= 60 && name[strspn(name, letters)] == '\0';
}

static tu_status check_defaults(const char *path, const tu_model_definition *d) {
    TU__OPTIONS(tu_model_options, defaults, d->defaults);
    const struct {
        const char *name;
        int64_t value;
    } settings[] = {{"height", defaults.height},
                    {"width", defaults.width},
                    {"channels", defaults.channels},
                    {"classes", defaults.classes},
                    {"base", defaults.base}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i].value < 1)
            return tu_fail(TU_INVALID, "'%.200s': .defaults.%s of model '%s' is %lld: expected at least 1",
                           path, settings[i].name, d->name, (long long)settings[i].value);
    return TU_OK;
}

static tu_status check_definition(const char *path, const tu_model_definition *d) {
    if (d->abi != TU_ABI || d->struct_size < TU__FIRST_SIZE(tu_model_definition, build))
        return tu_fail(
            TU_UNSUPPORTED,
            "'%.200s' was compiled for another Tutti version (ABI %u, definition of %zu bytes; expected ABI %d, "
            "%zu bytes): recompile it with this version's headers",
            path, d->abi, d->struct_size, TU_ABI, sizeof *d);
    if (!name_is_usable(d->name))
        return tu_fail(TU_INVALID,
                       "'%.200s': TU_MODEL has .name = \"%.60s\": expected 1 to 60 letters, digits, - _ or .",
                       path, d->name ? d->name : "");
    if (!d->summary || !d->build)
        return tu_fail(TU_INVALID, "'%.200s': TU_MODEL has no .%s, which is required", path,
                       d->build ? "summary" : "build");
    return check_defaults(path, d);
}

/* ---- Loading ---- */

static tu_status load_object(const char *path, const char *object, const char **name) {
    void *handle = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return tu_fail(TU_INVALID, "cannot load '%.200s': %.500s", path, dlerror());
    const tu_model_definition *definition = dlsym(handle, "tu_user_model");
    tu_status status =
        definition ? check_definition(path, definition)
                   : tu_fail(TU_INVALID,
                             "'%.200s' defines no model: expected one TU_MODEL(.name = …, .build = …)", path);
    if (definition && status == TU_OK) status = tu__model_add(definition);
    if (status != TU_OK)
        dlclose(handle);
    else if (definition && name)
        *name = definition->name;
    return status;
}

static tu_status load_source(const char *path, const char **name) {
    tu__compiled compiled;
    TU_TRY(tu__compile(path, &compiled));
    tu_status status = load_object(path, compiled.object, name);
    tu__compiled_remove(&compiled);
    return status;
}

/* Resolves the path of a readable file; returns false and sets errno if there is none. */
static bool resolve_readable_file(const char *path, char full_path[PATH_MAX]) {
    struct stat info;
    if (!realpath(path, full_path) || access(full_path, R_OK) != 0 || stat(full_path, &info) != 0)
        return false;
    errno = S_ISDIR(info.st_mode) ? EISDIR : 0;
    return !errno;
}

bool tu_model_is_file(const char *model) {
    return tu__ends_with(model, ".c") || tu__ends_with(model, ".so");
}

tu_status tu_model_load(const char *path, const char **name) {
    char full_path[PATH_MAX];
    if (name) *name = NULL;
    bool source = tu__ends_with(path, ".c");
    if (!tu_model_is_file(path))
        return tu_fail(TU_INVALID,
                       "'%.200s' is not a model file: expected a C file (.c) or a shared object (.so)", path);
    if (!resolve_readable_file(path, full_path))
        return tu_fail(
            errno == ENOENT ? TU_NOT_FOUND : TU_IO,
            "cannot read '%.200s': %s; check path and permissions, or use the name of a built-in model such as "
            "mlp",
            path, strerror(errno));
    return source ? load_source(full_path, name) : load_object(path, full_path, name);
}
