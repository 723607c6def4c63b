/* TensorBoard's event files: what a run tells over time, in the form TensorBoard reads.
 *
 * Records are appended and flushed one by one, each with its checksums: a crash loses at most the last. */
#ifndef TU__IO_EVENT_FILE_H
#define TU__IO_EVENT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/graph.h>

typedef struct tu__event_file tu__event_file;

/* A new file in `folder`, named events.out.tfevents.SECONDS.HOST.PID.NUMBER as TensorBoard expects; a resumed run
 * gets one more, whose first record tells TensorBoard to forget steps from `purge_step` on (-1: none). */
tu_status tu__event_file_new(const char *folder, int64_t purge_step, tu__event_file **file);
tu_status tu__event_file_close(tu__event_file *file);
/* The records so far, onto the disk. */
tu_status tu__event_file_flush(tu__event_file *file);

tu_status tu__event_scalar(tu__event_file *file, int64_t step, const char *tag, double value);
/* PNG bytes of a picture. */
tu_status tu__event_image(tu__event_file *file, int64_t step, const char *tag, int64_t height, int64_t width,
                          int64_t channels, const void *png, size_t size);
/* Buckets as TensorBoard draws them (exponential limits), counted from `count` numbers. */
tu_status tu__event_histogram(tu__event_file *file, int64_t step, const char *tag, size_t count,
                              const float *numbers);
/* The graph's nodes and edges as a GraphDef: the Graphs tab. */
tu_status tu__event_graph(tu__event_file *file, const tu_graph *graph);

#endif
