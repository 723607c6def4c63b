/* The one door to files.
 *
 * Run folders, caches, model files and data sets come from other people, and what is in them may be anything: a link
 * that leads out of the folder, a FIFO that never answers, a sparse file of a terabyte. All reading and writing of such
 * files goes through the functions here, base/map_file.h and base/save.h; the test `doors` looks for system calls that
 * go around them (decision 49). They hold:
 *
 *   - Within a folder no link is followed: neither the file nor a folder on the way to it may be one. The path of the
 *     folder itself was named by the user, and may have links.
 *   - Only regular files are opened, without waiting (opening a FIFO blocks until somebody writes to it).
 *   - Reading a file whole has a limit, checked before memory is allocated.
 *
 * Everywhere `folder` and `name` mean: the file `name`, a relative path such as "checkpoints/step-1.safetensors",
 * beneath `folder`. If `folder` is NULL, `name` is a path that the user named, of which any part may be a link. */
#ifndef TU__BASE_OPEN_FILE_H
#define TU__BASE_OPEN_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/shared.h"
#include "base/text.h"

/* Opens a regular file for reading. TU_NOT_FOUND if it does not exist, TU_INVALID if it is a link or not a regular file.
 * `info` may be NULL. The caller closes *fd. */
TU__SHARED tu_status tu__open_file(const char *folder, const char *name, int *fd, struct stat *info);

/* Reads a regular file of at most `max_bytes` bytes; `text` ends with a NUL that does not count. TU_CORRUPT if the
 * file is longer, or is large and sparse. The caller frees the text, also after a failure. */
TU__SHARED tu_status tu__read_file(const char *folder, const char *name, size_t max_bytes, tu__text *text);

/* Opens a folder to list its entries; NULL, with errno, on failure. `name` "": the folder itself. */
TU__SHARED DIR *tu__list_folder(const char *folder, const char *name);

/* True if there is a regular file. */
TU__SHARED bool tu__file_exists(const char *folder, const char *name);

/* ---- Changing folders, through base/disk.h. These return -1 and set errno on failure. ---- */

/* Returns a descriptor of the folder that `name` is in, as a base for the calls of base/disk.h, and the last component
 * of the name. errno is ELOOP if a component is a link. The caller closes the descriptor. */
TU__SHARED int tu__open_parent(const char *folder, const char *name, const char **last);
/* Opens a regular file for writing; `flags` as for open(). A link is not followed, also not one that the user named. */
TU__SHARED int tu__open_to_write(const char *folder, const char *name, int flags);
TU__SHARED int tu__remove_file(const char *folder, const char *name);
/* Renames a file within its folder; `to` is its new last component. */
TU__SHARED int tu__rename_file(const char *folder, const char *name, const char *to);
/* Creates a folder. EEXIST if there is anything with that name. */
TU__SHARED int tu__make_folder(const char *folder, const char *name);
/* Removes the files whose names begin with `prefix` from a folder, but none of its subfolders. */
TU__SHARED void tu__remove_files(const char *folder, const char *name, const char *prefix);
/* Removes a folder and its files, but none of its subfolders, which keep it. Removes a link, not what it points to. */
TU__SHARED void tu__remove_folder(const char *folder, const char *name);

/* Returns "folder/name", or `name` if there is no folder, for messages. */
TU__SHARED tu__path tu__file_path(const char *folder, const char *name);
/* The reason of a failed call for a message: strerror(), or what errno means here. */
TU__SHARED const char *tu__file_reason(int reason);

#endif
