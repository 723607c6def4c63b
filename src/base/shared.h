/* TU__SHARED exports internal functions of libtutti.so to Tutti's other binaries: libtutti_train.so, and device
 * plug-ins that use the kit (device/kit), such as device/cuda. They are not part of the public interface: the caller must be of the same version. Their symbol
 * version is TUTTI_PRIVATE_x.y.z (libtutti.map.in), so the system's loader rejects a libtutti.so of another version:
 * "version `TUTTI_PRIVATE_0.1.0' not found". */
#ifndef TU__BASE_SHARED_H
#define TU__BASE_SHARED_H

#include <tutti/status.h>

#define TU__SHARED TU_API

#endif
