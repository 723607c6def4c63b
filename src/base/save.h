/* Atomic saves: a reader, also after a crash or power loss, finds either the old or the new file, never a mixture.
 *
 * The bytes are written to a temporary file in the same folder and flushed, the file is renamed, and the folder is
 * flushed. A failed save leaves the old file unchanged and removes the temporary file. If the path is a symbolic
 * link, the file it points to is replaced. Anything but a regular file (/dev/stdout, a pipe) is written in place.
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

#include <tutti/command.h>

#include "base/shared.h"

/* Prefix of the temporary file's name. A process that is killed leaves the file behind; it may be removed if no save
 * is in progress in the folder. */
#define TU__SAVE_UNFINISHED ".tutti-"

/* A save in progress. It owns no heap memory. */
typedef struct tu__save {
    char path[PATH_MAX];      /* as given, for messages */
    char target[PATH_MAX];    /* the path with links resolved: the new file's name */
    char temp_path[PATH_MAX]; /* the temporary file; "" if the target is written in place */
    int fd;                   /* -1 once the save has ended */
    int reason;               /* errno of the first failure; 0: none */
} tu__save;

TU__SHARED tu_status tu__save_begin(tu__save *save, const char *path);
/* A failure ends the save like tu__save_abandon; further appends and the commit report it again. */
TU__SHARED tu_status tu__save_append(tu__save *save, const void *bytes, size_t size);
/* Replaces the target. After TU_OK the new file survives power loss. */
TU__SHARED tu_status tu__save_commit(tu__save *save);
/* Cancels the save and leaves the old file unchanged. Does nothing after a commit or a failure. */
TU__SHARED void tu__save_abandon(tu__save *save);

#endif
