/* Fetching a file over the network, with its digest checked. */
#ifndef TU__DATA_FETCH_H
#define TU__DATA_FETCH_H

#include <tutti/data.h>

/* Fetches `url` into `part`, going on where an earlier attempt stopped, and renames that to `path` once its SHA-256 is
 * `sha256`. TU_CORRUPT, with `part` removed, when it is not; TU_IO when the network fails: `part` stays for the next
 * attempt. TU_UNSUPPORTED in a build without libcurl. */
tu_status tu__fetch(const char *url, const char *sha256, const char *part, const char *path,
                    const tu_dataset_options *options);

#endif
