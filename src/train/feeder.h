/* The feeder: connects the columns of a data set with the inputs of a graph.
 *
 * A step, a call of many steps and an evaluation feed their programs from the same three sources: rows of tables that
 * hold a whole split, a batch of a loader, or arrays of the caller. The inputs of the graph are named like the columns;
 * a column that the graph does not use is not fed. Nothing here depends on what a column means. */
#ifndef TU__TRAIN_FEEDER_H
#define TU__TRAIN_FEEDER_H

#include <tutti/run.h>

#include "data/dataset.h"

/* The inputs of a graph; invalid if the graph has none of this name. */
typedef struct tu__inputs {
    tu_value column[TU_MAX_COLUMNS];
    tu_value ordinals; /* "sample_ordinal": global ordinals of the samples, for random numbers */
    tu_value share;    /* "share": fraction of the batch in a micro-batch, with gradient accumulation */
    tu_value counted;  /* "counted": 1, or 0 for samples that only fill a batch, in evaluations */
} tu__inputs;

enum { TU__MAX_FEEDS = TU_MAX_COLUMNS + 3 };

/* Returns an input by its name; an invalid value, without an error, if there is none. */
tu_value tu__find_input(tu_graph *graph, const char *name);
tu__inputs tu__find_inputs(tu_graph *graph, const tu__columns *columns);
/* Returns the number of samples of a batch, from any input that is a column; 0 if the graph has none. */
int64_t tu__inputs_samples(const tu__inputs *inputs);

/* All samples of a split as tables, from which steps take rows by index. */
typedef struct tu__feeder {
    const tu__columns *columns;
    bool has_tables;
    tu_table *table[TU_MAX_COLUMNS];
} tu__feeder;

/* Creates a table per column from `rows` samples at data[i], which must outlive the feeder. Call tu__feeder_close even
 * after a failure. */
tu_status tu__feeder_make_tables(const tu__columns *columns, const void *const *data, int64_t rows,
                                 tu__feeder *feeder);
void tu__feeder_close(tu__feeder *feeder);

/* What one call feeds. With tables `rows` are the indices of the samples; without, columns[i] are their elements. */
typedef struct tu__feed_source {
    const int64_t *rows;
    const void *const *columns;
    const int64_t *ordinals;
    const float *share, *counted;
} tu__feed_source;

/* Describes the samples of a batch from number `first` on. `columns` holds the addresses. */
tu__feed_source tu__feeds_of_batch(const tu__feeder *feeder, const tu_batch *batch, int64_t first,
                                   const float *share, const void *columns[TU_MAX_COLUMNS]);
/* Fills the feeds of a graph with these inputs. Returns their number. */
size_t tu__make_feeds(const tu__feeder *feeder, const tu__inputs *inputs, const tu__feed_source *source,
                      tu_feed_many feeds[TU__MAX_FEEDS]);
/* The same for tu_run, without tables. */
size_t tu__make_single_feeds(const tu__inputs *inputs, const tu__feed_source *source,
                             tu_feed feeds[TU__MAX_FEEDS]);

#endif
