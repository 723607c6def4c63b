/* TU__SHARED marks internal functions that the devices in libraries of their own (device/cuda) call. They are visible
 * in libtutti.so, but no promise: such a device works with the very version it was built with, and says so. */
#ifndef TU__BASE_SHARED_H
#define TU__BASE_SHARED_H

#include <tutti/status.h>

#define TU__SHARED TU_API

#endif
