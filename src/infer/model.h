/* Internal declarations of models. model_new.c makes one, model.c describes it, model_run.c runs it. */
#ifndef TU__INFER_MODEL_H
#define TU__INFER_MODEL_H

#include <pthread.h>

#include <tutti/model.h>

#include "base/arena.h"
#include "infer/model_file.h"

enum { TU__MODEL_MAX_SIZES = 24 }; /* batch sizes up to 2^23 */

/* An input or output. */
typedef struct tu__model_port {
    const char *name;
    tu_type row; /* of one sample */
    size_t row_bytes;
} tu__model_port;

typedef struct tu__model_size {
    int64_t batch;
    tu_graph *graph;
    tu_program *program;
    tu_value inputs[TU__MODEL_MAX_PORTS]; /* values of `graph` */
} tu__model_size;

struct tu_model {
    char device[64];
    size_t size_count, input_count, output_count, label_count, text_count;
    tu__model_size sizes[TU__MODEL_MAX_SIZES]; /* largest first */
    tu__model_port inputs[TU__MODEL_MAX_PORTS], outputs[TU__MODEL_MAX_PORTS];
    tu__arena arena; /* strings */
    const char **labels;
    tu__metadata *texts;
    /* Sessions. A call takes a free one. */
    size_t session_count, free_count;
    tu_session **sessions, **free_sessions; /* the first free_count are free */
    pthread_mutex_t lock;                   /* of the two above */
    pthread_cond_t freed;                   /* a session is free again */
};

/* model_new.c: makes the model of a file that has been checked. */
TU__SHARED tu_status tu__model_from_file(const tu__model_file *file, const tu_model_options *options,
                                         tu_model **model);

#endif
