/* The binary format of CIFAR-10: records of a label byte and 3072 bytes, the planes of red, green and blue. */
#ifndef TU__DATA_CIFAR_H
#define TU__DATA_CIFAR_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

enum { TU__CIFAR_SIDE = 32, TU__CIFAR_PIXELS = 32 * 32, TU__CIFAR_RECORD_BYTES = 1 + 3 * TU__CIFAR_PIXELS };

/* Callback for each image (32x32x3 bytes, HWC) and its label. */
typedef tu_status (*tu__cifar_callback)(void *context, const uint8_t *image, int32_t label);

/* Parses all records and calls `callback` for each. Fails with TU_CORRUPT (the message contains `name`) if `size` is
 * not a multiple of the record size or a label is above 9. */
tu_status tu__cifar_parse(const char *name, const void *bytes, size_t size, tu__cifar_callback callback,
                          void *context);

#endif
