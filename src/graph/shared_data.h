/* Bytes that several graphs share: the weights of a model.
 *
 * An ordinary constant has its data in the arena of its graph, so every pass that copies the graph copies the data. A
 * constant with shared data refers to it instead (tu__node.shared). The data never changes, so devices may prepare it
 * when they lower a graph, and keep the result for other programs under its `id`. */
#ifndef TU__GRAPH_SHARED_DATA_H
#define TU__GRAPH_SHARED_DATA_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/shared.h"

typedef struct tu__shared_data {
    atomic_uint references; /* it is freed with the last one */
    uint64_t id;            /* of no other data in this process, not even of data freed before */
    size_t bytes;
    void *data; /* aligned to 64 bytes; only its creator writes it, before anybody else sees it */
} tu__shared_data;

/* Makes data with one reference, of unspecified content. NULL, after setting the message, if memory runs out. */
TU__SHARED tu__shared_data *tu__shared_data_new(size_t bytes, const char *purpose);
TU__SHARED tu__shared_data *
tu__shared_data_keep(tu__shared_data *data);                    /* adds a reference; returns `data` */
TU__SHARED void tu__shared_data_release(tu__shared_data *data); /* does nothing for NULL */

#endif
