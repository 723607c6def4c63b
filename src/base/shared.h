/* TU__SHARED marks internal functions of libtutti.so that other libraries of Tutti call: devices in libraries of their
 * own (device/cuda), libtutti_train.so, and the command. They are visible, but no promise: the caller works with the
 * very version it was built with. The linker gives them the symbol version TUTTI_PRIVATE_x.y.z (libtutti.map.in), so the
 * system's loader rejects a libtutti.so of another version: "version `TUTTI_PRIVATE_0.1.0' not found". */
#ifndef TU__BASE_SHARED_H
#define TU__BASE_SHARED_H

#include <tutti/status.h>

#define TU__SHARED TU_API

#endif
