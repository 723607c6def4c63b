/* The system calls that modify files, as a table that tests can replace, e.g. to make the Nth call fail or to
 * simulate power loss. All code that must survive a crash (base/save.h, run folders, data files) writes through this
 * table. */
#ifndef TU__BASE_DISK_H
#define TU__BASE_DISK_H

#include <stddef.h>
#include <sys/types.h>

#include "base/shared.h"

/* Each member behaves like the system call of the same name, those with a folder like the one that ends in "at": `folder`
 * is a descriptor, or AT_FDCWD. It returns -1 and sets errno on failure. */
typedef struct tu__disk {
    int (*open)(int folder, const char *name, int flags, mode_t mode);
    ssize_t (*write)(int fd, const void *bytes, size_t size);
    int (*fsync)(int fd);
    int (*close)(int fd);
    int (*rename)(int folder, const char *from, const char *to); /* both in `folder` */
    int (*unlink)(int folder, const char *name);
    int (*truncate)(int fd, off_t size);
    int (*mkdir)(int folder, const char *name, mode_t mode);
    int (*rmdir)(int folder, const char *name);
    ssize_t (*pwrite)(int fd, const void *bytes, size_t size, off_t offset);
} tu__disk;

/* Returns the current table: the system calls, unless a test replaced them. */
TU__SHARED const tu__disk *tu__disk_in_use(void);
/* Replaces the table; NULL puts the system's back. Must not be called while another thread uses the table. For
 * tests, which link the static archive: the shared library does not export it. */
void tu__disk_replace(const tu__disk *disk);

#endif
