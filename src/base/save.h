/* Atomic saves: a reader, also after a crash or power loss, finds either the old or the new file, never a mixture.
 *
 * The bytes are written to a temporary file in the same folder and flushed, the file is renamed, and the folder is
 * flushed. A failed save leaves the old file unchanged and removes the temporary file.
 *
 * A path that the user named may be a symbolic link: the file it points to is replaced; and it may be something else than
 * a regular file (/dev/stdout, a pipe), which is written in place. A file beneath a folder (tu__save_begin_in) is neither:
 * a link there is replaced by the new file, and what it points to stays as it is (base/open_file.h).
 *
 * tu_file_save saves bytes in memory with one call. A large file is saved in chunks:
 *
 *     tu__save save;
 *     TU_TRY(tu__save_begin(&save, path));
 *     for (…) tu__save_append(&save, chunk, size);     // keeps the first error
 *     return tu__save_commit(&save);                   // and reports it here
 *
 * All system calls go through base/disk.h, so that tests can make any of them fail and simulate power loss. */
#ifndef TU__BASE_SAVE_H
#define TU__BASE_SAVE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <tutti/command.h>

#include "base/shared.h"

/* Prefix of the temporary file's name. A process that is killed leaves the file behind. While it lives it holds a lock on
 * the file (flock), so others can tell. */
#define TU__SAVE_UNFINISHED ".tutti-"
/* Removes the temporary files of killed processes from a folder (base/open_file.h). tu__save_begin does so too. */
TU__SHARED void tu__remove_unfinished(const char *folder, const char *name);

/* A save in progress. It owns no heap memory. */
typedef struct tu__save {
    char path[PATH_MAX]; /* as given, for messages */
    int folder; /* descriptor of the folder with both files; -1 once the save has ended, or in place */
    char target[NAME_MAX + 1];    /* the new file's name in it */
    char temp_name[NAME_MAX + 1]; /* the temporary file's; "" if the target is written in place */
    int fd;                       /* -1 once the save has ended */
    int reason;                   /* errno of the first failure; 0: none */
} tu__save;

TU__SHARED tu_status tu__save_begin(tu__save *save, const char *path);
/* Saves a file beneath a folder, whose links are not followed; `folder` NULL: like tu__save_begin. */
TU__SHARED tu_status tu__save_begin_in(tu__save *save, const char *folder, const char *name);
/* A failure ends the save like tu__save_abandon; further appends and the commit report it again. */
TU__SHARED tu_status tu__save_append(tu__save *save, const void *bytes, size_t size);
/* Writes at an offset of a temporary file, also beyond its end. Several threads may call it at once, for different
 * bytes, and pass their own `reason` (errno of the first failure), since the save is not changed. */
TU__SHARED bool tu__save_write_at(const tu__save *save, const void *bytes, size_t size, off_t offset,
                                  int *reason);
/* Maps the first `size` bytes that were written, to read and change them; munmap() unmaps them. NULL, with errno, on
 * failure, and if the target is written in place. */
TU__SHARED void *tu__save_map(const tu__save *save, size_t size);
/* Replaces the target. After TU_OK the new file survives power loss. */
TU__SHARED tu_status tu__save_commit(tu__save *save);
/* Cancels the save and leaves the old file unchanged. Does nothing after a commit or a failure. */
TU__SHARED void tu__save_abandon(tu__save *save);

/* Saves bytes in memory beneath a folder. */
TU__SHARED tu_status tu__file_save_in(const char *folder, const char *name, const void *bytes, size_t size);

#endif
