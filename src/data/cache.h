/* Where fetched and converted sets are kept: $TUTTI_DATA, else $XDG_CACHE_HOME/tutti, else ~/.cache/tutti. */
#ifndef TU__DATA_CACHE_H
#define TU__DATA_CACHE_H

#include <limits.h>

#include <tutti/data.h>

typedef struct tu__path {
    char text[PATH_MAX];
} tu__path;

/* The folder's path; TU_NOT_FOUND when the environment names none. It may not be there yet. */
tu_status tu__cache_folder(tu__path *folder);
/* Makes a folder and those above it, where they are missing. */
tu_status tu__make_folders(const char *path);
/* folder/name; TU_INVALID when that is too long. */
tu_status tu__join_path(const char *folder, const char *name, tu__path *path);
/* Waits until nobody else holds the lock of a folder that is there, FOLDER/.lock, and takes it; `options` are told of
 * the wait. What programs that died in a save left in the folder is removed: no save is under way there now. Closing
 * `*lock` gives it back; it is -1 after a failure. */
tu_status tu__lock_folder(const char *folder, const tu_dataset_options *options, int *lock);
/* Removes the files in a folder whose names begin so: what programs that died in a save left behind. */
void tu__remove_files(const char *folder, const char *prefix);
/* Removes a folder and the files in it, but no folders in it. What is not there is no failure. */
void tu__remove_folder(const char *path);

#endif
