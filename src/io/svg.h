/* What all our pictures have in common: the style sheet, text that any page can hold, a beginning and an end.
 *
 * Classes of the sheet: paper, ink and soft fill; title, name and last are fonts; c0 to c5 set the current colour, which
 * dot fills with, and line and swatch draw with; grid and axis draw in grey. */
#ifndef TU__IO_SVG_H
#define TU__IO_SVG_H

#include <stddef.h>

#include <tutti/status.h>

#include "base/text.h"

enum { TU__SVG_LETTER = 7 }; /* pixels: about the width of one */

/* A sheet of so many pixels; `title` is for those who cannot see the picture, and may be NULL. */
void tu__svg_begin(tu__text *svg, int width, int height, const char *title);
tu_status tu__svg_end(tu__text *svg);

/* Text between tags, of any bytes. */
void tu__svg_escaped(tu__text *svg, const char *text);
/* A line of text at (x, y); `anchor` is start, middle or end. NULL and "" put nothing. */
void tu__svg_text(tu__text *svg, int x, int y, const char *class, const char *anchor, const char *text);
/* Characters, not bytes: what the width of a label depends on. */
size_t tu__svg_letters(const char *text);

#endif
