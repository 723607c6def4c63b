/* Verifies that the images of a data file are those of its digest, once for every version of the file.
 *
 * A run records the digest of its data set, so a file with a flipped byte must not be trained on. Hashing a large file takes
 * seconds, so the result is stored in the cache, with what changes if the file does: its inode, size, and times of
 * modification and of change. The system sets the latter, which a program cannot set back. */
#ifndef TU__DATA_VERIFIED_H
#define TU__DATA_VERIFIED_H

#include <sys/stat.h>

#include <tutti/data.h>

/* Fails with TU_CORRUPT if the images or labels do not match the data set's digest. `info`: of its open file. */
tu_status tu__verify_data_file(const char *path, const struct stat *info, const tu_dataset *dataset);

#endif
