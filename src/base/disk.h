/* The system calls that change files, in one place, so that tests can stand between the engine and the disk: fail the
 * Nth call, or keep a record of what a power cut would have left. Everything that must survive a crash (base/save.h,
 * run folders, data files) writes through these. */
#ifndef TU__BASE_DISK_H
#define TU__BASE_DISK_H

#include <stddef.h>
#include <sys/types.h>

#include "base/shared.h"

/* As the system calls of these names: -1 and errno. */
typedef struct tu__disk {
    int (*open)(const char *path, int flags, mode_t mode);
    ssize_t (*write)(int fd, const void *bytes, size_t size);
    int (*fsync)(int fd);
    int (*close)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
    int (*truncate)(const char *path, off_t size);
    int (*mkdir)(const char *path, mode_t mode);
} tu__disk;

/* The table in use: the system's, unless a test replaced it. */
TU__SHARED const tu__disk *tu__disk_in_use(void);
/* Replaces the table; NULL puts the system's back. Not for several threads at once. For tests, which link the static
 * archive: the shared library does not export it. */
void tu__disk_replace(const tu__disk *disk);

#endif
