/* Custom operations: nodes of the graph that call a user's C functions.
 *
 * A program registers a custom operation under a name, and graphs refer to it by that name. Any program that
 * registers the operation can read a graph file that uses it.
 *
 *     static tu_status cube_shape(const tu_custom_call *call, tu_type *outputs) {
 *         outputs[0] = call->inputs[0];
 *         return TU_OK;
 *     }
 *     static tu_status cube_run(const tu_custom_call *call, const void *const *in, void *const *out) { … }
 *     static tu_status cube_gradient(const tu_custom_call *call, const tu_value *in, const tu_value *out,
 *                                    const tu_value *out_gradients, tu_value *in_gradients) {
 *         in_gradients[0] = tu_mul(out_gradients[0], tu_scale(tu_square(in[0]), 3));
 *         return TU_OK;
 *     }
 *     static const tu_custom_op cube = {.struct_size = sizeof cube, .name = "cube", .outputs = 1,
 *                                       .shape = cube_shape, .run = cube_run, .gradient = cube_gradient};
 *     tu_custom_register(&cube);
 *     tu_value y = tu_custom("cube", 1, &x);
 */
#ifndef TUTTI_CUSTOM_H
#define TUTTI_CUSTOM_H

#include <tutti/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The argument of the functions of a custom operation, filled by the library. It sets struct_size; a program that
 * needs a later field checks it. */
typedef struct tu_custom_call {
    size_t struct_size;
    uint32_t input_count;
    const tu_type *inputs;
    const tu_type *outputs; /* NULL while the shape function runs */
    void *user;             /* from the tu_custom_op */
} tu_custom_call;

typedef struct tu_custom_op {
    size_t struct_size;
    const char *name;
    uint32_t outputs; /* number of outputs, at least 1 */
    void *user;
    /* Writes the types of the outputs. Fails (tu_fail) if it does not support the inputs. */
    tu_status (*shape)(const tu_custom_call *call, tu_type *outputs);
    /* Computes the outputs. Tensors are dense and row-major, in their element types. Must be a pure function; several
     * threads may call it at once. */
    tu_status (*run)(const tu_custom_call *call, const void *const *in, void *const *out);
    /* Optional. Builds the gradients of the inputs. A gradient that is left invalid (zeroed) is zero. */
    tu_status (*gradient)(const tu_custom_call *call, const tu_value *in, const tu_value *out,
                          const tu_value *out_gradients, tu_value *in_gradients);
} tu_custom_op;

/* Registers a custom operation. The structure and its strings must outlive all graphs. Registering a name again
 * fails, unless it is the same structure. */
TU_API tu_status tu_custom_register(const tu_custom_op *op);

/* Creates a node of the registered operation `name`. Returns output 0; tu_output_of returns the others. */
TU_API tu_value tu_custom(const char *name, size_t count, const tu_value *inputs);

#ifdef __cplusplus
}
#endif
#endif
