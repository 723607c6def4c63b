/* Shared by the tests of data sets: a temporary cache folder and files in it. */
#ifndef TUTTI_TEST_DATA_FOLDER_H
#define TUTTI_TEST_DATA_FOLDER_H

#include <dirent.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char data_folder[64];

/* Creates a temporary folder and sets TUTTI_DATA to it. For cmocka's setup. */
static int make_data_folder(void **state) {
    (void)state;
    snprintf(data_folder, sizeof data_folder, "/tmp/tutti-data-XXXXXX");
    if (!mkdtemp(data_folder)) return -1;
    return setenv("TUTTI_DATA", data_folder, 1);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static int remove_data_folder(void **state) {
    (void)state;
    return nftw(data_folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Returns data_folder/name; the last four results stay valid. */
static inline const char *in_folder(const char *name) {
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", data_folder, name);
    return path;
}

static inline void make_folder(const char *name) {
    assert_int_equal(mkdir(in_folder(name), 0777), 0);
}

static inline void write_file(const char *name, const void *bytes, size_t size) {
    FILE *file = fopen(in_folder(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Reads a whole file; free the result with free. */
static inline unsigned char *read_file(const char *name, size_t *size) {
    FILE *file = fopen(in_folder(name), "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

/* Counts the files and folders in data_folder/name, including hidden ones. */
static inline int count_entries(const char *name) {
    DIR *folder = opendir(in_folder(name));
    if (!folder) return 0;
    int count = 0;
    const struct dirent *entry;
    while ((entry = readdir(folder)))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(folder);
    return count;
}

#endif
