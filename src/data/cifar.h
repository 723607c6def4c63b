/* CIFAR-10's binary form: records of a label byte and 3072 bytes, the planes of red, green and blue. */
#ifndef TU__DATA_CIFAR_H
#define TU__DATA_CIFAR_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

enum { TU__CIFAR_SIDE = 32, TU__CIFAR_PIXELS = 32 * 32, TU__CIFAR_RECORD = 1 + 3 * TU__CIFAR_PIXELS };

/* What is done with each image [32, 32, 3] and its label. */
typedef tu_status (*tu__cifar_sink)(void *context, const uint8_t *image, int32_t label);

/* All records of a file's bytes; TU_CORRUPT, naming `name`, when they are not whole records or a label is above 9. */
tu_status tu__cifar_parse(const char *name, const void *bytes, size_t size, tu__cifar_sink sink,
                          void *context);

#endif
