/* A temporary folder with the path of one file in it. */
#ifndef TESTS_UNIT_TEMP_FOLDER_H
#define TESTS_UNIT_TEMP_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

typedef struct folder {
    char path[64], file[80];
} folder;

static inline folder new_folder(const char *name) {
    folder f;
    strcpy(f.path, "/tmp/tutti-test-XXXXXX");
    assert_non_null(mkdtemp(f.path));
    snprintf(f.file, sizeof f.file, "%s/%s", f.path, name);
    return f;
}

static inline int count_files(const folder *f) {
    int count = 0;
    DIR *dir = opendir(f->path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(dir);
    return count;
}

/* Removes the file and the folder; fails if anything else is in it. */
static inline void remove_folder(const folder *f) {
    unlink(f->file);
    assert_int_equal(rmdir(f->path), 0);
}

#endif
