/* TensorBoard's event files.
 *
 * Records are written one by one, each with checksums: a crash loses at most the last. */
#ifndef TU__IO_EVENT_FILE_H
#define TU__IO_EVENT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/graph.h>

typedef struct tu__event_file tu__event_file;

/* Creates a file in `folder`, named events.out.tfevents.SECONDS.HOST.PID.NUMBER as TensorBoard expects. A resumed run
 * creates another file, whose first record makes TensorBoard discard steps from `purge_step` on (-1: none). */
tu_status tu__event_file_new(const char *folder, int64_t purge_step, tu__event_file **file);
tu_status tu__event_file_close(tu__event_file *file);
/* Flushes the records to the disk. */
tu_status tu__event_file_flush(tu__event_file *file);

tu_status tu__event_scalar(tu__event_file *file, int64_t step, const char *tag, double value);
/* Writes an image, given as a PNG file. */
tu_status tu__event_image(tu__event_file *file, int64_t step, const char *tag, int64_t height, int64_t width,
                          int64_t channels, const void *png, size_t size);
/* Writes a histogram of `count` numbers with TensorBoard's exponential buckets. */
tu_status tu__event_histogram(tu__event_file *file, int64_t step, const char *tag, size_t count,
                              const float *numbers);
/* Writes the graph as a GraphDef, for the Graphs tab. */
tu_status tu__event_graph(tu__event_file *file, const tu_graph *graph);

#endif
