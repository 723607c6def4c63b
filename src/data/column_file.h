/* Data files of version 2: any columns, in one file, which is memory-mapped.
 *
 *     64 bytes      "TUTTIDAT", u32 version 2, zeros
 *     sections      per column the training samples, per column the test samples; or the tokens of a text
 *     description   JSON: name, sizes, columns, offsets of the sections, digest
 *     64 bytes      as in version 1 (data_file.h)
 *
 * Every section starts at a multiple of 64 bytes. A table is written in parallel: sections have a known size, and rows are
 * put at their places. A token file is written from beginning to end. The digest covers the columns' description and
 * the digests of blocks of 1 MiB of all sections, so that it is computed on all cores. */
#ifndef TU__DATA_COLUMN_FILE_H
#define TU__DATA_COLUMN_FILE_H

#include "base/save.h"
#include "base/sha256.h"
#include "data/dataset.h"

enum { TU__COLUMN_FILE_VERSION = 2 };

/* Positions of the sections. `end` follows the last one. */
typedef struct tu__sections {
    size_t column[2][TU_MAX_COLUMNS];
    size_t end;
} tu__sections;
/* Places the sections one after another. Returns false if sizes overflow. */
bool tu__place_sections(const tu__columns *columns, const int64_t count[2], tu__sections *sections);

/* ---- Tables ---- */

typedef struct tu__column_writer {
    tu__save save;
    tu_dataset_info info;
    tu__columns columns; /* the caller may complete fields and classes before the finish */
    tu__sections sections;
    int threads; /* that compute the digest */
} tu__column_writer;

/* Starts a file; info->count is known. Call tu__column_writer_end in any case. Strings must outlive the writer. */
tu_status tu__column_writer_begin(const char *path, const tu_dataset_info *info, const tu__columns *columns,
                                  tu__column_writer *writer);
/* Writes `rows` elements of a column from sample `first` on. Several threads may call it. Returns false and sets
 * `*reason` to the errno of a failure. */
bool tu__column_writer_put(const tu__column_writer *writer, tu_split split, size_t column, int64_t first,
                           int64_t rows, const void *elements, int *reason);
/* Fails as a save whose write failed for this reason. */
tu_status tu__column_writer_fail(tu__column_writer *writer, int reason);
/* Writes the description and gives the file its name. */
tu_status tu__column_writer_finish(tu__column_writer *writer);
void tu__column_writer_end(tu__column_writer *writer);

/* ---- Descriptions ---- */

typedef struct tu__token_layout {
    int64_t bytes;    /* of a token: 1, 2 or 4; 0: not a token file */
    int64_t count[3]; /* tokens per part */
    int64_t vocabulary;
} tu__token_layout;

/* Writes description and tail at the end of a file that has `offset` bytes. `tokens` may be NULL. */
tu_status tu__write_description(tu__save *save, size_t offset, const tu_dataset_info *info,
                                const tu__columns *columns, const tu__sections *sections,
                                const tu__token_layout *tokens);
/* Writes the head of a file. */
tu_status tu__write_file_head(tu__save *save);
/* Computes the digest of the sections, bytes [64, end) of a file. */
tu_status tu__hash_sections(const unsigned char *file, size_t end, const tu__columns *columns, int threads,
                            char digest[TU__SHA256_HEX]);

/* ---- Opening ---- */

/* Opens a mapped file of version 2, whose description was found by data_file_read.c. `unmap` frees the mapping with the
 * data set. `window`: input tokens of a sample of a token file; 0: 256. */
typedef struct tu__column_mapping {
    const char *path;
    const unsigned char *bytes;
    size_t description; /* offset of the description */
    const char *text;   /* the description */
    size_t length;
    void *mapping;
    void (*unmap)(void *mapping);
} tu__column_mapping;
tu_status tu__column_file_open(const tu__column_mapping *file, int64_t window, tu_dataset **dataset);

#endif
