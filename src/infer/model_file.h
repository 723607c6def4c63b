/* Model files: a trained network in one file, as docs/model-file.md describes (decision 43).
 *
 * A model file is a safetensors file. It contains the graph for one sample, the variables that the graph reads, golden
 * samples with the outputs that `ref` computes, and texts about the model. The reader maps the file and checks all of
 * it; what it returns points into the mapping, and numbers there are aligned for their type. Memory besides the mapping
 * is proportional to the header and the graph. */
#ifndef TU__INFER_MODEL_FILE_H
#define TU__INFER_MODEL_FILE_H

#include <tutti/graph.h>

#include "base/shared.h"
#include "io/safetensors.h"

enum {
    TU__MODEL_VERSION = 1,
    TU__MODEL_MAX_GOLDEN = 1024, /* golden samples */
    TU__MODEL_MAX_PORTS = 64,    /* inputs, and outputs */
};

/* How far an output of a device may be from the golden output: in absolute numbers, or as a fraction of the largest
 * absolute value in the output of the same sample. */
typedef struct tu__model_bound {
    const char *output;    /* name */
    const char *precision; /* "f32", "tf32", "bf16", "f16" */
    double limit;
    bool relative;
} tu__model_bound;

/* Golden tensors are named like the input or output; their shape is that in the graph with `golden_count` as the first
 * dimension. */
typedef struct tu__model_file {
    tu_graph *
        graph; /* for a batch of one sample; has no assignments. Set to NULL to keep it after the file is closed */
    size_t variable_count, input_count, output_count, label_count, metadata_count, bound_count;
    const tu__named_tensor *variables;      /* in the order of the graph's variables, under their names */
    const tu__named_tensor *golden_inputs;  /* in the order of the graph's inputs */
    const tu__named_tensor *golden_outputs; /* in the order of the graph's outputs */
    int64_t golden_count;                   /* number of golden samples */
    const char *const *labels;              /* names of the classes; none: label_count is 0 */
    const tu__metadata *metadata;           /* texts such as "name", "preprocessing", "licence" */
    const tu__model_bound *bounds;
    uint64_t bytes;     /* size of the file */
    const char *digest; /* SHA-256 of the file without its last tensor, in hexadecimal */
    void *contents;     /* private to model_file_read.c */
} tu__model_file;

/* Maps and checks the file. Fails with TU_CORRUPT and the name of the damaged or missing part. */
TU__SHARED tu_status tu__model_file_open(const char *path, tu__model_file *file);
/* The same for bytes that outlive the result; `name` is for messages. */
tu_status tu__model_file_parse(const char *name, const void *bytes, size_t size, tu__model_file *file);
TU__SHARED void tu__model_file_close(tu__model_file *file);
/* Fails if the file was truncated since it was opened: then some numbers that were read from it may be zeros. Call it after
 * the last read. */
TU__SHARED tu_status tu__model_file_intact(const tu__model_file *file);
/* Fails unless the data of each tensor have the digest in the metadata. (Opening has compared the digest of the whole file,
 * which the digests of the tensors can only explain.) */
TU__SHARED tu_status tu__model_file_check_digests(const tu__model_file *file);
/* Returns the text, or NULL if the file has none with this key. */
TU__SHARED const char *tu__model_file_text(const tu__model_file *file, const char *key);
/* Returns the variable's tensor, or NULL. */
TU__SHARED const tu__named_tensor *tu__model_file_variable(const tu__model_file *file, const char *name);
/* Returns the bound of an output for a precision, or NULL. */
TU__SHARED const tu__model_bound *tu__model_file_bound(const tu__model_file *file, const char *output,
                                                       const char *precision);

/* Writes a file with the parts of `file`: graph, variables, golden tensors, labels, metadata and bounds. Fails unless the
 * reader would accept it. */
TU__SHARED tu_status tu__model_file_save(const char *path, const tu__model_file *file);

#endif
