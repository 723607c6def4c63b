/* tu_evaluation_draw: the confusion matrix of an evaluation as a picture. */
#include <inttypes.h>
#include <stdio.h>

#include <tutti/train.h>

#include "base/save.h"
#include "io/chart_matrix.h"

tu_status tu_evaluation_draw(const tu_evaluation *e, const char *path) {
    char title[256], subtitle[256];
    snprintf(title, sizeof title, "%.100s: %.2f%% right after step %" PRId64, e->set, 100 * e->accuracy,
             e->step);
    snprintf(subtitle, sizeof subtitle, "%" PRId64 " test images; shades are shares of a row", e->images);
    const tu__matrix matrix = {.title = title,
                               .subtitle = subtitle,
                               .row_title = "what a picture shows",
                               .column_title = "what it was taken for",
                               .size = e->classes,
                               .labels = e->class_names,
                               .counts = e->confusion};
    tu__text svg = {0};
    tu_status status = tu__matrix_svg(&svg, &matrix);
    if (status == TU_OK) status = tu_file_save(path, tu__text_string(&svg), svg.length);
    tu__text_free(&svg);
    return status;
}
