/* The cache folder of downloaded and converted data sets: $TUTTI_DATA, else $XDG_CACHE_HOME/tutti, else
 * ~/.cache/tutti. */
#ifndef TU__DATA_CACHE_H
#define TU__DATA_CACHE_H

#include <tutti/data.h>

#include "base/path.h"

/* Returns the path of the folder, which may not exist yet. Fails with TU_NOT_FOUND if none of the environment
 * variables is set. */
tu_status tu__cache_folder(tu__path *folder);
/* Creates a folder and its missing parents. */
tu_status tu__make_folders(const char *path);
/* Joins folder/name. Fails with TU_INVALID if the result is too long. */
tu_status tu__join_path(const char *folder, const char *name, tu__path *path);
/* Waits for the lock FOLDER/.lock and takes it; reports the wait through `options`. Removes temporary files of killed
 * processes from the folder, since no save can be running there now. Close `*lock` to release it; it is -1 after a
 * failure. */
tu_status tu__lock_folder(const char *folder, const tu_dataset_options *options, int *lock);

#endif
