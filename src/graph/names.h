/* Names within a graph: full scoped name -> node, and the next free suffix for a name that is taken. */
#ifndef TU__GRAPH_NAMES_H
#define TU__GRAPH_NAMES_H

#include <tutti/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct tu__name_table tu__name_table;

tu__name_table *tu__names_new(void);
void tu__names_free(tu__name_table *names);
/* The node of a name; false when there is none. */
bool tu__names_find(const tu__name_table *names, const char *name, uint32_t *node);
/* Adds a name not yet in the table; the string is not copied. */
tu_status tu__names_add(tu__name_table *names, const char *name, uint32_t node);
void tu__names_remove(tu__name_table *names, const char *name);
/* The number to try as a suffix for a taken name; it rises with every call, so that a thousand nodes of one name
 * cost a thousand look-ups, not half a million. */
uint32_t tu__names_suffix(tu__name_table *names, const char *name);
/* Seeded FNV-1a with a final mix: stable over versions and machines. */
uint64_t tu__names_hash(const char *name);

#endif
