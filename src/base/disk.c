/* The table of system calls that modify files. See disk.h. */
#include "base/disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* openat() is variadic and may be a macro; the table needs a function pointer. */
static int open_file(int folder, const char *name, int flags, mode_t mode) {
    return openat(folder, name, flags, mode);
}

static int rename_file(int folder, const char *from, const char *to) {
    return renameat(folder, from, folder, to);
}

static int unlink_file(int folder, const char *name) {
    return unlinkat(folder, name, 0);
}

static int remove_folder(int folder, const char *name) {
    return unlinkat(folder, name, AT_REMOVEDIR);
}

static const tu__disk system_disk = {
    .open = open_file,
    .write = write,
    .fsync = fsync,
    .close = close,
    .rename = rename_file,
    .unlink = unlink_file,
    .truncate = ftruncate,
    .mkdir = mkdirat,
    .rmdir = remove_folder,
    .pwrite = pwrite,
};

static const tu__disk *current_disk = &system_disk;

const tu__disk *tu__disk_in_use(void) {
    return current_disk;
}

void tu__disk_replace(const tu__disk *disk) {
    current_disk = disk ? disk : &system_disk;
}
