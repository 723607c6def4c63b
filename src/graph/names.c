/* The name table of a graph: open addressing with linear probing; grows when three quarters full. */
#include "graph/names.h"

#include <string.h>

#include "base/alloc.h"

typedef struct slot {
    const char *name; /* NULL: free */
    uint32_t node, suffix;
    bool removed; /* deleted; probing continues past it */
} slot;

struct tu__name_table {
    slot *slots;
    size_t capacity, used; /* `used` includes removed slots */
};

uint64_t tu__names_hash(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) hash = (hash ^ *c) * 0x100000001b3u;
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93u;
    return hash ^ (hash >> 32);
}

static slot *find_slot(const tu__name_table *names, const char *name) {
    size_t mask = names->capacity - 1;
    for (size_t i = tu__names_hash(name) & mask;; i = (i + 1) & mask) {
        slot *s = &names->slots[i];
        if (!s->name) return s;
        if (!s->removed && strcmp(s->name, name) == 0) return s;
    }
}

tu__name_table *tu__names_new(void) {
    tu__name_table *names = tu__alloc(sizeof *names, "a graph's names");
    if (!names) return NULL;
    names->capacity = 64;
    names->slots = tu__alloc_array(names->capacity, sizeof(slot), "a graph's names");
    if (!names->slots) {
        tu__free(names);
        return NULL;
    }
    return names;
}

void tu__names_free(tu__name_table *names) {
    if (!names) return;
    tu__free(names->slots);
    tu__free(names);
}

bool tu__names_find(const tu__name_table *names, const char *name, uint32_t *node) {
    const slot *s = find_slot(names, name);
    if (s->name) *node = s->node;
    return s->name != NULL;
}

static tu_status grow(tu__name_table *names) {
    tu__name_table bigger = {.capacity = names->capacity * 2};
    bigger.slots = tu__alloc_array(bigger.capacity, sizeof(slot), "a graph's names");
    if (!bigger.slots) return TU_NO_MEMORY;
    for (size_t i = 0; i < names->capacity; i++) {
        slot *s = &names->slots[i];
        if (!s->name || s->removed) continue;
        *find_slot(&bigger, s->name) = *s;
        bigger.used++;
    }
    tu__free(names->slots);
    *names = bigger;
    return TU_OK;
}

tu_status tu__names_add(tu__name_table *names, const char *name, uint32_t node) {
    if (names->used * 4 >= names->capacity * 3) TU_TRY(grow(names));
    *find_slot(names, name) = (slot){.name = name, .node = node};
    names->used++;
    return TU_OK;
}

void tu__names_remove(tu__name_table *names, const char *name) {
    slot *s = find_slot(names, name);
    if (s->name) s->removed = true;
}

uint32_t tu__names_next_suffix(tu__name_table *names, const char *name) {
    slot *s = find_slot(names, name);
    return s->name ? ++s->suffix : 0;
}
