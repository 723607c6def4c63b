/* Loads a user's network from a shared object, or from a C file, which is compiled first. Its definition is checked
 * before any of its functions is called, because the object may be for another version.
 *
 * A loaded object is never unloaded: the registry uses its function and strings. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_name.h"
#include "base/shared_library.h"
#include "base/sized.h"
#include "graph/graph.h"
#include "network/compile.h"
#include "network/network.h"

/* ---- Checking the definition ---- */

static bool name_is_usable(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return name && *name && strlen(name) <= 60 && name[strspn(name, letters)] == '\0';
}

static tu_status check_defaults(const char *path, const tu_network_definition *d) {
    TU__OPTIONS(tu_network_options, defaults, d->defaults);
    unsigned input = d->struct_size > offsetof(tu_network_definition, input) ? d->input : 0;
    bool images = input == 0 || (input & TU_TAKES_IMAGES);
    const struct {
        const char *name;
        int64_t value;
        bool required;
    } settings[] = {{"height", defaults.height, images},
                    {"width", defaults.width, images},
                    {"channels", defaults.channels, images},
                    {"classes", defaults.classes, images},
                    {"base", defaults.base, images},
                    {"context", defaults.context, (input & TU_TAKES_TOKENS) != 0}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i].required && settings[i].value < 1)
            return tu_fail(TU_INVALID, "'%.200s': .defaults.%s of network '%s' is %lld: expected at least 1",
                           path, settings[i].name, d->name, (long long)settings[i].value);
    return TU_OK;
}

static tu_status check_definition(const char *path, const tu_network_definition *d) {
    if (d->abi != TU_ABI || d->struct_size < TU__FIRST_SIZE(tu_network_definition, build))
        return tu_fail(
            TU_UNSUPPORTED,
            "'%.200s' was compiled for another Tutti version (ABI %u, definition of %zu bytes; expected ABI %d, "
            "%zu bytes): recompile it with this version's headers",
            path, d->abi, d->struct_size, TU_ABI, sizeof *d);
    if (!name_is_usable(d->name))
        return tu_fail(
            TU_INVALID,
            "'%.200s': TU_NETWORK has .name = \"%.60s\": expected 1 to 60 letters, digits, - _ or .", path,
            d->name ? d->name : "");
    if (!d->summary || !d->build)
        return tu_fail(TU_INVALID, "'%.200s': TU_NETWORK has no .%s, which is required", path,
                       d->build ? "summary" : "build");
    TU_TRY(tu__network_check_parameters(path, d));
    return check_defaults(path, d);
}

/* ---- Loading ---- */

enum { MAX_TASKS = 64 };
static struct {
    const tu_task *task;
    const char *network; /* of the same file; NULL: none */
} loaded_tasks[MAX_TASKS];
static size_t task_count;
static pthread_mutex_t task_lock = PTHREAD_MUTEX_INITIALIZER;

/* A task replaces an earlier one of the same name, so that a file can be loaded again after an edit. */
static tu_status add_task(const tu_task *task, const char *network) {
    pthread_mutex_lock(&task_lock);
    size_t index = 0;
    while (index < task_count && strcmp(loaded_tasks[index].task->name, task->name) != 0) index++;
    if (index < MAX_TASKS) {
        loaded_tasks[index].task = task;
        loaded_tasks[index].network = network;
    }
    if (index == task_count && index < MAX_TASKS) task_count++;
    pthread_mutex_unlock(&task_lock);
    return index < MAX_TASKS ? TU_OK : tu_fail(TU_UNSUPPORTED, "more than %d tasks are loaded", MAX_TASKS);
}

const tu_task *tu__loaded_task(size_t index) {
    pthread_mutex_lock(&task_lock);
    const tu_task *task = index < task_count ? loaded_tasks[index].task : NULL;
    pthread_mutex_unlock(&task_lock);
    return task;
}

const tu_task *tu__network_task(const char *network) {
    const tu_task *task = NULL;
    pthread_mutex_lock(&task_lock);
    for (size_t i = 0; i < task_count; i++)
        if (loaded_tasks[i].network && strcmp(loaded_tasks[i].network, network) == 0)
            task = loaded_tasks[i].task;
    pthread_mutex_unlock(&task_lock);
    return task;
}

static tu_status check_task(const char *path, const tu_task *task) {
    if (task->abi != TU_ABI || task->struct_size < TU__FIRST_SIZE(tu_task, predict))
        return tu_fail(
            TU_UNSUPPORTED,
            "'%.200s': its task was compiled for another Tutti version: recompile it with this version's "
            "headers",
            path);
    if (!name_is_usable(task->name) || !task->summary || !task->loss)
        return tu_fail(
            TU_INVALID,
            "'%.200s': TU_TASK has .name = \"%.60s\": expected 1 to 60 letters, digits, - _ or ., a .summary "
            "and a .loss",
            path, task->name ? task->name : "");
    return TU_OK;
}

static tu_status add_definitions(const char *path, const tu_network_definition *network,
                                 const tu_task *task) {
    if (!network && !task)
        return tu_fail(TU_INVALID,
                       "'%.200s' defines no network: expected one TU_NETWORK(.name = …, .build = …)", path);
    if (network) TU_TRY(check_definition(path, network));
    if (task) TU_TRY(check_task(path, task));
    if (network) TU_TRY(tu__network_add(network));
    return task ? add_task(task, network ? network->name : NULL) : TU_OK;
}

static tu_status load_object(const char *path, const char *object, const char **name,
                             const char **task_name) {
    void *handle = tu__shared_library_open(object);
    if (!handle) return tu_fail(TU_INVALID, "cannot load '%.200s': %.500s", path, tu__shared_library_error());
    const tu_network_definition *definition = dlsym(handle, "tu_user_network");
    const tu_task *task = dlsym(handle, "tu_user_task");
    tu_status status = add_definitions(path, definition, task);
    if (status != TU_OK) {
        dlclose(handle);
        return status;
    }
    *name = definition ? definition->name : NULL;
    *task_name = task ? task->name : NULL;
    return TU_OK;
}

static tu_status load_source(const char *path, const char **name, const char **task) {
    tu__compiled compiled;
    TU_TRY(tu__compile(path, &compiled));
    tu_status status = load_object(path, compiled.object, name, task);
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

bool tu_network_is_file(const char *network) {
    return tu__ends_with(network, ".c") || tu__ends_with(network, ".so");
}

tu_status tu__load_definitions(const char *path, const char **name, const char **task) {
    char full_path[PATH_MAX];
    *name = *task = NULL;
    bool source = tu__ends_with(path, ".c");
    if (!tu_network_is_file(path))
        return tu_fail(TU_INVALID,
                       "'%.200s' is not a network file: expected a C file (.c) or a shared object (.so)",
                       path);
    if (!resolve_readable_file(path, full_path))
        return tu_fail(
            errno == ENOENT ? TU_NOT_FOUND : TU_IO,
            "cannot read '%.200s': %s; check path and permissions, or use the name of a built-in network such as "
            "mlp",
            path, strerror(errno));
    return source ? load_source(full_path, name, task) : load_object(path, full_path, name, task);
}

tu_status tu_network_load(const char *path, const char **name) {
    const char *network, *task;
    if (name) *name = NULL;
    TU_TRY(tu__load_definitions(path, &network, &task));
    if (!network)
        return tu_fail(
            TU_INVALID,
            "'%.200s' defines no network, only task '%s': expected one TU_NETWORK(.name = …, .build = …)",
            path, task);
    if (name) *name = network;
    return TU_OK;
}
