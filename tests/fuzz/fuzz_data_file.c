/* Opens data files with arbitrary metadata. The file must be rejected, or every image must be readable. The first
 * input byte is the size of images and labels, in units of 64 bytes; the other bytes are the metadata. The digest in
 * the file is correct. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "data/data_file.h"
#include "fuzz/input_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_file(const char *path, const uint8_t *metadata, size_t size, size_t body) {
    static unsigned char zeros[256 * 64];
    unsigned char header[64] = {0}, trailer[64] = {0};
    uint32_t version = TU__DATA_FILE_VERSION;
    uint64_t offset = 64 + body, length = size;
    memcpy(header, tu__data_file_head, 8);
    memcpy(header + 8, &version, sizeof version);
    memcpy(trailer, &offset, sizeof offset);
    memcpy(trailer + 8, &length, sizeof length);
    tu__sha256_of(metadata, size, trailer + 16);
    memcpy(trailer + 56, tu__data_file_tail, 8);
    FILE *file = fopen(path, "wb");
    if (!file) abort();
    fwrite(header, 1, sizeof header, file);
    fwrite(zeros, 1, body, file);
    fwrite(metadata, 1, size, file);
    fwrite(zeros, 1, (64 - size % 64) % 64, file);
    fwrite(trailer, 1, sizeof trailer, file);
    if (fclose(file) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input_path path = input_path("set.tutti");
    tu_dataset *set;
    if (size < 1) return 0;
    setenv("TUTTI_DATA", input_folder(), 1); /* for the records of verified files */
    write_file(path.text, data + 1, size - 1, (size_t)data[0] * 64);
    if (tu__data_file_open(path.text, &set) == TU_OK) {
        tu_dataset_verify(set);
        tu_dataset_free(set);
    }
    return 0;
}
