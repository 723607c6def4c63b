/* Taking files out of a tar archive, compressed or not: how CIFAR-10 and packages of npm arrive. */
#ifndef TU__DATA_TAR_H
#define TU__DATA_TAR_H

#include <tutti/data.h>

/* Writes the archive's files whose last name is among `names` (ended by NULL) into `folder`, and nothing else anywhere,
 * whatever paths the archive tells. TU_CORRUPT when it is broken, TU_NOT_FOUND when a name is not in it. */
tu_status tu__tar_extract(const char *archive, const char *folder, const char *const *names,
                          const tu_dataset_options *options);

#endif
