/* The table of system calls that modify files. See disk.h. */
#include "base/disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* open() is variadic and may be a macro; the table needs a function pointer. */
static int open_file(const char *path, int flags, mode_t mode) {
    return open(path, flags, mode);
}

static const tu__disk system_disk = {
    .open = open_file,
    .write = write,
    .fsync = fsync,
    .close = close,
    .rename = rename,
    .unlink = unlink,
    .truncate = truncate,
    .mkdir = mkdir,
};

static const tu__disk *current_disk = &system_disk;

const tu__disk *tu__disk_in_use(void) {
    return current_disk;
}

void tu__disk_replace(const tu__disk *disk) {
    current_disk = disk ? disk : &system_disk;
}
