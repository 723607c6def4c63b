/* TU__SHARED exports internal functions of libtutti.so to Tutti's other binaries: device plug-ins (device/cuda),
 * libtutti_train.so and the command-line tool. They are not part of the public interface: the caller must be of the
 * same version. Loading a device plug-in of another version fails; libtutti_train.so and the tool are installed
 * together with libtutti.so. */
#ifndef TU__BASE_SHARED_H
#define TU__BASE_SHARED_H

#include <tutti/status.h>

#define TU__SHARED TU_API

#endif
