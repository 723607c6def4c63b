/* Reads gzip-compressed or plain files. See inflate.h. */
#include "data/inflate.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef TU_HAVE_ZLIB
#include <zlib.h>
#endif

#include "base/alloc.h"
#include "base/open_file.h"
#include "base/status.h"

struct tu__inflater {
    char path[PATH_MAX];
#ifdef TU_HAVE_ZLIB
    gzFile file; /* reads plain files unchanged */
#else
    FILE *file;
#endif
};

#ifdef TU_HAVE_ZLIB
enum { BUFFER = 1 << 17 };

static tu_status open_file(tu__inflater *inflater) {
    int fd;
    TU_TRY(tu__open_file(NULL, inflater->path, &fd, NULL));
    inflater->file = gzdopen(fd, "rb");
    if (!inflater->file) {
        close(fd);
        return tu__fail_memory("reading a compressed file", 0);
    }
    gzbuffer(inflater->file, BUFFER);
    return TU_OK;
}

static void close_file(tu__inflater *inflater) {
    if (inflater->file) gzclose(inflater->file);
}

tu_status tu__inflater_read(tu__inflater *inflater, void *bytes, size_t size, size_t *got) {
    *got = 0;
    while (*got < size) {
        unsigned request = size - *got > INT_MAX ? INT_MAX : (unsigned)(size - *got);
        int count = gzread(inflater->file, (char *)bytes + *got, request);
        int problem;
        const char *text = gzerror(inflater->file, &problem);
        if (problem == Z_ERRNO)
            return tu_fail(TU_IO, "cannot read '%s': %s", inflater->path, strerror(errno));
        if (count < 0 || problem == Z_BUF_ERROR)
            return tu_fail(TU_CORRUPT, "'%s' is truncated or damaged: %s", inflater->path,
                           problem == Z_BUF_ERROR ? "the compressed data is truncated" : text);
        if (count == 0) break;
        *got += (size_t)count;
    }
    return TU_OK;
}
#else
static tu_status open_file(tu__inflater *inflater) {
    int fd;
    TU_TRY(tu__open_file(NULL, inflater->path, &fd, NULL));
    inflater->file = fdopen(fd, "rb");
    if (!inflater->file) {
        close(fd);
        return tu__fail_memory("reading a file", 0);
    }
    unsigned char magic[2] = {0};
    size_t count = fread(magic, 1, sizeof magic, inflater->file);
    if (count == 2 && magic[0] == 0x1f && magic[1] == 0x8b)
        return tu_fail(
            TU_UNSUPPORTED,
            "'%s' is compressed, but this build has no zlib: install zlib1g-dev and rebuild, or decompress the file",
            inflater->path);
    rewind(inflater->file);
    return TU_OK;
}

static void close_file(tu__inflater *inflater) {
    if (inflater->file) fclose(inflater->file);
}

tu_status tu__inflater_read(tu__inflater *inflater, void *bytes, size_t size, size_t *got) {
    *got = fread(bytes, 1, size, inflater->file);
    if (*got < size && ferror(inflater->file))
        return tu_fail(TU_IO, "cannot read '%s': %s", inflater->path, strerror(errno));
    return TU_OK;
}
#endif

tu_status tu__inflater_open(const char *path, tu__inflater **inflater) {
    tu__inflater *created = tu__alloc(sizeof *created, "reading a file");
    if (!created) return TU_NO_MEMORY;
    snprintf(created->path, sizeof created->path, "%s", path);
    tu_status status = open_file(created);
    if (status != TU_OK) {
        tu__inflater_close(created);
        return status;
    }
    *inflater = created;
    return TU_OK;
}

void tu__inflater_close(tu__inflater *inflater) {
    if (!inflater) return;
    close_file(inflater);
    tu__free(inflater);
}

static tu_status read_all(tu__inflater *inflater, size_t max_bytes, unsigned char **bytes, size_t *size) {
    size_t capacity = 1 << 16, got;
    *size = 0;
    while (true) {
        unsigned char *grown = tu__realloc(*bytes, capacity, "a file of a data set");
        if (!grown) return TU_NO_MEMORY;
        *bytes = grown;
        TU_TRY(tu__inflater_read(inflater, grown + *size, capacity - *size, &got));
        *size += got;
        if (*size < capacity) return TU_OK;
        if (*size > max_bytes)
            return tu_fail(TU_CORRUPT, "'%s' has more bytes than the %zu expected", inflater->path,
                           max_bytes);
        capacity *= 2;
    }
}

tu_status tu__inflate_file(const char *path, size_t max_bytes, unsigned char **bytes, size_t *size) {
    tu__inflater *inflater;
    *bytes = NULL;
    TU_TRY(tu__inflater_open(path, &inflater));
    tu_status status = read_all(inflater, max_bytes, bytes, size);
    if (status != TU_OK) {
        tu__free(*bytes);
        *bytes = NULL;
    }
    tu__inflater_close(inflater);
    return status;
}
