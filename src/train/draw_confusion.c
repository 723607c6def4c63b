/* tu_evaluation_draw and tu_evaluation_draw_in: draw the confusion matrix of an evaluation as SVG. */
#include <inttypes.h>
#include <stdio.h>

#include <tutti/train.h>

#include "base/save.h"
#include "io/chart_matrix.h"

tu_status tu_evaluation_draw_in(const tu_evaluation *e, const char *folder, const char *name) {
    char title[256], subtitle[256];
    snprintf(title, sizeof title, "%.100s: accuracy %.2f%% after step %" PRId64, e->set, 100 * e->accuracy,
             e->step);
    snprintf(subtitle, sizeof subtitle, "%" PRId64 " test images; colours show the fraction of the row",
             e->images);
    const tu__matrix matrix = {.title = title,
                               .subtitle = subtitle,
                               .row_title = "true class",
                               .column_title = "predicted class",
                               .size = e->classes,
                               .labels = e->class_names,
                               .counts = e->confusion};
    tu__text svg = {0};
    tu_status status = tu__matrix_svg(&svg, &matrix);
    if (status == TU_OK) status = tu__file_save_in(folder, name, tu__text_string(&svg), svg.length);
    tu__text_free(&svg);
    return status;
}

tu_status tu_evaluation_draw(const tu_evaluation *e, const char *path) {
    return tu_evaluation_draw_in(e, NULL, path);
}
