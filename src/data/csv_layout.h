/* Decides what the columns of a CSV file are: numbers, categories, the target, or left out. */
#ifndef TU__DATA_CSV_LAYOUT_H
#define TU__DATA_CSV_LAYOUT_H

#include "base/text.h"
#include "data/csv.h"

enum { TU__CSV_SAMPLE_ROWS = 10000 };

/* Fills the layout from the options (target, categories, drop) and from the first rows: a column contains numbers if at least
 * nine tenths of its cells that are not missing do. `notice` gets lines for the user. The caller frees layout->fields
 * with tu__free. */
tu_status tu__csv_choose_layout(const tu__csv *csv, const tu_dataset_options *options, tu__csv_layout *layout,
                                tu__text *notice);

/* Calls `use` for every name of a list with commas; a name that has a comma is in double quotes. */
tu_status tu__csv_each_name(const tu__csv *csv, const char *option, const char *list,
                            tu_status (*use)(void *context, size_t field), void *context);

#endif
