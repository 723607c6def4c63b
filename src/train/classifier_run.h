/* Runs a frozen graph that classifies images, batch by batch, and times it: for comparing a network with a changed form
 * of it. */
#ifndef TU__TRAIN_CLASSIFIER_RUN_H
#define TU__TRAIN_CLASSIFIER_RUN_H

#include <tutti/data.h>
#include <tutti/run.h>

/* A graph with the input "images" and the output "logits", compiled for a batch size. */
typedef struct tu__classifier {
    tu_program *program;
    tu_state *state;
    tu_graph *graph;
    tu_value images;
    int64_t batch, classes;
    float *logits; /* [batch, classes], of the latest batch */
    int64_t runs;
    double seconds; /* of all runs except the first, which also prepares memory */
} tu__classifier;

/* Call tu__classifier_close even after a failure. */
tu_status tu__classifier_open(const tu_graph *frozen, int64_t batch, int threads, tu__classifier *classifier);
void tu__classifier_close(tu__classifier *classifier);
tu_status tu__classifier_run(tu__classifier *classifier, const void *images);
/* Returns the class of a sample of the latest batch: that of the largest logit. */
int64_t tu__classifier_class(const tu__classifier *classifier, int64_t sample);
/* Returns samples per second; 0 before the second run. */
double tu__classifier_speed(const tu__classifier *classifier);

/* Batches of images of a split, in the order of the data set, evenly spread if there are fewer than in the split. */
typedef struct tu__image_batches {
    const tu_dataset *set;
    tu_split split;
    int64_t count, total; /* images to read; images of the split */
    int64_t batch;
    size_t image_bytes;
    unsigned char *images; /* [batch, ...] */
    int32_t *labels;       /* [batch] */
} tu__image_batches;

tu_status tu__image_batches_open(const tu_dataset *set, tu_split split, int64_t count, int64_t batch,
                                 tu__image_batches *batches);
void tu__image_batches_close(tu__image_batches *batches);
/* Reads the batch that begins with image `first`. Returns the number of its images in *count; the others repeat the
 * last. */
tu_status tu__image_batches_read(tu__image_batches *batches, int64_t first, int64_t *count);

#endif
