/* Converted data sets in the cache. See converted.h. */
#include "data/converted.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"

void tu__last_component(const char *path, char name[64]) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    size_t length = end - begin < 63 ? end - begin : 63;
    memcpy(name, path + begin, length);
    name[length] = '\0';
    if (length == 0 || strcmp(name, ".") == 0 || strcmp(name, "/") == 0) snprintf(name, 64, "folder");
}

tu_status tu__converted_path(const char *source, const tu__text *key, tu__path *path) {
    tu__path cache, folder;
    char name[64], file[160], hex[TU__SHA256_HEX];
    unsigned char digest[TU__SHA256_BYTES];
    if (key->failed) return tu_fail(TU_NO_MEMORY, "out of memory for the name of a converted data set");
    tu__sha256_of(key->data, key->length, digest);
    tu__sha256_hex(digest, hex);
    tu__last_component(source, name);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_') *c = '_';
    snprintf(file, sizeof file, "%s-%.16s.tutti", name, hex);
    TU_TRY(tu__cache_folder(&cache));
    TU_TRY(tu__join_path(cache.text, "converted", &folder));
    TU_TRY(tu__make_folders(folder.text));
    return tu__join_path(folder.text, file, path);
}

tu_status tu__converted_begin(const char *path, const tu_dataset_options *options, int *lock) {
    tu__path folder;
    *lock = -1;
    if (access(path, F_OK) == 0) return TU_OK;
    snprintf(folder.text, sizeof folder.text, "%.*s", (int)(strrchr(path, '/') - path), path);
    TU_TRY(tu__lock_folder(folder.text, options, lock));
    if (access(path, F_OK) != 0) return TU_OK;
    tu__converted_end(*lock); /* another process has converted it meanwhile */
    *lock = -1;
    return TU_OK;
}

void tu__converted_end(int lock) {
    if (lock >= 0) close(lock);
}
