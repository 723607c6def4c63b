/* Downloads a file and verifies its digest. */
#ifndef TU__DATA_FETCH_H
#define TU__DATA_FETCH_H

#include <tutti/data.h>

/* Downloads `url` to `part`, continuing an earlier partial download, and renames it to `path` if its SHA-256 is
 * `sha256`. Otherwise removes `part` and returns TU_CORRUPT. Returns TU_IO on network errors and keeps `part` for the
 * next attempt. Returns TU_UNSUPPORTED in a build without libcurl. */
tu_status tu__fetch(const char *url, const char *sha256, const char *part, const char *path,
                    const tu_dataset_options *options);

#endif
