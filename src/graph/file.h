/* The graph file: what its writer (file_write.c) and its reader (file_read.c) agree on. docs/graph-file.md describes
 * the format byte by byte; a change there, here and in the version number go together. */
#ifndef TU__GRAPH_FILE_H
#define TU__GRAPH_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/graph.h>

#include "base/sha256.h"

/* Numbers are little-endian, and constants are stored as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "graph files are written by little-endian machines");

/* The first byte is no character, so no text is mistaken for a graph. */
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

    TU__FILE_FLAG_TRAINING = 1, /* the graph's layers are built as for training */

    /* Of a node's flags, beside those of graph.h: a list of what it waits for, the number of its group. They follow its
     * outputs. */
    TU__FILE_NODE_WAITS = 1 << 16,
    TU__FILE_NODE_GROUPED = 1 << 17,

    /* Finding a result compares names one by one, which a file must not be able to abuse. */
    TU__FILE_MAX_RESULTS = 4096,
};

/* Checks magic, version, flags and size of the first TU__FILE_HEADER bytes; `*size` is that of the whole file. */
tu_status tu__file_check_header(const unsigned char *bytes, uint64_t *size);

#endif
