/* Loading a user's network: a C file is compiled first, a shared object taken as it is. What it defines is checked
 * here, field by field, before anything is called: a file may be years older than the library.
 *
 * A loaded object stays: its function is called whenever a graph is built, and its strings are the registry's. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_name.h"
#include "model/compile.h"
#include "model/model.h"

/* ---- What it defines ---- */

static bool name_is_usable(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return name && *name && strlen(name) <= 60 && name[strspn(name, letters)] == '\0';
}

static tu_status check_settings(const char *path, const tu_model_definition *d) {
    const struct {
        const char *name;
        int64_t number;
    } settings[] = {{"height", d->own.height},
                    {"width", d->own.width},
                    {"channels", d->own.channels},
                    {"classes", d->own.classes},
                    {"base", d->own.base}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i].number < 1)
            return tu_fail(TU_INVALID, "'%.200s': .own.%s of model '%s' is %lld: expected at least 1", path,
                           settings[i].name, d->name, (long long)settings[i].number);
    return TU_OK;
}

static tu_status check_definition(const char *path, const tu_model_definition *d) {
    if (d->abi != TU_ABI || d->struct_size != sizeof *d)
        return tu_fail(
            TU_UNSUPPORTED,
            "'%.200s' was compiled for another Tutti (interface %u, %zu bytes; here %d, %zu): compile it "
            "again with this one's headers",
            path, d->abi, d->struct_size, TU_ABI, sizeof *d);
    if (!name_is_usable(d->name))
        return tu_fail(TU_INVALID,
                       "'%.200s': its TU_MODEL has .name = \"%.60s\": expected letters, digits, - _ or .",
                       path, d->name ? d->name : "");
    if (!d->summary || !d->build)
        return tu_fail(TU_INVALID, "'%.200s': its TU_MODEL has no .%s: expected one", path,
                       d->build ? "summary" : "build");
    return check_settings(path, d);
}

/* ---- Loading ---- */

static tu_status load_object(const char *path, const char *object, const char **name) {
    void *handle = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return tu_fail(TU_INVALID, "'%.200s' cannot be loaded: %.500s", path, dlerror());
    const tu_model_definition *definition = dlsym(handle, "tu_user_model");
    tu_status status =
        definition
            ? check_definition(path, definition)
            : tu_fail(TU_INVALID, "'%.200s' defines no network: expected one TU_MODEL(.name = …, .build = …)",
                      path);
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

/* The whole path of a file that can be read; false with errno otherwise. */
static bool find_file(const char *path, char whole[PATH_MAX]) {
    struct stat about;
    if (!realpath(path, whole) || access(whole, R_OK) != 0 || stat(whole, &about) != 0) return false;
    errno = S_ISDIR(about.st_mode) ? EISDIR : 0;
    return !errno;
}

tu_status tu_model_load(const char *path, const char **name) {
    char whole[PATH_MAX];
    if (name) *name = NULL;
    bool source = tu__ends_with(path, ".c");
    if (!tu__names_code(path))
        return tu_fail(TU_INVALID, "'%.200s' is no network: expected a C file (.c) or a shared object (.so)",
                       path);
    if (!find_file(path, whole))
        return tu_fail(
            errno == ENOENT ? TU_NOT_FOUND : TU_IO,
            "'%.200s' cannot be read: %s; check its path and permissions, or name a built-in network, "
            "as in mlp",
            path, strerror(errno));
    return source ? load_source(whole, name) : load_object(path, whole, name);
}
