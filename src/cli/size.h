/* Amounts of memory as people write and read them: "64M", "1.5 GiB". */
#ifndef CLI_SIZE_H
#define CLI_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* "1.5G", "64MiB", "4096": a number, then nothing (bytes), K, M, G or T (powers of 1024), with or without "iB". False
 * when it is none, or not between one byte and 8 EiB. */
bool cli_parse_size(const char *text, uint64_t *bytes);

/* "15.6 GiB" */
struct cli_size {
    char text[24];
};
struct cli_size cli_size(uint64_t bytes);

#endif
