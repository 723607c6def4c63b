/* Custom operations: a user's C functions as a node of the graph.
 *
 * A custom operation is registered once under a name; graphs refer to it by that name, so a graph file that uses
 * one can be read by any program that registers it first.
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

typedef struct tu_custom_call {
    size_t struct_size;
    uint32_t input_count;
    const tu_type *inputs;
    const tu_type *outputs; /* NULL while the shape function runs */
    void *user;             /* of the tu_custom_op */
} tu_custom_call;

typedef struct tu_custom_op {
    size_t struct_size;
    const char *name;
    uint32_t outputs; /* how many; at least 1 */
    void *user;
    /* Writes the types of the outputs; fails (tu_fail) on inputs it cannot take. */
    tu_status (*shape)(const tu_custom_call *call, tu_type *outputs);
    /* Dense, row-major tensors in their element types. Must be a pure function, callable from several threads. */
    tu_status (*run)(const tu_custom_call *call, const void *const *in, void *const *out);
    /* Optional. Builds the gradients of the inputs; those left invalid (zeroed) are zero. */
    tu_status (*gradient)(const tu_custom_call *call, const tu_value *in, const tu_value *out,
                          const tu_value *out_gradients, tu_value *in_gradients);
} tu_custom_op;

/* The structure and its strings must outlive all graphs. A name registered again must mean the same structure. */
TU_API tu_status tu_custom_register(const tu_custom_op *op);

/* A node that runs the registered operation `name`; output 0 (tu_output_of for the others). */
TU_API tu_value tu_custom(const char *name, size_t count, const tu_value *inputs);

#ifdef __cplusplus
}
#endif
#endif
