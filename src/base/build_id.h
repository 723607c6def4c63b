/* The fingerprint of a library or program, by which processes find out whether they run the same build. */
#ifndef TU__BASE_BUILD_ID_H
#define TU__BASE_BUILD_ID_H

#include "base/shared.h"

enum { TU__BUILD_ID_TEXT = 65 };

/* Writes the build ID of the library or program that contains `address`, in hexadecimal: the linker computes it from all
 * code and data. Writes "" if the linker has added none. */
TU__SHARED void tu__build_id(const void *address, char text[TU__BUILD_ID_TEXT]);

#endif
