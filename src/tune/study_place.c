/* Chooses and finds the place of a study. See study_place.h. */
#include "tune/study_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/disk.h"
#include "tune/sql.h"

enum { MAX_NUMBER = 100000, MAX_PATH = PATH_MAX - 300 };
static const char database_file[] = "study.db";

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static tu_status check_length(const char *path) {
    if (strlen(path) <= MAX_PATH) return TU_OK;
    return tu_fail(TU_INVALID, "the path '%.100s…' has %zu bytes: expected at most %d", path, strlen(path),
                   MAX_PATH);
}

/* Creates a folder and those above it. */
static tu_status create_folders(const char *path) {
    char part[PATH_MAX];
    TU_TRY(check_length(path));
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash) *slash = '\0';
        if (!is_folder(part) && tu__disk_in_use()->mkdir(AT_FDCWD, part, 0777) != 0 && errno != EEXIST)
            return tu_fail(TU_IO,
                           "cannot create the folder '%s': %s; choose a writable path with --study or --out",
                           part, strerror(errno));
        if (!slash) return TU_OK;
        *slash = '/';
    }
}

static tu_status set_folder(const char *path, tu__study_place *place) {
    char absolute[PATH_MAX];
    TU_TRY(create_folders(path));
    if (!realpath(path, absolute))
        return tu_fail(TU_IO, "cannot use the folder '%s': %s", path, strerror(errno));
    if (strlen(absolute) > MAX_PATH)
        return tu_fail(TU_INVALID, "the path of the folder '%.200s…' is too long", absolute);
    memcpy(place->folder, absolute, strlen(absolute) + 1);
    return TU_OK;
}

/* The last part of a path without its extension, with characters that are safe in file names. */
static void safe_name(const char *word, char name[100]) {
    const char *slash = strrchr(word, '/');
    snprintf(name, 100, "%s", slash && slash[1] ? slash + 1 : word);
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = '\0';
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", *c)) *c = '-';
}

/* Creates studies/NAME-NUMBER. */
static tu_status create_numbered(tu__study_place *place) {
    char path[PATH_MAX];
    TU_TRY(create_folders("studies"));
    for (int number = 1; number <= MAX_NUMBER; number++) {
        snprintf(path, sizeof path, "studies/%s-%d", place->name, number);
        if (tu__disk_in_use()->mkdir(AT_FDCWD, path, 0777) == 0) {
            snprintf(place->address, sizeof place->address, "%.*s/%s", MAX_PATH, path, database_file);
            return set_folder(path, place);
        }
        if (errno != EEXIST)
            return tu_fail(TU_IO, "cannot create the folder '%s': %s", path, strerror(errno));
    }
    return tu_fail(TU_INVALID, "'studies' already contains %d studies '%s': choose a place with --study",
                   MAX_NUMBER, place->name);
}

/* A path that is no folder and does not end in .db becomes a folder. */
static void set_address(const char *study, tu__study_place *place) {
    size_t length = strlen(study);
    bool is_file = !is_folder(study) && length > 3 && strcmp(study + length - 3, ".db") == 0;
    if (is_file || tu__sql_is_server(study))
        snprintf(place->address, sizeof place->address, "%s", study);
    else
        snprintf(place->address, sizeof place->address, "%.*s/%s", MAX_PATH, study, database_file);
}

/* The folder of a file. */
static void folder_of(const char *path, char folder[PATH_MAX]) {
    snprintf(folder, PATH_MAX, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    if (!slash) snprintf(folder, PATH_MAX, ".");
}

tu_status tu__study_place_new(const char *study, const char *name, const char *out, const char *model,
                              const char *data, tu__study_place *place) {
    char model_name[100], data_name[100], folder[PATH_MAX];
    *place = (tu__study_place){0};
    safe_name(model, model_name);
    safe_name(data, data_name);
    if (name)
        snprintf(place->name, sizeof place->name, "%.200s", name);
    else
        snprintf(place->name, sizeof place->name, "%s-%s", model_name, data_name);
    if (!study) {
        TU_TRY(create_numbered(place));
        return out ? set_folder(out, place) : TU_OK;
    }
    TU_TRY(check_length(study));
    set_address(study, place);
    if (tu__sql_is_server(study)) {
        char safe[100];
        safe_name(place->name, safe);
        snprintf(folder, sizeof folder, "studies/%s", safe);
        return set_folder(out ? out : folder, place);
    }
    folder_of(place->address, folder);
    TU_TRY(create_folders(folder));
    return set_folder(out ? out : folder, place);
}

tu_status tu__study_place_find(const char *study, const char *out, tu__study_place *place) {
    *place = (tu__study_place){0};
    if (!study)
        return tu_fail(TU_INVALID,
                       "no study given: expected --study with a folder, a file or postgresql://…");
    TU_TRY(check_length(study));
    set_address(study, place);
    if (out) return set_folder(out, place);
    if (tu__sql_is_server(study)) return TU_OK;
    /* The folder may have been moved together with the file. */
    char folder[PATH_MAX];
    folder_of(place->address, folder);
    struct stat info;
    if (stat(place->address, &info) != 0)
        return tu_fail(TU_NOT_FOUND, "'%s' is not a study: %s", place->address, strerror(errno));
    char trials[PATH_MAX + 16];
    snprintf(trials, sizeof trials, "%s/trials", folder);
    return is_folder(trials) ? set_folder(folder, place) : TU_OK;
}
