/* CRC-32C (Castagnoli): the checksum of TensorBoard's event files. */
#ifndef TU__IO_CRC32C_H
#define TU__IO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t tu__crc32c(const void *bytes, size_t size);

#endif
