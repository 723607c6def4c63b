/* Saving a whole file at once: whoever reads it, and whenever the machine stops, finds the old one or the new one.
 *
 * The bytes go to a new file in the same folder, reach the disk, and take the name in one step; then the folder
 * reaches the disk too. A save that fails leaves the old file as it was and nothing beside it. A symbolic link stays
 * one: the file it leads to is replaced. What is no ordinary file (/dev/stdout, a pipe) is written to in place. */
#ifndef TU__BASE_SAVE_H
#define TU__BASE_SAVE_H

#include <stddef.h>

#include <tutti/status.h>

/* TU_IO, with a message that names the path and the system's reason, when it cannot be done. */
tu_status tu__save_file(const char *path, const void *bytes, size_t size);

/* From now on the `nth` system call of a save (1 is the next) fails as if the disk were full; 0 turns this off. For
 * tests. */
void tu__save_fail_at(unsigned nth);

#endif
