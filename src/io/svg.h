/* Common parts of the SVG drawings: style sheet, escaped text, start and end.
 *
 * Classes of the style sheet: paper, ink and soft set the fill; title, name and last are fonts; c0 to c5 set the
 * current colour, which dot fills with, and line and swatch stroke with; grid and axis stroke in grey. */
#ifndef TU__IO_SVG_H
#define TU__IO_SVG_H

#include <stddef.h>

#include <tutti/status.h>

#include "base/text.h"

enum { TU__SVG_LETTER = 7 }; /* approximate width of a character in pixels */

/* Starts a drawing of this size in pixels. `title` is the accessible title and may be NULL. */
void tu__svg_begin(tu__text *svg, int width, int height, const char *title);
tu_status tu__svg_end(tu__text *svg);

/* Writes text with XML escapes; any bytes are allowed. */
void tu__svg_escaped(tu__text *svg, const char *text);
/* Draws a line of text at (x, y); `anchor` is start, middle or end. Does nothing if the text is NULL or "". */
void tu__svg_text(tu__text *svg, int x, int y, const char *class, const char *anchor, const char *text);
/* Returns the number of characters (not bytes), to estimate the width of a label. */
size_t tu__svg_letters(const char *text);

#endif
