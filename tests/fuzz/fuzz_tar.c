/* Extracts one file from arbitrary bytes as a tar archive, compressed or not. No other file may be written. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "data/tar.h"
#include "fuzz/input_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[80], archive[96], extracted[96];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "%s/tar", input_folder());
    if (mkdir(folder, 0700) != 0) abort();
    snprintf(archive, sizeof archive, "%s/archive", folder);
    snprintf(extracted, sizeof extracted, "%s/a.txt", folder);
}

static void remove_folder(void) {
    unlink(archive);
    unlink(extracted);
    if (rmdir(folder) != 0) abort(); /* something else was written into it */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"a.txt", NULL};
    make_folder();
    FILE *file = fopen(archive, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) abort();
    if (tu__tar_extract(archive, folder, names, NULL) == TU_OK && access(extracted, F_OK) != 0) abort();
    remove_folder();
    return 0;
}
