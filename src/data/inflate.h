/* Files that may be compressed by gzip, read as if they were not: told by their first bytes, not by their names. */
#ifndef TU__DATA_INFLATE_H
#define TU__DATA_INFLATE_H

#include <stddef.h>

#include <tutti/status.h>

typedef struct tu__inflater tu__inflater;

/* TU_NOT_FOUND when there is no such file. */
tu_status tu__inflater_open(const char *path, tu__inflater **inflater);
/* Up to `size` bytes; fewer at the end alone. TU_CORRUPT, naming the path, when the compressed data ends too early. */
tu_status tu__inflater_read(tu__inflater *inflater, void *bytes, size_t size, size_t *got);
void tu__inflater_close(tu__inflater *inflater);

/* The whole file, if it has at most `most` bytes; freed with tu__free. */
tu_status tu__inflate_file(const char *path, size_t most, unsigned char **bytes, size_t *size);

#endif
