/* The fallback: runs any operation by its reference kernel, if no faster kernel supports the node.
 *
 * Inputs are converted to double in the kernel's workspace, the reference kernel computes, and results are rounded
 * to their element types: the same numbers as on the device `ref`, on one core. */
#include "base/number.h"
#include "device/cpu/cpu.h"

typedef struct reference {
    const tu__node *node;
    tu__tensor *in, *out; /* types only */
} reference;

static size_t widened_bytes(const tu__tensor *t) {
    return (size_t)tu_shape_elements(t->type.shape) * sizeof(double);
}

/* Copies tensors to the workspace at `*next`, and gives them data after all tensors, at `*data`. */
static tu__tensor *place_tensors(const tu__tensor *from, uint32_t count, char **next, char **data) {
    tu__tensor *tensors = (tu__tensor *)(void *)*next;
    *next += count * sizeof *tensors;
    for (uint32_t i = 0; i < count; i++) {
        tensors[i] = from[i];
        tensors[i].data = (double *)(void *)*data;
        *data += widened_bytes(&tensors[i]);
    }
    return tensors;
}

static tu_status run_reference(const tu__kernel *k) {
    const reference *r = k->data;
    const tu__node *node = r->node;
    char *next = k->workspace, *data = next + (node->input_count + node->output_count) * sizeof(tu__tensor);
    tu__tensor *in = place_tensors(r->in, node->input_count, &next, &data),
               *out = place_tensors(r->out, node->output_count, &next, &data);
    for (uint32_t i = 0; i < node->input_count; i++)
        tu__load_array(in[i].type.dtype, k->in[i], tu_shape_elements(in[i].type.shape), in[i].data);
    tu__reference_call call = {.node = node, .attrs = node->attrs, .in = in, .out = out, .seed = *k->seed};
    TU_TRY(node->op->reference(&call));
    for (uint32_t i = 0; i < node->output_count; i++)
        tu__store_array(out[i].type.dtype, out[i].data, tu_shape_elements(out[i].type.shape), k->out[i]);
    return TU_OK;
}

/* Allocates `count` tensors, and one more so that the size is never zero. */
static tu__tensor *alloc_tensors(tu__selection *s, uint32_t count) {
    return tu__arena_alloc(&s->arena, (count + 1) * sizeof(tu__tensor));
}

tu_status cpu_lower_reference(tu__selection *s, const tu__node *node) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_reference);
    if (!k) return TU_NO_MEMORY;
    reference *r = tu__kernel_data(k, sizeof *r);
    if (!r) return TU_NO_MEMORY;
    *r = (reference){node, alloc_tensors(s, node->input_count), alloc_tensors(s, node->output_count)};
    if (!r->in || !r->out) return TU_NO_MEMORY;
    k->workspace_bytes = (node->input_count + node->output_count) * sizeof(tu__tensor);
    for (uint32_t i = 0; i < node->input_count; i++) {
        r->in[i].type = tu_edge_type(s->graph, node->inputs[i]);
        k->workspace_bytes += widened_bytes(&r->in[i]);
        TU_TRY(tu__kernel_read(k, node->inputs[i]));
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        r->out[i].type = node->outputs[i];
        k->workspace_bytes += widened_bytes(&r->out[i]);
        TU_TRY(tu__kernel_write(k, (tu__edge){node->id, i}, -1));
    }
    return TU_OK;
}
