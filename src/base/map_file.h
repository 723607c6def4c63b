/* Maps a file into memory for reading.
 *
 * Somebody may truncate a file while it is mapped, and an access beyond its new end raises SIGBUS, which would end the
 * program without a word. While files are mapped, a handler of that signal puts pages of zeros in place of the missing
 * ones and marks the mapping. Whoever reads a mapping for long checks it afterwards, before the results count:
 *
 *     TU_TRY(tu__check_mapping(&file, path));
 *
 * Other SIGBUS signals, and those of programs that have a handler, are passed on. */
#ifndef TU__BASE_MAP_FILE_H
#define TU__BASE_MAP_FILE_H

#include <stddef.h>
#include <sys/stat.h>

#include "base/shared.h"

typedef struct tu__mapped_file {
    void *bytes; /* NULL if the file is empty */
    size_t size;
    struct stat info;
    int slot, fd; /* private: in the table of mappings (-1: not in it), and the open file */
} tu__mapped_file;

/* Fails for anything but a regular file. On failure `file` is empty. */
TU__SHARED tu_status tu__map_file(const char *path, tu__mapped_file *file);
/* Maps a file beneath a folder (base/open_file.h). */
TU__SHARED tu_status tu__map_file_in(const char *folder, const char *name, tu__mapped_file *file);
/* Fails with TU_IO if the file was truncated while it was mapped and read: the rest was read as zeros. */
TU__SHARED tu_status tu__check_mapping(const tu__mapped_file *file, const char *name);
/* Lets the kernel drop the pages of bytes [begin, end), which have been read; reading them again is correct, but slower. Has
 * no effect on a file that was read into the heap. */
TU__SHARED void tu__release_pages(const tu__mapped_file *file, size_t begin, size_t end);
/* Leaves `file` empty, as it may already be. */
TU__SHARED void tu__unmap_file(tu__mapped_file *file);

#endif
