/* A network for check_training.sh: on rank 1 an operation fails in the middle of the training. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { SUCCESSFUL_CALLS = 12 };

static tu_status same_type(const tu_custom_call *call, tu_type *outputs) {
    outputs[0] = call->inputs[0];
    return TU_OK;
}

static tu_status copy(const tu_custom_call *call, const void *const *in, void *const *out) {
    static atomic_int calls;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    memcpy(out[0], in[0], tu_type_bytes(call->inputs[0]));
    if (!rank || strcmp(rank, "1") != 0 || atomic_fetch_add(&calls, 1) < SUCCESSFUL_CALLS) return TU_OK;
    return tu_fail(TU_INVALID, "the copy is broken");
}

static tu_status pass_on(const tu_custom_call *call, const tu_value *in, const tu_value *out,
                         const tu_value *out_gradients, tu_value *in_gradients) {
    (void)call, (void)in, (void)out;
    in_gradients[0] = out_gradients[0];
    return TU_OK;
}

static const tu_custom_op failing_copy = {.struct_size = sizeof failing_copy,
                                          .name = "failing_copy",
                                          .outputs = 1,
                                          .shape = same_type,
                                          .run = copy,
                                          .gradient = pass_on};

static tu_value build(tu_value x, const tu_network_options *o) {
    if (tu_custom_register(&failing_copy) != TU_OK) return (tu_value){0};
    x = tu_dense(tu_flatten(x), .units = o->base, .act = TU_RELU, .name = "hidden");
    tu_value bias = tu_variable(x.graph, "bias", TU_F32, TU_SHAPE(o->base)); /* the same for all samples */
    x = tu_add(x, tu_custom("failing_copy", 1, &bias));
    return tu_dense(x, .units = o->classes, .name = "logits");
}

TU_NETWORK(.name = "failing", .summary = "a network that fails on rank 1",
           .defaults = TU_OPTIONS(tu_network_options, .height = 32, .width = 32, .channels = 3, .classes = 10,
                                  .base = 8),
           .build = build);
