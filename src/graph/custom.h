/* The registry of custom operations, for those who read graphs from files. */
#ifndef TU__GRAPH_CUSTOM_H
#define TU__GRAPH_CUSTOM_H

#include <tutti/custom.h>

/* NULL when no operation of this name was registered. */
const tu_custom_op *tu__custom_find(const char *name);

#endif
