/* Files of an input, for parsers that read files: in a folder of this process, in memory if the system has a folder there,
 * removed when the process ends. */
#ifndef TESTS_FUZZ_INPUT_FILE_H
#define TESTS_FUZZ_INPUT_FILE_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char input_folder_path[64];

/* Removes what is in a folder; closes its descriptor. */
static inline void remove_inputs_at(int folder) {
    DIR *list = folder < 0 ? NULL : fdopendir(folder);
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (unlinkat(folder, entry->d_name, 0) == 0) continue;
        remove_inputs_at(openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        unlinkat(folder, entry->d_name, AT_REMOVEDIR);
    }
    if (list) closedir(list);
}

static inline void remove_inputs(const char *folder) {
    remove_inputs_at(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static void remove_input_folder(void) {
    remove_inputs(input_folder_path);
    rmdir(input_folder_path);
}

static inline const char *input_folder(void) {
    if (*input_folder_path) return input_folder_path;
    snprintf(input_folder_path, sizeof input_folder_path, "%s/tutti-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(input_folder_path)) abort();
    atexit(remove_input_folder);
    return input_folder_path;
}

struct input_path {
    char text[128];
};

static inline struct input_path input_path(const char *name) {
    struct input_path path;
    snprintf(path.text, sizeof path.text, "%s/%s", input_folder(), name);
    return path;
}

static inline struct input_path write_input(const char *name, const void *bytes, size_t size) {
    struct input_path path = input_path(name);
    FILE *file = fopen(path.text, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) abort();
    return path;
}

#endif
