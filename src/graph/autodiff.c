/* Symbolic reverse-mode differentiation: gradients are ordinary nodes of the graph.
 *
 * Nodes are visited from the last to the first. When a node is visited, all nodes that depend on it have been
 * visited, so the gradients of its outputs are complete; the operation's gradient function then adds to the gradients
 * of its inputs. Only nodes on a path from a requested value to the scalar are visited.
 *
 * Forward values marked for recomputation are not used directly. The first gradient function that needs one triggers
 * a copy of it and of the marked nodes it depends on. The copies belong to the backward pass, so the memory of the
 * originals can be freed during the forward pass (gradient checkpointing, Chen et al. 2016).
 *
 * An operation of kind TU__GRADIENT_EXPAND is differentiated through its expansion: the simpler operations are added
 * to the graph and differentiated by a nested backward pass. */
#include <stdio.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/walk.h"

struct tu__backprop {
    tu_graph *graph;
    uint32_t first, end; /* the range of nodes to differentiate */
    uint32_t *slot;      /* [node - first]: index in `gradient` of the node's output 0 */
    tu_value *gradient;  /* one per output of these nodes; its node is TU_NO_NODE while there is none */
    bool *is_on_path;    /* [node - first]: depends on a requested value */
    bool *is_requested;  /* per element of `gradient`: it is a requested value */
    uint32_t *copy;      /* [node - first]: its recomputed copy, or TU_NO_NODE */
    bool *is_marked;     /* scratch of recompute() */
    size_t wrt_count;
    const tu_value *wrt;    /* requested values; some may be before `first` */
    tu_value *wrt_gradient; /* the results */
};
typedef struct tu__backprop backprop;

/* ---- Accumulating gradients ---- */

static bool same_value(tu_value a, tu_value b) {
    return a.node == b.node && a.output == b.output;
}

/* Returns a pointer to the accumulated gradient of `value`; NULL if it is outside the range and not requested. */
static tu_value *find_gradient(const backprop *pass, tu_value value) {
    if (value.node >= pass->first && value.node < pass->end)
        return &pass->gradient[pass->slot[value.node - pass->first] + value.output];
    for (size_t i = 0; i < pass->wrt_count; i++)
        if (same_value(pass->wrt[i], value)) return &pass->wrt_gradient[i];
    return NULL;
}

static void accumulate(backprop *pass, tu_value value, tu_value gradient) {
    tu_value *sum = find_gradient(pass, value);
    if (!sum || !tu_ok(gradient)) return;
    tu_type have = tu_value_type(gradient), want = tu_value_type(value);
    if (have.dtype != want.dtype || !tu_shape_equal(have.shape, want.shape)) {
        tu__graph_fail(pass->graph, TU_INTERNAL,
                       "the gradient of '%s' %s has type %s: expected the type of the value",
                       tu_value_name(value), tu__type_string(want), tu__type_string(have));
        return;
    }
    *sum = sum->node == TU_NO_NODE ? gradient : tu_add(*sum, gradient);
}

static bool needs_gradient(const backprop *pass, tu_value value) {
    if (!tu_dtype_is_float(tu_value_dtype(value))) return false;
    if (value.node >= pass->first && value.node < pass->end) {
        uint32_t index = value.node - pass->first;
        return pass->is_on_path[index] || pass->is_requested[pass->slot[index] + value.output];
    }
    return find_gradient(pass, value) != NULL;
}

/* ---- Recomputation ---- */

static bool must_recompute(const backprop *pass, uint32_t node) {
    return node >= pass->first && node < pass->end && (pass->graph->nodes[node]->flags & TU__NODE_RECOMPUTE);
}

static tu_value recomputed_value(const backprop *pass, tu__edge edge) {
    uint32_t node = edge.node;
    if (must_recompute(pass, node)) node = pass->copy[node - pass->first];
    return tu__value(pass->graph, node, edge.output);
}

static tu_status copy_node(backprop *pass, const tu__node *node) {
    tu_value *inputs = tu__alloc_array(node->input_count + 1, sizeof *inputs, "an operation's inputs");
    if (!inputs) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < node->input_count; i++) inputs[i] = recomputed_value(pass, node->inputs[i]);
    tu_value copy = tu__make(pass->graph, &(tu__node_request){.op = node->op->code,
                                                              .name = "again",
                                                              .attrs = node->attrs,
                                                              .inputs = inputs,
                                                              .input_count = node->input_count,
                                                              .data = node->data,
                                                              .shared = node->shared,
                                                              .custom = node->custom,
                                                              .flags = TU__NODE_RECOMPUTED,
                                                              .device = node->device,
                                                              .group = node->group});
    tu__free(inputs);
    pass->copy[node->id - pass->first] = copy.node;
    return tu_ok(copy) ? TU_OK : tu_graph_status(pass->graph);
}

/* Copies a marked node and the marked nodes it depends on, in node order. */
static tu_status recompute(backprop *pass, uint32_t target) {
    uint32_t lowest = target, pending = 1;
    pass->is_marked[target - pass->first] = true;
    for (uint32_t id = target; pending; id--) {
        if (!pass->is_marked[id - pass->first]) continue;
        pending--;
        lowest = id;
        const tu__node *node = pass->graph->nodes[id];
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t in = node->inputs[i].node;
            if (!must_recompute(pass, in) || pass->is_marked[in - pass->first]) continue;
            if (pass->copy[in - pass->first] != TU_NO_NODE) continue;
            pass->is_marked[in - pass->first] = true;
            pending++;
        }
    }
    tu_status status = TU_OK;
    for (uint32_t id = lowest; id <= target; id++) {
        if (!pass->is_marked[id - pass->first]) continue;
        pass->is_marked[id - pass->first] = false;
        if (status == TU_OK) status = copy_node(pass, pass->graph->nodes[id]);
    }
    return status;
}

static tu_value forward_value(backprop *pass, tu__edge edge) {
    if (must_recompute(pass, edge.node) && pass->copy[edge.node - pass->first] == TU_NO_NODE)
        if (recompute(pass, edge.node) != TU_OK) return tu__invalid(pass->graph);
    return recomputed_value(pass, edge);
}

/* ---- Functions for gradient rules ---- */

tu_value tu__vjp_input(tu__vjp *vjp, uint32_t index) {
    return forward_value(vjp->pass, vjp->node->inputs[index]);
}

tu_value tu__vjp_output(tu__vjp *vjp, uint32_t index) {
    return forward_value(vjp->pass, (tu__edge){vjp->node->id, index});
}

bool tu__vjp_has_gradient(const tu__vjp *vjp, uint32_t output) {
    return find_gradient(vjp->pass, tu__value(vjp->graph, vjp->node->id, output))->node != TU_NO_NODE;
}

tu_value tu__vjp_gradient(tu__vjp *vjp, uint32_t output) {
    if (tu__vjp_has_gradient(vjp, output))
        return *find_gradient(vjp->pass, tu__value(vjp->graph, vjp->node->id, output));
    tu_type type = vjp->node->outputs[output];
    return tu_fill(vjp->graph, type.dtype, type.shape, 0);
}

bool tu__vjp_needs_gradient(const tu__vjp *vjp, uint32_t input) {
    return needs_gradient(vjp->pass, tu__input_of(vjp->graph, vjp->node, input));
}

void tu__vjp_accumulate(tu__vjp *vjp, uint32_t input, tu_value gradient) {
    if (!tu__vjp_needs_gradient(vjp, input)) return;
    tu_value target = tu__input_of(vjp->graph, vjp->node, input);
    accumulate(vjp->pass, target, tu__sum_to_shape(gradient, tu_value_shape(target)));
}

/* ---- The backward pass ---- */

/* Differentiates the node through its expansion. */
static tu_status differentiate_expansion(tu__vjp *vjp) {
    const tu__node *node = vjp->node;
    uint32_t inputs = node->input_count, outputs = node->output_count;
    tu_value *values = tu__alloc_array((size_t)2 * (inputs + outputs), sizeof *values, "an expansion");
    if (!values) return TU_NO_MEMORY;
    tu_value *in = values, *in_gradient = in + inputs, *out = in_gradient + inputs,
             *out_gradient = out + outputs;
    for (uint32_t i = 0; i < inputs; i++) in[i] = tu__vjp_input(vjp, i);
    for (uint32_t i = 0; i < outputs; i++) out_gradient[i] = tu__vjp_gradient(vjp, i);
    uint32_t first = vjp->graph->node_count;
    node->op->expand(vjp->graph, node, in, out);
    tu_status status =
        tu__backpropagate(vjp->graph, first, outputs, out, out_gradient, inputs, in, in_gradient);
    for (uint32_t i = 0; i < inputs && status == TU_OK; i++)
        if (tu_ok(in_gradient[i])) tu__vjp_accumulate(vjp, i, in_gradient[i]);
    tu__free(values);
    return status;
}

static bool has_any_gradient(const tu__vjp *vjp) {
    for (uint32_t i = 0; i < vjp->node->output_count; i++)
        if (tu__vjp_has_gradient(vjp, i)) return true;
    return false;
}

static tu_status fail_without_gradient(const tu__node *node) {
    return tu_fail(TU_UNSUPPORTED,
                   "%s '%s' has no gradient: pass its value through tu_stop_gradient before the loss uses it",
                   node->op->name, node->name);
}

static tu_status apply_rule(tu__vjp *vjp) {
    const tu__node *node = vjp->node;
    switch (node->op->gradient_kind) {
    case TU__GRADIENT_ZERO: return TU_OK;
    case TU__GRADIENT_RULE: node->op->gradient(vjp); break;
    case TU__GRADIENT_EXPAND: TU_TRY(differentiate_expansion(vjp)); break;
    case TU__GRADIENT_NONE: return fail_without_gradient(node);
    }
    return tu_graph_status(vjp->graph);
}

static tu_status visit_node(backprop *pass, const tu__node *node, const char *scope) {
    tu__vjp vjp = {.graph = pass->graph, .node = node, .pass = pass};
    if (!pass->is_on_path[node->id - pass->first] || !has_any_gradient(&vjp)) return TU_OK;
    tu__text path = {0};
    tu__text_printf(&path, "%s%sgrad/%s", scope, *scope ? "/" : "", node->name);
    tu_status status =
        path.failed ? TU_NO_MEMORY : tu__scope_replace(pass->graph, tu__text_string(&path), NULL);
    tu__text_free(&path);
    TU_TRY(status);
    uint32_t group = pass->graph->group_scope;
    pass->graph->group_scope = node->group; /* colocate the gradient with the node */
    if (node->device)
        tu_with_device(pass->graph, node->device) status = apply_rule(&vjp);
    else
        status = apply_rule(&vjp);
    pass->graph->group_scope = group;
    return status;
}

static void backprop_free(backprop *pass) {
    tu__free(pass->slot);
    tu__free(pass->gradient);
    tu__free(pass->is_on_path);
    tu__free(pass->is_requested);
    tu__free(pass->copy);
    tu__free(pass->is_marked);
}

static tu_status backprop_begin(backprop *pass) {
    const tu_graph *graph = pass->graph;
    size_t nodes = pass->end - pass->first, outputs = 0;
    pass->slot = tu__alloc_array(nodes, sizeof *pass->slot, "a backward pass");
    pass->is_on_path = tu__alloc_array(nodes, sizeof *pass->is_on_path, "a backward pass");
    pass->copy = tu__alloc_array(nodes, sizeof *pass->copy, "a backward pass");
    pass->is_marked = tu__alloc_array(nodes, sizeof *pass->is_marked, "a backward pass");
    if (!pass->slot || !pass->is_on_path || !pass->copy || !pass->is_marked) return TU_NO_MEMORY;
    for (size_t i = 0; i < nodes; i++) {
        pass->slot[i] = (uint32_t)outputs;
        pass->copy[i] = TU_NO_NODE;
        outputs += graph->nodes[pass->first + i]->output_count;
    }
    pass->gradient = tu__alloc_array(outputs, sizeof *pass->gradient, "a backward pass");
    pass->is_requested = tu__alloc_array(outputs, sizeof *pass->is_requested, "a backward pass");
    if (!pass->gradient || !pass->is_requested) return TU_NO_MEMORY;
    for (size_t i = 0; i < outputs; i++) pass->gradient[i] = tu__invalid(pass->graph);
    for (size_t i = 0; i < pass->wrt_count; i++) {
        pass->wrt_gradient[i] = tu__invalid(pass->graph);
        tu_value value = pass->wrt[i];
        if (value.node >= pass->first)
            pass->is_requested[pass->slot[value.node - pass->first] + value.output] = true;
    }
    return TU_OK;
}

/* Marks the nodes that depend on a requested value, in one forward sweep. */
static void mark_path_nodes(backprop *pass) {
    for (uint32_t id = pass->first; id < pass->end; id++) {
        const tu__node *node = pass->graph->nodes[id];
        for (uint32_t i = 0; i < node->input_count && !pass->is_on_path[id - pass->first]; i++)
            pass->is_on_path[id - pass->first] = needs_gradient(pass, tu__input_of(pass->graph, node, i));
    }
}

/* Fails if a value depends on a requested one through an operation without a gradient whose result is an integer: no
 * gradient would reach it, and the requested one would silently be zero. Elsewhere the visit of the node fails. */
static tu_status check_integers(backprop *pass, size_t count, const tu_value *values) {
    bool *is_used = tu__alloc_array(pass->end - pass->first, sizeof *is_used, "a backward pass");
    if (!is_used) return TU_NO_MEMORY;
    tu_status status = TU_OK;
    for (size_t i = 0; i < count; i++)
        if (values[i].node >= pass->first) is_used[values[i].node - pass->first] = true;
    for (uint32_t id = pass->end; id-- > pass->first && status == TU_OK;) {
        const tu__node *node = pass->graph->nodes[id];
        if (!is_used[id - pass->first] || node->op->gradient_kind == TU__GRADIENT_ZERO) continue;
        if (node->op->gradient_kind == TU__GRADIENT_NONE && pass->is_on_path[id - pass->first] &&
            !tu_dtype_is_float(node->outputs[0].dtype))
            status = fail_without_gradient(node);
        for (uint32_t i = 0; i < node->input_count; i++)
            if (node->inputs[i].node >= pass->first) is_used[node->inputs[i].node - pass->first] = true;
    }
    tu__free(is_used);
    return status;
}

static tu_status run_backward(backprop *pass, size_t count, const tu_value *values,
                              const tu_value *value_gradients, const char *scope) {
    TU_TRY(backprop_begin(pass));
    mark_path_nodes(pass);
    TU_TRY(check_integers(pass, count, values));
    for (size_t i = 0; i < count; i++) accumulate(pass, values[i], value_gradients[i]);
    for (uint32_t id = pass->end; id-- > pass->first;)
        TU_TRY(visit_node(pass, pass->graph->nodes[id], scope));
    for (size_t i = 0; i < pass->wrt_count; i++)
        if (pass->wrt[i].node >= pass->first) pass->wrt_gradient[i] = *find_gradient(pass, pass->wrt[i]);
    return tu_graph_status(pass->graph);
}

tu_status tu__backpropagate(tu_graph *graph, uint32_t first, size_t count, const tu_value *values,
                            const tu_value *value_gradients, size_t wrt_count, const tu_value *wrt,
                            tu_value *gradients) {
    TU_TRY(tu_graph_status(graph));
    backprop pass = {.graph = graph,
                     .first = first,
                     .end = graph->node_count,
                     .wrt_count = wrt_count,
                     .wrt = wrt,
                     .wrt_gradient = gradients};
    /* Gradients are built outside of any recompute block, under "grad/" in the caller's scope. */
    uint32_t depth = graph->recompute_depth;
    char *scope = NULL;
    tu_status status = tu__scope_replace(graph, "", &scope);
    if (status == TU_OK) {
        graph->recompute_depth = 0;
        status = run_backward(&pass, count, values, value_gradients, scope);
        tu__scope_replace(graph, scope, NULL); /* cannot fail: the buffer is large enough */
        graph->recompute_depth = depth;
    }
    if (status != TU_OK && graph->status == TU_OK) tu__graph_fail(graph, status, "%s", tu_message());
    tu__free(scope);
    backprop_free(&pass);
    return status;
}

static tu_status check_request(tu_value scalar, size_t count, const tu_value *wrt) {
    if (!scalar.graph)
        return tu_fail(TU_INVALID, "gradients: the value to differentiate is an uninitialised tu_value");
    TU_TRY(tu_graph_status(scalar.graph));
    tu_type type = tu_value_type(scalar);
    if (!tu_ok(scalar) || !tu_dtype_is_float(type.dtype) || tu_shape_elements(type.shape) != 1)
        return tu_fail(
            TU_INVALID,
            "gradients of '%s' %s: expected a floating-point scalar (reduce it with tu_sum or tu_mean)",
            tu_value_name(scalar), tu__type_string(type));
    for (size_t i = 0; i < count; i++) {
        if (wrt[i].graph != scalar.graph || !tu_ok(wrt[i]))
            return tu_fail(TU_INVALID, "gradients of '%s': wrt[%zu] is invalid or belongs to another graph",
                           tu_value_name(scalar), i);
        if (!tu_dtype_is_float(tu_value_dtype(wrt[i])))
            return tu_fail(
                TU_INVALID, "gradients of '%s' with respect to '%s' %s: expected a floating-point type",
                tu_value_name(scalar), tu_value_name(wrt[i]), tu__type_string(tu_value_type(wrt[i])));
    }
    return TU_OK;
}

tu_status tu_gradients(tu_value scalar, size_t count, const tu_value *wrt, tu_value *gradients) {
    for (size_t i = 0; i < count; i++) gradients[i] = tu__invalid(scalar.graph);
    tu_status status = check_request(scalar, count, wrt);
    if (status != TU_OK) {
        if (scalar.graph && scalar.graph->status == TU_OK)
            tu__graph_fail(scalar.graph, status, "%s", tu_message());
        return status;
    }
    tu_graph *graph = scalar.graph;
    tu_value one = {0};
    tu_scope(graph, "grad") one = tu__ones_like(scalar);
    /* The node `one` is within the range of the backward pass but has no inputs, so it does not affect it. */
    TU_TRY(tu__backpropagate(graph, 0, 1, &scalar, &one, count, wrt, gradients));
    for (size_t i = 0; i < count; i++)
        if (!tu_ok(gradients[i])) gradients[i] = tu__zeros_like(wrt[i]);
    return tu_graph_status(graph);
}
