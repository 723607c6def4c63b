/* TU__SHARED marks internal functions of libtutti.so that other libraries of Tutti call: devices in libraries of their
 * own (device/cuda), libtutti_train.so, and the command. They are visible, but no promise: the caller works with the
 * very version it was built with. A device of another version is refused with a message; libtutti_train.so and the
 * command are installed together with libtutti.so. */
#ifndef TU__BASE_SHARED_H
#define TU__BASE_SHARED_H

#include <tutti/status.h>

#define TU__SHARED TU_API

#endif
