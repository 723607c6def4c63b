/* The fallback: runs any operation by its reference kernel, if no faster kernel supports the node.
 *
 * Inputs are converted to double in the kernel's workspace, the reference kernel computes, and results are rounded
 * to their element types: the same numbers as on the device `ref`, on one core. */
#include "base/number.h"
#include "device/cpu/cpu.h"

typedef struct reference {
    const tu__node *node;
    tu__tensor *in, *out; /* their data is in the workspace, set at each run */
} reference;

static size_t widened_bytes(const tu__tensor *t) {
    return (size_t)tu_shape_elements(t->type.shape) * sizeof(double);
}

static tu_status run_reference(const tu__kernel *k) {
    const reference *r = k->data;
    const tu__node *node = r->node;
    char *next = k->workspace;
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu__tensor *t = &r->in[i];
        t->data = (double *)(void *)next;
        tu__load_array(t->type.dtype, k->in[i], tu_shape_elements(t->type.shape), t->data);
        next += widened_bytes(t);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        r->out[i].data = (double *)(void *)next;
        next += widened_bytes(&r->out[i]);
    }
    tu__reference_call call = {
        .node = node, .attrs = node->attrs, .in = r->in, .out = r->out, .seed = *k->seed};
    TU_TRY(node->op->reference(&call));
    for (uint32_t i = 0; i < node->output_count; i++) {
        const tu__tensor *t = &r->out[i];
        tu__store_array(t->type.dtype, t->data, tu_shape_elements(t->type.shape), k->out[i]);
    }
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
