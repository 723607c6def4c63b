/* The opposite of freezing: large constants become variables again, so that a model file has them as tensors with a name
 * and a digest, and loading it shares them between programs. */
#include <string.h>

#include "base/alloc.h"
#include "infer/quantize.h"
#include "pass/pass.h"

typedef struct thawing {
    int64_t min_elements;
    size_t count;
    tu__named_tensor *variables;
} thawing;

static tu_status thaw_constant(thawing *t, tu__rewrite *r, const tu__node *node) {
    const tu_type type = node->outputs[0];
    const struct tu__variable_attrs attrs = {
        .dtype = type.dtype, .shape = type.shape, .init = TU_INIT_ZEROS, .frozen = true};
    const tu_value variable =
        tu__rewrite_make(r, node, &(tu__node_request){.op = TU__OP_VARIABLE, .attrs = &attrs});
    TU_TRY(tu_graph_status(r->to));
    tu__rewrite_map(r, (tu__edge){node->id, 0}, variable);
    t->variables[t->count++] = (tu__named_tensor){node->name, type, node->data};
    return TU_OK;
}

static tu_status thaw_nodes(thawing *t, tu__rewrite *r) {
    for (uint32_t i = 0; i < r->from->node_count; i++) {
        const tu__node *node = r->from->nodes[i];
        const bool is_large =
            node->op->code == TU__OP_CONSTANT && tu_shape_elements(node->outputs[0].shape) >= t->min_elements;
        TU_TRY(is_large ? thaw_constant(t, r, node) : tu__rewrite_copy(r, node));
    }
    return TU_OK;
}

/* Moves the new graph from the rewrite, with its named results. */
static tu_status take_graph(tu__rewrite *r, tu_graph **graph) {
    for (uint32_t i = 0; i < r->from->result_count; i++)
        tu_output(tu__rewrite_value(r, r->from->results[i].value), r->from->results[i].name);
    TU_TRY(tu_graph_status(r->to));
    r->to->is_frozen = false;
    *graph = r->to;
    r->to = NULL;
    return TU_OK;
}

tu_status tu__thaw(const tu_graph *frozen, int64_t min_elements, tu_graph **graph, size_t *count,
                   tu__named_tensor **variables) {
    *graph = NULL;
    *variables = NULL;
    thawing t = {.min_elements = min_elements};
    t.variables =
        tu__alloc_array((size_t)frozen->node_count + 1, sizeof *t.variables, "the variables of a model");
    if (!t.variables) return TU_NO_MEMORY;
    tu__rewrite r;
    tu_status status = tu__rewrite_begin(&r, frozen);
    if (status == TU_OK) {
        status = thaw_nodes(&t, &r);
        if (status == TU_OK) status = take_graph(&r, graph);
        tu__rewrite_abandon(&r);
    }
    if (status != TU_OK) {
        tu__free(t.variables);
        return status;
    }
    *count = t.count;
    *variables = t.variables;
    return TU_OK;
}
