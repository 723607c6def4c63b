/* Reads tar archives (POSIX ustar) as far as data sets need it: regular files with short names.
 *
 * An archive consists of 512-byte blocks: a header per member, its contents padded to whole blocks, and an empty
 * block at the end. Other members (folders, links, extended headers) are skipped. Only names that the caller expects
 * are written, so an archive cannot write outside the folder. */
#include "data/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/disk.h"
#include "base/open_file.h"
#include "data/cache.h"
#include "data/inflate.h"
#include "data/progress.h"

enum { BLOCK = 512, CHUNK_BYTES = 128 * BLOCK, MAX_NAMES = 64 };

/* Bounds of an archive, several times what data sets have: a few compressed bytes can stand for any number. */
#define MAX_MEMBER_BYTES (1LL << 28)
#define MAX_ARCHIVE_BYTES (1LL << 31)

/* Offsets and sizes of header fields. */
enum { NAME = 0, NAME_SIZE = 100, SIZE = 124, SIZE_SIZE = 12, CHECKSUM = 148, CHECKSUM_SIZE = 8, KIND = 156 };

static tu_status corrupt(const char *archive, const char *what) {
    return tu_fail(TU_CORRUPT, "'%s' is not a valid tar archive: %s", archive, what);
}

/* Parses octal digits, ended by a space or NUL. */
static bool parse_octal(const unsigned char *field, size_t size, uint64_t *value) {
    size_t i = 0;
    *value = 0;
    while (i < size && field[i] == ' ') i++;
    if (i == size || field[i] < '0' || field[i] > '7') return false;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
        *value = *value * 8 + (uint64_t)(field[i] - '0');
    return i == size || field[i] == ' ' || field[i] == '\0';
}

/* True if the checksum is correct: the sum of the header's bytes, with those of the checksum counted as spaces. */
static bool is_checksum_valid(const unsigned char *header) {
    uint64_t expected, sum = 0;
    if (!parse_octal(header + CHECKSUM, CHECKSUM_SIZE, &expected)) return false;
    for (int i = 0; i < BLOCK; i++) sum += i >= CHECKSUM && i < CHECKSUM + CHECKSUM_SIZE ? ' ' : header[i];
    return sum == expected;
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

/* Copies a member's blocks to `fd`, or skips them if it is -1. */
static tu_status copy_member(const char *archive, tu__inflater *inflater, uint64_t size, const char *path,
                             int fd) {
    unsigned char chunk[CHUNK_BYTES];
    while (size > 0) {
        uint64_t blocks = (size + BLOCK - 1) / BLOCK * BLOCK;
        size_t request = blocks < CHUNK_BYTES ? (size_t)blocks : CHUNK_BYTES, got;
        TU_TRY(tu__inflater_read(inflater, chunk, request, &got));
        if (got < request) return corrupt(archive, "it ends inside a file");
        size_t payload = size < request ? (size_t)size : request;
        if (fd >= 0) TU_TRY(write_all(path, fd, chunk, payload));
        size -= payload;
    }
    return TU_OK;
}

static tu_status extract(const char *archive, tu__inflater *inflater, uint64_t size, const char *folder,
                         const char *name) {
    tu__path path;
    TU_TRY(tu__join_path(folder, name, &path));
    if (size > MAX_MEMBER_BYTES)
        return tu_fail(TU_CORRUPT, "'%s' in '%s' has %llu bytes: expected at most %lld", name, archive,
                       (unsigned long long)size, MAX_MEMBER_BYTES);
    int fd = tu__open_to_write(folder, name, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) return tu_fail(TU_IO, "cannot write '%s': %s", path.text, tu__file_reason(errno));
    tu_status status = copy_member(archive, inflater, size, path.text, fd);
    if (tu__disk_in_use()->close(fd) != 0 && status == TU_OK)
        status = tu_fail(TU_IO, "cannot write '%s': %s", path.text, strerror(errno));
    return status;
}

/* Returns the index of the member's last path component in `names`; -1 if it is not in the list or not a regular
 * file. */
static int find_name(const unsigned char *header, const char *const *names) {
    char path[NAME_SIZE + 1] = {0};
    if (header[KIND] != '0' && header[KIND] != '\0') return -1;
    memcpy(path, header + NAME, NAME_SIZE);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

static tu_status extract_members(const char *archive, tu__inflater *inflater, const char *folder,
                                 const char *const *names, bool *found, const tu_dataset_options *options) {
    unsigned char header[BLOCK];
    uint64_t total = 0;
    while (true) {
        size_t got;
        uint64_t size;
        TU_TRY(tu__inflater_read(inflater, header, BLOCK, &got));
        if (got == 0 || (got == BLOCK && is_empty(header))) return TU_OK;
        if (got < BLOCK) return corrupt(archive, "it ends inside a header");
        if (!is_checksum_valid(header) || !parse_octal(header + SIZE, SIZE_SIZE, &size))
            return corrupt(archive, "a header has a wrong checksum");
        if (__builtin_add_overflow(total, BLOCK + size, &total) || total > MAX_ARCHIVE_BYTES)
            return corrupt(archive, "it contains more than 2 GiB");
        int index = find_name(header, names);
        if (index < 0) {
            TU_TRY(copy_member(archive, inflater, size, "", -1));
            continue;
        }
        tu__report_progress(options, "unpacking", 0, 0);
        TU_TRY(extract(archive, inflater, size, folder, names[index]));
        found[index] = true;
    }
}

tu_status tu__tar_extract(const char *archive, const char *folder, const char *const *names,
                          const tu_dataset_options *options) {
    bool found[MAX_NAMES] = {false};
    tu__inflater *inflater;
    TU_TRY(tu__inflater_open(archive, &inflater));
    tu_status status = extract_members(archive, inflater, folder, names, found, options);
    tu__inflater_close(inflater);
    TU_TRY(status);
    for (int i = 0; names[i]; i++)
        if (!found[i]) return tu_fail(TU_NOT_FOUND, "'%s' is not in '%s'", names[i], archive);
    return TU_OK;
}
