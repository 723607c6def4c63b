/* A confusion matrix as SVG: how confusion.svg of a run folder is drawn. Readable on a light or a dark page. */
#ifndef TU__IO_CHART_MATRIX_H
#define TU__IO_CHART_MATRIX_H

#include <stdint.h>

#include "base/text.h"

typedef struct tu__matrix {
    const char *title, *subtitle;
    const char *row_title, *column_title; /* what rows and columns stand for */
    int64_t size;
    const char *const *labels; /* of rows and columns alike: [size] */
    const int64_t *counts;     /* [size, size], none negative */
} tu__matrix;

/* A square a count that is not zero, shaded by its share of its row; those of the diagonal have a colour of their own.
 * Labels and numbers are written where squares are large enough for them; each square tells them when pointed at. */
tu_status tu__matrix_svg(tu__text *svg, const tu__matrix *matrix);

#endif
