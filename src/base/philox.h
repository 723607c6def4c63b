/* Philox4x32-10: 128 random bits from a counter and a key.
 *
 * A counter-based generator has no state: the bits are a function of counter and key. Any device can compute any of
 * them in any order, so a sample's random numbers do not depend on the device.
 */
#ifndef TU__BASE_PHILOX_H
#define TU__BASE_PHILOX_H

#include <stdint.h>

#include "base/shared.h"

TU__SHARED void tu__philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
