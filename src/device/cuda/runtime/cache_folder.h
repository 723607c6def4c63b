/* The cache folder: compiled kernels (compile.c) and tuning results (tuning_cache.c) that later runs reuse.
 *
 * $TUTTI_KERNELS, else $XDG_CACHE_HOME/tutti/kernels, else ~/.cache/tutti/kernels.
 */
#ifndef TU__DEVICE_CUDA_RUNTIME_CACHE_FOLDER_H
#define TU__DEVICE_CUDA_RUNTIME_CACHE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

/* Writes the path of file `name` in the cache folder. Returns false if there is no cache folder (TUTTI_KERNELS is
 * empty, or no home directory is known) or the path is too long. */
bool cuda_cache_path(const char *name, char *path, size_t capacity);

/* Reads a file of the cache. Returns false, with an empty text, if there is none, or if it is not the user's own (or root's) or
 * everybody may write to it: kernels are code. */
bool cuda_cache_read(const char *name, tu__text *text);

/* Creates the parent folders of a path, private to the user. Errors are ignored: writing the file then fails. */
void cuda_create_parent_folders(const char *path);

#endif
