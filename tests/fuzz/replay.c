/* Calls a fuzz target with every file of a folder: main() for builds without libFuzzer.
 *
 * Each input is copied to a block of exactly its size, so that the address sanitizer detects reads past its end. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path, size_t size) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);
    int failed = !file || !data || fread(data, 1, size, file) != size;
    if (failed)
        fprintf(stderr, "replay: cannot read %s: %s\n", path, strerror(errno));
    else
        LLVMFuzzerTestOneInput(data, size);
    free(data);
    if (file) fclose(file);
    return failed;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    struct dirent **entries;
    int count = scandir(argv[1], &entries, NULL, alphasort);
    if (count < 0) {
        fprintf(stderr, "replay: cannot list %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    int replayed = 0, failures = 0;
    for (int i = 0; i < count; i++) {
        char path[4096];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
        free(entries[i]);
        if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) continue;
        printf("%s\n", path);
        fflush(stdout); /* after a crash the last line printed names the input */
        failures += replay(path, (size_t)info.st_size);
        replayed++;
    }
    free(entries);
    if (replayed == 0) fprintf(stderr, "replay: no input in %s: expected at least one file\n", argv[1]);
    return failures > 0 || replayed == 0;
}
