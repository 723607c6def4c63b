/* Data files: a whole set in one file that is mapped into memory, whatever form it came in.
 *
 * Everything that is not generated or read by functions of a program is converted into one of these once (by get.c,
 * folder.c, arrays.c) and then opened in a millisecond. docs/data.md describes the format; in short:
 *
 *     64 bytes      "TUTTIDAT", u32 version, zeros
 *     images        training, then test: [count, height, width, channels] u8 or f32
 *     labels        training, then test: i32
 *     description   JSON: name, sizes, classes, means, digest
 *     64 bytes      u64 offset and u64 size of the description, its SHA-256, zeros, "TUTTIEND"
 *
 * Each part begins at a multiple of 64 bytes; numbers are little-endian. The description stands at the end because what
 * it tells is known only when the last image has passed, and so a file is written from front to back in one go. */
#ifndef TU__DATA_DATA_FILE_H
#define TU__DATA_DATA_FILE_H

#include "data/dataset.h"

enum { TU__DATA_FILE_VERSION = 1, TU__DATA_FILE_ALIGNMENT = 64 };

typedef struct tu__data_writer tu__data_writer;

/* Begins a file of this description, all of which is known but mean, deviation and digest; class_names NULL means
 * "0", "1", …. Nothing has the name
 * `path` before tu__data_writer_finish. `info` and its strings must outlive the writer. */
tu_status tu__data_writer_new(const char *path, const tu_dataset_info *info, tu__data_writer **writer);
/* Training images in their order, then test images. */
tu_status tu__data_writer_add(tu__data_writer *writer, const void *image, int32_t label);
/* Puts the file in its place, if all images came and their digest is `digest` (NULL: any). */
tu_status tu__data_writer_finish(tu__data_writer *writer, const char *digest);
/* After finish, or instead of it. NULL is nothing. */
void tu__data_writer_free(tu__data_writer *writer);

/* Opens a file; never trusts it: TU_CORRUPT, naming the path, for one that breaks the format. TU_NOT_FOUND when there is
 * none. The images themselves are not hashed: that is tu_dataset_verify's. */
tu_status tu__data_file_open(const char *path, tu_dataset **set);
/* Whether the file begins as a data file does. */
bool tu__data_file_recognise(const char *path);

/* Offsets of the four parts (images and labels of both splits) and of the description behind them; false when the sizes
 * are beyond all files. What writer and reader share. */
typedef struct tu__data_layout {
    size_t images[2], labels[2], description;
} tu__data_layout;
bool tu__data_file_layout(const tu_dataset_info *info, size_t image_bytes, tu__data_layout *layout);

extern const char tu__data_file_head[8], tu__data_file_tail[8];

#endif
