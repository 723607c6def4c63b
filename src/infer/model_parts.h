/* What a model file must contain for its graph, checked alike by its reader and its writer; and the names of the parts
 * that are not variables (docs/model-file.md). */
#ifndef TU__INFER_MODEL_PARTS_H
#define TU__INFER_MODEL_PARTS_H

#include "graph/graph.h"
#include "infer/model_file.h"

/* Tensors. Variables have their own names, which do not begin with the prefix. */
#define TU__MODEL_PREFIX "tutti/"
#define TU__MODEL_GRAPH "tutti/graph"
#define TU__MODEL_GOLDEN_INPUT "tutti/golden/input/"
#define TU__MODEL_GOLDEN_OUTPUT "tutti/golden/output/"
#define TU__MODEL_SEAL "tutti/sha256" /* the last tensor */

/* Metadata of the file itself. Texts about the model do not begin with the prefix. */
#define TU__MODEL_FORMAT "tutti/model" /* the format version */
#define TU__MODEL_DIGESTS "tutti/digests"
#define TU__MODEL_LABELS "tutti/labels"
#define TU__MODEL_BOUNDS "tutti/bounds"

/* A variable, input or output of the graph. */
typedef struct tu__graph_port {
    const char *name;
    tu_type type;
} tu__graph_port;

typedef struct tu__graph_ports {
    size_t variable_count, input_count, output_count;
    tu__graph_port *variables, *inputs, *outputs; /* in the order of the graph */
} tu__graph_ports;

/* Lists the ports. Fails with TU_INVALID if the graph cannot be that of a model: it assigns variables, has no inputs or no
 * outputs, or one that is not for a single sample. */
tu_status tu__graph_ports_of(const tu_graph *graph, tu__arena *arena, tu__graph_ports *ports);

/* Fails with TU_INVALID unless the tensor has the type of the variable; or, if `golden_count` is not 0, that of an input or
 * output with so many samples. `kind` is for the message: "variable". */
tu_status tu__model_check_tensor(const char *kind, const tu__graph_port *port, int64_t golden_count,
                                 const tu__named_tensor *tensor);

/* Fails with TU_INVALID unless the labels fit the output "probability", and the bounds the outputs. */
tu_status tu__model_check_texts(const tu__graph_ports *ports, const tu__model_file *file);

/* Returns true if `precision` is "f32", "tf32", "bf16" or "f16". */
bool tu__model_is_precision(const char *precision);

#endif
