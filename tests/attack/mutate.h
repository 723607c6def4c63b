/* Hostile variants of valid files. Every variant follows from a seed. */
#ifndef TESTS_ATTACK_MUTATE_H
#define TESTS_ATTACK_MUTATE_H

#include <stddef.h>
#include <stdint.h>

typedef struct file_bytes {
    unsigned char *data;
    size_t size;
} file_bytes;

/* What a format protects by digests and checksums; they are corrected after a change, so that it is not found by them. */
typedef enum format { PLAIN, GRAPH_FILE, SAFETENSORS, DATA_FILE, PNG_FILE } format;

uint64_t random_number(uint64_t *state);
/* Returns a number below `below`. */
uint64_t random_below(uint64_t *state, uint64_t below);

/* Changes the contents one to three times: numbers, lengths, slices, nesting, bytes of text, or its end. Returns what it has
 * done, for reports. */
const char *mutate(file_bytes *file, format kind, uint64_t *state);

#endif
