/* Constants of the graph file format, for its writer (file_write.c) and reader (file_read.c). docs/graph-file.md
 * describes the format. Change that page, this file and the version number together. */
#ifndef TU__GRAPH_FILE_H
#define TU__GRAPH_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/graph.h>

#include "base/sha256.h"

/* Numbers are little-endian; the data of constants is stored unconverted. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "graph files are written by little-endian machines");

/* The first byte is not ASCII, so that no text file begins like a graph file. */
#define TU__FILE_MAGIC "\x89TUGRAPH"

enum {
    TU__FILE_VERSION = 1,

    /* The header: magic, version (u32), flags (u32), size of the whole file (u64). */
    TU__FILE_AT_VERSION = 8,
    TU__FILE_AT_FLAGS = 12,
    TU__FILE_AT_SIZE = 16,
    TU__FILE_HEADER = 24,
    /* The trailer: SHA-256 of all bytes before it. */
    TU__FILE_TRAILER = TU__SHA256_BYTES,
    /* Header, two counts of zero, trailer: an empty graph. */
    TU__FILE_SMALLEST = TU__FILE_HEADER + 8 + TU__FILE_TRAILER,

    TU__FILE_FLAG_TRAINING = 1, /* the graph's layers are built for training */

    /* Node flags in addition to those of graph.h: the list of control dependencies or the group number follows the
     * outputs. */
    TU__FILE_NODE_DEPS = 1 << 16,
    TU__FILE_NODE_GROUPED = 1 << 17,

    /* Bounds the time to read a hostile file: finding a result is a linear search. */
    TU__FILE_MAX_RESULTS = 4096,
};

/* Checks the header (the first TU__FILE_HEADER bytes) and sets `*size` to the file's size. */
tu_status tu__file_check_header(const unsigned char *bytes, uint64_t *size);

/* Like tu_graph_load and tu_graph_save, beneath a folder in which no link is followed (base/open_file.h). */
TU__SHARED tu_status tu__graph_load_in(const char *folder, const char *name, tu_graph **graph);
TU__SHARED tu_status tu__graph_save_in(const tu_graph *graph, const char *folder, const char *name);

#endif
