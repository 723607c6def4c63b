/* The name table of a graph: scoped name -> node and next free suffix. */
#ifndef TU__GRAPH_NAMES_H
#define TU__GRAPH_NAMES_H

#include <tutti/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct tu__name_table tu__name_table;

tu__name_table *tu__names_new(void);
void tu__names_free(tu__name_table *names);
/* Sets `*node` to the node called `name`; returns false if there is none. */
bool tu__names_find(const tu__name_table *names, const char *name, uint32_t *node);
/* Adds a name that is not yet in the table. The string is not copied. */
tu_status tu__names_add(tu__name_table *names, const char *name, uint32_t node);
void tu__names_remove(tu__name_table *names, const char *name);
/* Returns the next suffix to try for a name that is taken. It increases with every call, so that n nodes of one name
 * need O(n) look-ups. */
uint32_t tu__names_next_suffix(tu__name_table *names, const char *name);
/* FNV-1a with a final mix; equal on all machines and versions. */
uint64_t tu__names_hash(const char *name);

#endif
