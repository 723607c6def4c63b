/* Reverse-mode differentiation, symbolically: gradients are nodes like any others.
 *
 * Nodes are walked from the last to the first. When a node is reached, all that depends on it has been seen, so
 * the gradients of its outputs are complete; its operation's rule then adds to the gradients of its inputs. Only
 * nodes that lie between the values asked for and the scalar take part: nothing is computed for the others.
 *
 * Forward values marked for recomputation are not used directly. The first rule that needs one gets a second copy
 * of it and of the marked nodes it hangs on, made at that point: so the copies stand in the backward pass, and
 * the originals can be forgotten as soon as the forward pass is done with them (Chen et al. 2016).
 *
 * An operation without a gradient of its own but with an expansion is differentiated through the expansion: the
 * simpler operations are added to the graph and this same walk runs over them alone. */
#include <stdio.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/walk.h"

struct tu__backprop {
    tu_graph *graph;
    uint32_t first, end; /* the nodes looked at */
    uint32_t *slot;      /* node - first -> its first gradient */
    tu_value *gradient;  /* of every output of these nodes; node TU_NO_NODE: none yet */
    bool *between;       /* node - first: depends on a value asked for */
    bool *asked;         /* gradient slot: it is itself asked for */
    uint32_t *copy;      /* node - first -> its recomputed copy, or TU_NO_NODE */
    bool *mark;          /* scratch of recompute() */
    size_t wrt_count;
    const tu_value *wrt; /* some may lie before `first`: their gradients gather here */
    tu_value *wrt_gradient;
};
typedef struct tu__backprop backprop;

/* ---- Where gradients gather ---- */

static bool same_value(tu_value a, tu_value b) {
    return a.node == b.node && a.output == b.output;
}

/* The place of a value's gradient; NULL when nobody wants it. */
static tu_value *place_of(const backprop *pass, tu_value value) {
    if (value.node >= pass->first && value.node < pass->end)
        return &pass->gradient[pass->slot[value.node - pass->first] + value.output];
    for (size_t i = 0; i < pass->wrt_count; i++)
        if (same_value(pass->wrt[i], value)) return &pass->wrt_gradient[i];
    return NULL;
}

static void accumulate(backprop *pass, tu_value value, tu_value gradient) {
    tu_value *place = place_of(pass, value);
    if (!place || !tu_ok(gradient)) return;
    tu_type have = tu_value_type(gradient), want = tu_value_type(value);
    if (have.dtype != want.dtype || !tu_shape_equal(have.shape, want.shape)) {
        tu__graph_fail(pass->graph, TU_INTERNAL, "the gradient of '%s' %s came out as %s",
                       tu_value_name(value), tu__type_string(want), tu__type_string(have));
        return;
    }
    *place = place->node == TU_NO_NODE ? gradient : tu_add(*place, gradient);
}

static bool is_wanted(const backprop *pass, tu_value value) {
    if (!tu_dtype_is_float(tu_value_dtype(value))) return false;
    if (value.node >= pass->first && value.node < pass->end) {
        uint32_t at = value.node - pass->first;
        return pass->between[at] || pass->asked[pass->slot[at] + value.output];
    }
    return place_of(pass, value) != NULL;
}

/* ---- Recomputation ---- */

static bool must_recompute(const backprop *pass, uint32_t node) {
    return node >= pass->first && node < pass->end && (pass->graph->nodes[node]->flags & TU__NODE_RECOMPUTE);
}

static tu_value copied(const backprop *pass, tu__edge edge) {
    uint32_t node = edge.node;
    if (must_recompute(pass, node)) node = pass->copy[node - pass->first];
    return tu__value(pass->graph, node, edge.output);
}

static tu_status copy_node(backprop *pass, const tu__node *node) {
    tu_value *inputs = tu__alloc_array(node->input_count + 1, sizeof *inputs, "an operation's inputs");
    if (!inputs) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < node->input_count; i++) inputs[i] = copied(pass, node->inputs[i]);
    tu_value copy = tu__make(pass->graph, &(tu__node_request){.op = node->op->code,
                                                              .name = "again",
                                                              .attrs = node->attrs,
                                                              .inputs = inputs,
                                                              .input_count = node->input_count,
                                                              .data = node->data,
                                                              .custom = node->custom,
                                                              .flags = TU__NODE_RECOMPUTED,
                                                              .device = node->device,
                                                              .group = node->group});
    tu__free(inputs);
    pass->copy[node->id - pass->first] = copy.node;
    return tu_ok(copy) ? TU_OK : tu_graph_status(pass->graph);
}

/* Copies a marked node and the marked nodes it hangs on, in their order. */
static tu_status recompute(backprop *pass, uint32_t target) {
    uint32_t lowest = target, pending = 1;
    pass->mark[target - pass->first] = true;
    for (uint32_t id = target; pending; id--) {
        if (!pass->mark[id - pass->first]) continue;
        pending--;
        lowest = id;
        const tu__node *node = pass->graph->nodes[id];
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t in = node->inputs[i].node;
            if (!must_recompute(pass, in) || pass->mark[in - pass->first]) continue;
            if (pass->copy[in - pass->first] != TU_NO_NODE) continue;
            pass->mark[in - pass->first] = true;
            pending++;
        }
    }
    tu_status status = TU_OK;
    for (uint32_t id = lowest; id <= target; id++) {
        if (!pass->mark[id - pass->first]) continue;
        pass->mark[id - pass->first] = false;
        if (status == TU_OK) status = copy_node(pass, pass->graph->nodes[id]);
    }
    return status;
}

static tu_value forward_value(backprop *pass, tu__edge edge) {
    if (must_recompute(pass, edge.node) && pass->copy[edge.node - pass->first] == TU_NO_NODE)
        if (recompute(pass, edge.node) != TU_OK) return tu__invalid(pass->graph);
    return copied(pass, edge);
}

/* ---- What a gradient rule sees ---- */

tu_value tu__vjp_input(tu__vjp *vjp, uint32_t index) {
    return forward_value(vjp->pass, vjp->node->inputs[index]);
}

tu_value tu__vjp_output(tu__vjp *vjp, uint32_t index) {
    return forward_value(vjp->pass, (tu__edge){vjp->node->id, index});
}

bool tu__vjp_has_gradient(const tu__vjp *vjp, uint32_t output) {
    return place_of(vjp->pass, tu__value(vjp->graph, vjp->node->id, output))->node != TU_NO_NODE;
}

tu_value tu__vjp_gradient(tu__vjp *vjp, uint32_t output) {
    if (tu__vjp_has_gradient(vjp, output))
        return *place_of(vjp->pass, tu__value(vjp->graph, vjp->node->id, output));
    tu_type type = vjp->node->outputs[output];
    return tu_fill(vjp->graph, type.dtype, type.shape, 0);
}

bool tu__vjp_wanted(const tu__vjp *vjp, uint32_t input) {
    return is_wanted(vjp->pass, tu__input_of(vjp->graph, vjp->node, input));
}

void tu__vjp_give(tu__vjp *vjp, uint32_t input, tu_value gradient) {
    if (!tu__vjp_wanted(vjp, input)) return;
    tu_value target = tu__input_of(vjp->graph, vjp->node, input);
    accumulate(vjp->pass, target, tu__sum_to_shape(gradient, tu_value_shape(target)));
}

/* ---- The walk ---- */

/* Differentiates the node as if its expansion stood in its place. */
static tu_status through_expansion(tu__vjp *vjp) {
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
        if (tu_ok(in_gradient[i])) tu__vjp_give(vjp, i, in_gradient[i]);
    tu__free(values);
    return status;
}

static bool any_gradient(const tu__vjp *vjp) {
    for (uint32_t i = 0; i < vjp->node->output_count; i++)
        if (tu__vjp_has_gradient(vjp, i)) return true;
    return false;
}

static tu_status apply_rule(tu__vjp *vjp) {
    const tu__node *node = vjp->node;
    switch (node->op->gradient_kind) {
    case TU__GRADIENT_ZERO: return TU_OK;
    case TU__GRADIENT_RULE: node->op->gradient(vjp); break;
    case TU__GRADIENT_EXPAND: TU_TRY(through_expansion(vjp)); break;
    case TU__GRADIENT_NONE:
        return tu_fail(
            TU_UNSUPPORTED,
            "%s '%s' has no gradient: stop it with tu_stop_gradient, or leave out what depends on it",
            node->op->name, node->name);
    }
    return tu_graph_status(vjp->graph);
}

static tu_status visit(backprop *pass, const tu__node *node, const char *scope) {
    tu__vjp vjp = {.graph = pass->graph, .node = node, .pass = pass};
    if (!pass->between[node->id - pass->first] || !any_gradient(&vjp)) return TU_OK;
    tu__text path = {0};
    tu__text_printf(&path, "%s%sgrad/%s", scope, *scope ? "/" : "", node->name);
    tu_status status =
        path.failed ? TU_NO_MEMORY : tu__scope_replace(pass->graph, tu__text_string(&path), NULL);
    tu__text_free(&path);
    TU_TRY(status);
    uint32_t group = pass->graph->group_scope;
    pass->graph->group_scope = node->group; /* beside what it is the gradient of */
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
    tu__free(pass->between);
    tu__free(pass->asked);
    tu__free(pass->copy);
    tu__free(pass->mark);
}

static tu_status backprop_begin(backprop *pass) {
    const tu_graph *graph = pass->graph;
    size_t nodes = pass->end - pass->first, outputs = 0;
    pass->slot = tu__alloc_array(nodes, sizeof *pass->slot, "a backward pass");
    pass->between = tu__alloc_array(nodes, sizeof *pass->between, "a backward pass");
    pass->copy = tu__alloc_array(nodes, sizeof *pass->copy, "a backward pass");
    pass->mark = tu__alloc_array(nodes, sizeof *pass->mark, "a backward pass");
    if (!pass->slot || !pass->between || !pass->copy || !pass->mark) return TU_NO_MEMORY;
    for (size_t i = 0; i < nodes; i++) {
        pass->slot[i] = (uint32_t)outputs;
        pass->copy[i] = TU_NO_NODE;
        outputs += graph->nodes[pass->first + i]->output_count;
    }
    pass->gradient = tu__alloc_array(outputs, sizeof *pass->gradient, "a backward pass");
    pass->asked = tu__alloc_array(outputs, sizeof *pass->asked, "a backward pass");
    if (!pass->gradient || !pass->asked) return TU_NO_MEMORY;
    for (size_t i = 0; i < outputs; i++) pass->gradient[i] = tu__invalid(pass->graph);
    for (size_t i = 0; i < pass->wrt_count; i++) {
        pass->wrt_gradient[i] = tu__invalid(pass->graph);
        tu_value value = pass->wrt[i];
        if (value.node >= pass->first)
            pass->asked[pass->slot[value.node - pass->first] + value.output] = true;
    }
    return TU_OK;
}

/* Which nodes depend on a value asked for: one sweep forward. */
static void find_between(backprop *pass) {
    for (uint32_t id = pass->first; id < pass->end; id++) {
        const tu__node *node = pass->graph->nodes[id];
        for (uint32_t i = 0; i < node->input_count && !pass->between[id - pass->first]; i++)
            pass->between[id - pass->first] = is_wanted(pass, tu__input_of(pass->graph, node, i));
    }
}

static tu_status sweep(backprop *pass, size_t count, const tu_value *values, const tu_value *value_gradients,
                       const char *scope) {
    TU_TRY(backprop_begin(pass));
    find_between(pass);
    for (size_t i = 0; i < count; i++) accumulate(pass, values[i], value_gradients[i]);
    for (uint32_t id = pass->end; id-- > pass->first;) TU_TRY(visit(pass, pass->graph->nodes[id], scope));
    for (size_t i = 0; i < pass->wrt_count; i++)
        if (pass->wrt[i].node >= pass->first) pass->wrt_gradient[i] = *place_of(pass, pass->wrt[i]);
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
    /* Gradients are made outside of any recompute block, under "grad/" within the caller's scope. */
    uint32_t depth = graph->recompute_depth;
    char *scope = NULL;
    tu_status status = tu__scope_replace(graph, "", &scope);
    if (status == TU_OK) {
        graph->recompute_depth = 0;
        status = sweep(&pass, count, values, value_gradients, scope);
        tu__scope_replace(graph, scope, NULL); /* it was there before: there is room for it */
        graph->recompute_depth = depth;
    }
    if (status != TU_OK && graph->status == TU_OK) tu__graph_fail(graph, status, "%s", tu_message());
    tu__free(scope);
    backprop_free(&pass);
    return status;
}

static tu_status check_request(tu_value scalar, size_t count, const tu_value *wrt) {
    if (!scalar.graph) return tu_fail(TU_INVALID, "gradients: the value to differentiate was never set");
    TU_TRY(tu_graph_status(scalar.graph));
    tu_type type = tu_value_type(scalar);
    if (!tu_ok(scalar) || !tu_dtype_is_float(type.dtype) || tu_shape_elements(type.shape) != 1)
        return tu_fail(
            TU_INVALID,
            "gradients of '%s' %s: expected a scalar of a floating-point type (sum or mean it first)",
            tu_value_name(scalar), tu__type_string(type));
    for (size_t i = 0; i < count; i++) {
        if (wrt[i].graph != scalar.graph || !tu_ok(wrt[i]))
            return tu_fail(TU_INVALID,
                           "gradients of '%s': value %zu to differentiate by is not of the same graph",
                           tu_value_name(scalar), i);
        if (!tu_dtype_is_float(tu_value_dtype(wrt[i])))
            return tu_fail(TU_INVALID, "gradients of '%s' by '%s' %s: expected a floating-point type",
                           tu_value_name(scalar), tu_value_name(wrt[i]),
                           tu__type_string(tu_value_type(wrt[i])));
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
    /* The seed is made before the walk's range is fixed; being a leaf that nothing leads to, it does no harm. */
    TU_TRY(tu__backpropagate(graph, 0, 1, &scalar, &one, count, wrt, gradients));
    for (size_t i = 0; i < count; i++)
        if (!tu_ok(gradients[i])) gradients[i] = tu__zeros_like(wrt[i]);
    return tu_graph_status(graph);
}
