/* Philox4x32-10: 128 random bits from a counter and a key.
 *
 * A counter-based generator has no state to carry: the bits of draw number c under key k are a function of
 * (c, k), so any device can compute any draw by itself, in any order, and get the same numbers. That is what
 * lets randomness belong to the sample and not to the device.
 */
#ifndef TU__BASE_PHILOX_H
#define TU__BASE_PHILOX_H

#include <stdint.h>

#include "base/shared.h"

TU__SHARED void tu__philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
