/* Reads files that may be gzip-compressed. Compression is detected by the first bytes, not by the name. */
#ifndef TU__DATA_INFLATE_H
#define TU__DATA_INFLATE_H

#include <stddef.h>

#include <tutti/status.h>

typedef struct tu__inflater tu__inflater;

/* Returns TU_NOT_FOUND if the file does not exist. */
tu_status tu__inflater_open(const char *path, tu__inflater **inflater);
/* Reads up to `size` bytes; fewer only at the end. Fails with TU_CORRUPT (the message contains the path) if the
 * compressed data is truncated. */
tu_status tu__inflater_read(tu__inflater *inflater, void *bytes, size_t size, size_t *got);
void tu__inflater_close(tu__inflater *inflater);

/* Reads the whole file. Fails if it has more than `max_bytes` bytes. The caller frees `*bytes` with tu__free. */
tu_status tu__inflate_file(const char *path, size_t max_bytes, unsigned char **bytes, size_t *size);

#endif
