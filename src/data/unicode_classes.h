/* Which code points are letters, numbers and spaces, as in the patterns \p{L}, \p{N} and \s. A code point is in at most one
 * of these classes. */
#ifndef TU__DATA_UNICODE_CLASSES_H
#define TU__DATA_UNICODE_CLASSES_H

#include <stdbool.h>
#include <stdint.h>

bool tu__is_letter(uint32_t c);
bool tu__is_number(uint32_t c);
bool tu__is_space(uint32_t c);

#endif
