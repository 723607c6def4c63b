/* A reader of tar archives (POSIX ustar), as much as sets need: ordinary files with short names.
 *
 * An archive is blocks of 512 bytes: a header for each member, its bytes filled up to whole blocks, and an empty block at
 * the end. Members of other kinds (folders, links, extended headers) are passed over. Only names that the caller
 * expects are written, so an archive cannot reach outside the folder. */
#include "data/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/disk.h"
#include "data/cache.h"
#include "data/inflate.h"
#include "data/progress.h"

enum { BLOCK = 512, PIECE = 128 * BLOCK, MAX_NAMES = 64 };

/* Where the fields of a header stand. */
enum { NAME = 0, NAME_SIZE = 100, SIZE = 124, SIZE_SIZE = 12, CHECKSUM = 148, CHECKSUM_SIZE = 8, KIND = 156 };

static tu_status corrupt(const char *archive, const char *what) {
    return tu_fail(TU_CORRUPT, "'%s' is no good tar archive: %s", archive, what);
}

/* Octal digits, ended by a space or NUL. */
static bool octal(const unsigned char *field, size_t size, uint64_t *value) {
    size_t i = 0;
    *value = 0;
    while (i < size && field[i] == ' ') i++;
    if (i == size || field[i] < '0' || field[i] > '7') return false;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
        *value = *value * 8 + (uint64_t)(field[i] - '0');
    return i == size || field[i] == ' ' || field[i] == '\0';
}

/* The sum of the header's bytes, those of the sum itself counted as spaces. */
static bool checksum_holds(const unsigned char *header) {
    uint64_t claimed, sum = 0;
    if (!octal(header + CHECKSUM, CHECKSUM_SIZE, &claimed)) return false;
    for (int i = 0; i < BLOCK; i++) sum += i >= CHECKSUM && i < CHECKSUM + CHECKSUM_SIZE ? ' ' : header[i];
    return sum == claimed;
}

static bool is_empty(const unsigned char *header) {
    for (int i = 0; i < BLOCK; i++)
        if (header[i]) return false;
    return true;
}

static tu_status write_all(const char *path, int fd, const unsigned char *bytes, size_t size) {
    while (size > 0) {
        ssize_t written = tu__disk_in_use()->write(fd, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return tu_fail(TU_IO, "cannot write '%s': %s", path, strerror(errno));
        bytes += written;
        size -= (size_t)written;
    }
    return TU_OK;
}

/* Copies the member's blocks, or passes over them when there is no file to write (-1). */
static tu_status copy_member(const char *archive, tu__inflater *inflater, uint64_t size, const char *path,
                             int fd) {
    unsigned char piece[PIECE];
    while (size > 0) {
        uint64_t blocks = (size + BLOCK - 1) / BLOCK * BLOCK;
        size_t wanted = blocks < PIECE ? (size_t)blocks : PIECE, got;
        TU_TRY(tu__inflater_read(inflater, piece, wanted, &got));
        if (got < wanted) return corrupt(archive, "it ends in the middle of a file");
        size_t useful = size < wanted ? (size_t)size : wanted;
        if (fd >= 0) TU_TRY(write_all(path, fd, piece, useful));
        size -= useful;
    }
    return TU_OK;
}

static tu_status extract(const char *archive, tu__inflater *inflater, uint64_t size, const char *folder,
                         const char *name) {
    tu__path path;
    TU_TRY(tu__join_path(folder, name, &path));
    int fd = tu__disk_in_use()->open(path.text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return tu_fail(TU_IO, "cannot write '%s': %s", path.text, strerror(errno));
    tu_status status = copy_member(archive, inflater, size, path.text, fd);
    if (tu__disk_in_use()->close(fd) != 0 && status == TU_OK)
        status = tu_fail(TU_IO, "cannot write '%s': %s", path.text, strerror(errno));
    return status;
}

/* The place of the header's last name among `names`; -1 when it is not wanted or no ordinary file. */
static int wanted_name(const unsigned char *header, const char *const *names) {
    char path[NAME_SIZE + 1] = {0};
    if (header[KIND] != '0' && header[KIND] != '\0') return -1;
    memcpy(path, header + NAME, NAME_SIZE);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

static tu_status walk(const char *archive, tu__inflater *inflater, const char *folder,
                      const char *const *names, bool *found, const tu_dataset_options *options) {
    unsigned char header[BLOCK];
    while (true) {
        size_t got;
        uint64_t size;
        TU_TRY(tu__inflater_read(inflater, header, BLOCK, &got));
        if (got == 0 || (got == BLOCK && is_empty(header))) return TU_OK;
        if (got < BLOCK) return corrupt(archive, "it ends in the middle of a header");
        if (!checksum_holds(header) || !octal(header + SIZE, SIZE_SIZE, &size))
            return corrupt(archive, "a header does not agree with its checksum");
        int wanted = wanted_name(header, names);
        if (wanted < 0) {
            TU_TRY(copy_member(archive, inflater, size, "", -1));
            continue;
        }
        tu__tell(options, "unpacking", 0, 0);
        TU_TRY(extract(archive, inflater, size, folder, names[wanted]));
        found[wanted] = true;
    }
}

tu_status tu__tar_extract(const char *archive, const char *folder, const char *const *names,
                          const tu_dataset_options *options) {
    bool found[MAX_NAMES] = {false};
    tu__inflater *inflater;
    TU_TRY(tu__inflater_open(archive, &inflater));
    tu_status status = walk(archive, inflater, folder, names, found, options);
    tu__inflater_close(inflater);
    TU_TRY(status);
    for (int i = 0; names[i]; i++)
        if (!found[i]) return tu_fail(TU_NOT_FOUND, "there is no '%s' in '%s'", names[i], archive);
    return TU_OK;
}
