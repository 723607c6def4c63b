/* Parses and formats memory sizes such as "64M" and "1.5 GiB". */
#ifndef TU__CLI_BYTE_SIZE_H
#define TU__CLI_BYTE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* Parses "1.5G", "64MiB" or "4096": a number and a unit K, M, G or T (powers of 1024), with or without "iB"; without
 * a unit, bytes. Returns false if the text is not such a size or not from 1 byte to 8 EiB. */
bool cli_parse_bytes(const char *text, uint64_t *bytes);

/* Formats a number of bytes as in "15.6 GiB", rounded up. */
struct cli_bytes_text {
    char text[24];
};
struct cli_bytes_text cli_format_bytes(uint64_t bytes);

#endif
