/* The registry of custom operations. */
#ifndef TU__GRAPH_CUSTOM_H
#define TU__GRAPH_CUSTOM_H

#include <tutti/custom.h>

/* Returns NULL if no custom operation of this name is registered. */
const tu_custom_op *tu__custom_find(const char *name);

#endif
