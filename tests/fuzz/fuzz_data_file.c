/* Opens data files with arbitrary descriptions. The file must be rejected, or every image must be readable. The
 * first input byte is the size of images and labels, in units of 64 bytes; the rest is the description. The digest
 * is computed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "data/data_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_file(const char *path, const uint8_t *description, size_t size, size_t body) {
    static unsigned char zeros[256 * 64];
    unsigned char head[64] = {0}, tail[64] = {0};
    uint32_t version = TU__DATA_FILE_VERSION;
    uint64_t offset = 64 + body, length = size;
    memcpy(head, tu__data_file_head, 8);
    memcpy(head + 8, &version, sizeof version);
    memcpy(tail, &offset, sizeof offset);
    memcpy(tail + 8, &length, sizeof length);
    tu__sha256_of(description, size, tail + 16);
    memcpy(tail + 56, tu__data_file_tail, 8);
    FILE *file = fopen(path, "wb");
    if (!file) abort();
    fwrite(head, 1, sizeof head, file);
    fwrite(zeros, 1, body, file);
    fwrite(description, 1, size, file);
    fwrite(zeros, 1, (64 - size % 64) % 64, file);
    fwrite(tail, 1, sizeof tail, file);
    if (fclose(file) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[] = "/tmp/tutti-data-file-XXXXXX";
    tu_dataset *set;
    if (size < 1) return 0;
    int fd = mkstemp(path);
    if (fd < 0) abort();
    close(fd);
    write_file(path, data + 1, size - 1, (size_t)data[0] * 64);
    if (tu__data_file_open(path, &set) == TU_OK) {
        tu_dataset_verify(set);
        tu_dataset_free(set);
    }
    unlink(path);
    return 0;
}
