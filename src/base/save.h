/* Saving a whole file at once: whoever reads it, and whenever the machine stops, finds the old one or the new one.
 *
 * The bytes go to a new file in the same folder, reach the disk, and take the name in one step; then the folder
 * reaches the disk too. A save that fails leaves the old file as it was and nothing beside it. A symbolic link stays
 * one: the file it leads to is replaced. What is no ordinary file (/dev/stdout, a pipe) is written to in place.
 *
 * Bytes that are in memory are saved by one call; a large file is saved in pieces:
 *
 *     tu__save save;
 *     TU_TRY(tu__save_begin(&save, path));
 *     for (…) tu__save_append(&save, piece, size);     // the first failure sticks
 *     return tu__save_commit(&save);                   // and is reported here
 *
 * All of it goes through base/disk.h, so that tests can fail any step and cut the power after any other. */
#ifndef TU__BASE_SAVE_H
#define TU__BASE_SAVE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include <tutti/command.h>

#include "base/shared.h"

/* What the name of a file begins with while it is being saved. A process that is killed leaves it behind; whoever knows
 * that no save is under way in a folder may remove such files. */
#define TU__SAVE_UNFINISHED ".tutti-"

/* A save under way. No memory is behind it but the structure itself. */
typedef struct tu__save {
    char path[PATH_MAX];   /* as given, for messages */
    char target[PATH_MAX]; /* the same with links resolved: what the new file will be called */
    char beside[PATH_MAX]; /* what it is called until then; "" when the target is written in place */
    int fd;                /* -1 once the save has ended, well or not */
    int reason;            /* errno of the first failure; 0 while there was none */
} tu__save;

TU__SHARED tu_status tu__save_begin(tu__save *save, const char *path);
/* A failure ends the save as tu__save_abandon does; further appends and the commit report it again. */
TU__SHARED tu_status tu__save_append(tu__save *save, const void *bytes, size_t size);
/* TU_OK: the new file is there, and stays if the power fails now. */
TU__SHARED tu_status tu__save_commit(tu__save *save);
/* Gives up: the old file stays as it was. Does nothing after a commit or a failure. */
TU__SHARED void tu__save_abandon(tu__save *save);

#endif
