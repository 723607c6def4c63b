/* Data files: a complete data set in one file, which is memory-mapped.
 *
 * Every data set that is not generated or read through functions of a program is converted to such a file once (by
 * open_downloadable.c, folder.c, arrays.c) and then opens in a millisecond. docs/data.md describes the format; in short:
 *
 *     64 bytes      "TUTTIDAT", u32 version, zeros
 *     images        training, then test: [count, height, width, channels] u8 or f32
 *     labels        training, then test: i32
 *     description   JSON: name, sizes, classes, means, digest
 *     64 bytes      u64 offset and u64 size of the description, its SHA-256, zeros, "TUTTIEND"
 *
 * This is version 1, for pictures; column_file.h describes version 2, for other columns.
 *
 * Each section starts at a multiple of 64 bytes; numbers are little-endian. The description is at the end because
 * mean and digest are known only after the last image. So a file is written sequentially. */
#ifndef TU__DATA_DATA_FILE_H
#define TU__DATA_DATA_FILE_H

#include "data/dataset.h"

enum { TU__DATA_FILE_VERSION = 1, TU__DATA_FILE_ALIGNMENT = 64 };

typedef struct tu__data_writer tu__data_writer;

/* Starts a file with this description; mean, standard deviation and digest need not be set. class_names NULL means "0", "1",
 * …. The file gets the name `path` only in tu__data_writer_finish. `info` and its strings must outlive the writer. */
tu_status tu__data_writer_new(const char *path, const tu_dataset_info *info, tu__data_writer **writer);
/* Adds an image. Training images come first, then test images. */
tu_status tu__data_writer_add(tu__data_writer *writer, const void *image, int32_t label);
/* Writes the rest of the file and renames it to its path. Fails if images are missing or if their digest is not
 * `digest` (NULL: any). */
tu_status tu__data_writer_finish(tu__data_writer *writer, const char *digest);
/* Frees the writer, after or without finish. NULL is ignored. */
void tu__data_writer_free(tu__data_writer *writer);

/* Opens a file and validates it. Returns TU_CORRUPT (the message contains the path) for an invalid file, TU_NOT_FOUND
 * if there is none. Hashes the images, once for every version of the file (verified.h). */
tu_status tu__data_file_open(const char *path, tu_dataset **dataset);
/* The same, for a file of any version. `window`: input tokens of a sample of a token file; 0: 256. */
tu_status tu__data_file_open_window(const char *path, int64_t window, tu_dataset **dataset);
/* True if the file starts like a data file. */
bool tu__data_file_recognise(const char *path);

/* Offsets of the sections: images and labels of both splits, then the description. Shared by writer and reader.
 * tu__data_file_layout returns false if the sizes overflow. */
typedef struct tu__data_layout {
    size_t images[2], labels[2], description;
} tu__data_layout;
bool tu__data_file_layout(const tu_dataset_info *info, size_t image_bytes, tu__data_layout *layout);

extern const char tu__data_file_head[8], tu__data_file_tail[8];

#endif
