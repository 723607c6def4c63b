/* Where what the device works out once is kept on disk: compiled kernels (compile.c) and choices (choices.c).
 *
 * $TUTTI_KERNELS, else $XDG_CACHE_HOME/tutti/kernels, else ~/.cache/tutti/kernels. */
#ifndef TU__DEVICE_CUDA_RUNTIME_KEPT_H
#define TU__DEVICE_CUDA_RUNTIME_KEPT_H

#include <stdbool.h>
#include <stddef.h>

/* The path of file `name` there; false when there is no such place, or TUTTI_KERNELS is empty. */
bool cuda_kept_path(const char *name, char *path, size_t capacity);

/* Makes the folders that the path leads through. One that cannot be made shows when the file is written. */
void cuda_kept_make_folders(const char *path);

#endif
