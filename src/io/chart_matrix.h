/* Confusion matrices as SVG, readable on light and dark pages: confusion.svg of a run folder. */
#ifndef TU__IO_CHART_MATRIX_H
#define TU__IO_CHART_MATRIX_H

#include <stdint.h>

#include "base/text.h"

typedef struct tu__matrix {
    const char *title, *subtitle;
    const char *row_title, *column_title; /* titles of the rows and columns */
    int64_t size;
    const char *const *labels; /* [size]: of rows and columns */
    const int64_t *counts;     /* [size, size], not negative */
} tu__matrix;

/* Draws one square per non-zero count, shaded by its fraction of the row; those on the diagonal have another colour.
 * Labels and numbers are drawn if the squares are large enough; each square has them as a tooltip. */
tu_status tu__matrix_svg(tu__text *svg, const tu__matrix *matrix);

#endif
