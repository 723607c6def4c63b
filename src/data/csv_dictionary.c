/* Dictionaries of categories: open addressing. See csv_dictionary.h. */
#include "data/csv_dictionary.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/csv.h"

uint64_t tu__dictionary_hash(const char *text, size_t length) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    return hash ^ hash >> 31;
}

int32_t tu__dictionary_find(const tu__dictionary *d, const char *text, size_t length, uint64_t hash) {
    if (!d->slot_count) return -1;
    for (size_t slot = hash & (d->slot_count - 1); d->slots[slot]; slot = (slot + 1) & (d->slot_count - 1)) {
        uint32_t code = d->slots[slot] - 1;
        if (d->hashes[code] == hash && d->lengths[code] == length &&
            memcmp(d->texts[code], text, length) == 0)
            return (int32_t)code;
    }
    return -1;
}

static void insert(tu__dictionary *d, uint32_t code) {
    size_t slot = d->hashes[code] & (d->slot_count - 1);
    while (d->slots[slot]) slot = (slot + 1) & (d->slot_count - 1);
    d->slots[slot] = code + 1;
}

static bool grow_array(void *array, size_t capacity, size_t size) {
    void **address = array;
    void *grown = tu__realloc(*address, capacity * size, "the categories of a table");
    if (grown) *address = grown;
    return grown != NULL;
}

static bool grow(tu__dictionary *d) {
    size_t capacity = d->capacity ? 2 * d->capacity : 16;
    if (!grow_array(&d->texts, capacity, sizeof *d->texts) ||
        !grow_array(&d->lengths, capacity, sizeof *d->lengths) ||
        !grow_array(&d->hashes, capacity, sizeof *d->hashes) ||
        !grow_array(&d->trained, capacity, sizeof *d->trained))
        return false;
    uint32_t *slots = tu__alloc_array(2 * capacity, sizeof *slots, "the categories of a table");
    if (!slots) return false;
    tu__free(d->slots);
    d->slots = slots;
    d->slot_count = 2 * capacity;
    d->capacity = capacity;
    for (uint32_t code = 0; code < d->count; code++) insert(d, code);
    return true;
}

int32_t tu__dictionary_add(tu__dictionary *d, const char *text, size_t length, uint64_t hash) {
    if (d->count == d->capacity && !grow(d)) return -1;
    char *copy = tu__arena_alloc(d->arena, length + 1);
    if (!copy) return -1;
    memcpy(copy, text, length);
    uint32_t code = (uint32_t)d->count++;
    d->texts[code] = copy;
    d->lengths[code] = (uint32_t)length;
    d->hashes[code] = hash;
    d->trained[code] = false;
    insert(d, code);
    return (int32_t)code;
}

void tu__dictionary_free(tu__dictionary *d) {
    tu__free(d->texts);
    tu__free(d->lengths);
    tu__free(d->hashes);
    tu__free((void *)d->trained);
    tu__free(d->slots);
    *d = (tu__dictionary){0};
}

/* ---- Sorting ---- */

typedef struct entry {
    const char *text;
    int32_t code;
    bool is_number;
    double number;
} entry;

static int compare(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->is_number != y->is_number) return x->is_number ? -1 : 1;
    if (x->is_number && x->number != y->number) return x->number < y->number ? -1 : 1;
    return strcmp(x->text, y->text);
}

int64_t tu__dictionary_sort(const tu__dictionary *d, bool all, int32_t *order, const char **sorted) {
    entry *entries = tu__alloc_array(d->count + 1, sizeof *entries, "the categories of a table");
    int64_t count = 0;
    if (!entries) return -1;
    for (size_t i = 0; i < d->count; i++) {
        order[i] = -1;
        if (!all && !d->trained[i]) continue;
        entry *e = &entries[count++];
        *e = (entry){.text = d->texts[i], .code = (int32_t)i};
        e->is_number = tu__csv_is_number(d->texts[i], d->lengths[i], &e->number);
    }
    qsort(entries, (size_t)count, sizeof *entries, compare);
    for (int64_t i = 0; i < count; i++) {
        sorted[i] = entries[i].text;
        order[entries[i].code] = (int32_t)i;
    }
    tu__free(entries);
    return count;
}
