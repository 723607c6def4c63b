/* The categories of a field: texts with codes, in the order in which they were added. */
#ifndef TU__DATA_CSV_DICTIONARY_H
#define TU__DATA_CSV_DICTIONARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct tu__dictionary {
    tu__arena *arena; /* of the texts */
    size_t count, capacity;
    const char **texts; /* by code */
    uint32_t *lengths;
    uint64_t *hashes;
    _Atomic bool *trained; /* a training row has it; set by several threads */
    uint32_t *slots;       /* hash table: code + 1 */
    size_t slot_count;
} tu__dictionary;

/* Returns the hash of a text, which the functions below take, so that it is computed once. */
uint64_t tu__dictionary_hash(const char *text, size_t length);
/* Returns the code of a text, or -1. Several threads may search at once. */
int32_t tu__dictionary_find(const tu__dictionary *dictionary, const char *text, size_t length, uint64_t hash);
/* Adds a text that is not in the dictionary. Returns its code, or -1 if memory runs out. */
int32_t tu__dictionary_add(tu__dictionary *dictionary, const char *text, size_t length, uint64_t hash);
void tu__dictionary_free(tu__dictionary *dictionary);

/* Sorts the texts: numbers by value, before other texts by their bytes; those that no training row has are left out, unless
 * `all`. order[code] becomes the position of a text, or -1, and `sorted` lists the texts. Returns their number, or -1 if
 * memory runs out. */
int64_t tu__dictionary_sort(const tu__dictionary *dictionary, bool all, int32_t *order, const char **sorted);

#endif
