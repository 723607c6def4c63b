/* Gradient accumulation over micro-batches: one program sums gradients, another applies them.
 *
 * The sums "gradient/NAME" are ordinary variables, so checkpoints between two micro-batches contain them. Each
 * gradient is weighted by the micro-batch's fraction of the batch, so the sum is the gradient of the batch's mean
 * loss, and clipping, guard and update rule work as for one large batch. */
#include <math.h>

#include <tutti/ops.h>

#include "base/pattern.h"
#include "base/sized.h"
#include "graph/graph.h"
#include "optim/optimizer.h"

/* Creates the variable "gradient/NAME". */
static tu_value gradient_sum(tu_value variable) {
    tu_type type = tu_value_type(variable);
    tu_value sum = variable;
    tu_scope(variable.graph, "gradient") sum =
        tu_variable(variable.graph, tu_value_name(variable), type.dtype, type.shape, .frozen = true);
    return sum;
}

/* ---- Summing ---- */

static tu_status sum_gradients(tu_value loss, double fraction, const char *freeze, const tu__gradients *list,
                               tu_value *finite) {
    tu_graph *graph = loss.graph;
    tu__guard guard = {tu_and(tu_is_finite(loss), tu_is_finite(tu__squared_norm(list)))};
    tu__guard_assignments(&guard, graph, freeze);
    for (size_t i = 0; i < list->count; i++) tu_with_device(graph, tu_value_device(list->variables[i])) {
            tu_value sum = gradient_sum(list->variables[i]);
            tu__guarded_assign(&guard, sum, tu_add(sum, tu_scale(list->gradients[i], fraction)));
        }
    if (finite) *finite = guard.apply_step;
    return tu_graph_status(graph);
}

tu_status tu_add_accumulation(tu_value loss, double share, const char *freeze, tu_value *finite) {
    tu__gradients list;
    char *saved_scope;
    if (finite) *finite = tu__invalid(loss.graph);
    if (!(share > 0) || !isfinite(share))
        return tu_fail(TU_INVALID,
                       "accumulation: share is %g, expected the micro-batch's fraction of the batch, above 0",
                       share);
    TU_TRY(tu__gradients_of(loss, freeze, &list));
    tu_status status = tu__leave_scopes(loss.graph, &saved_scope);
    if (status == TU_OK) {
        status = sum_gradients(loss, share, freeze, &list, finite);
        tu_status restored = tu__restore_scopes(loss.graph, saved_scope);
        if (status == TU_OK) status = restored;
    }
    tu__gradients_free(&list);
    return status;
}

/* ---- Applying ---- */

/* Returns the variable of the same name in `graph`; adds it if it does not exist. */
static tu_value find_or_add_variable(tu_graph *graph, const tu__node *node) {
    const tu__node *existing = tu__find_node(graph, node->name);
    if (existing && existing->op->code == TU__OP_VARIABLE) return tu__value(graph, existing->id, 0);
    return tu__make(graph, &(tu__node_request){.op = TU__OP_VARIABLE,
                                               .name = node->name,
                                               .exact_name = true,
                                               .attrs = node->attrs,
                                               .device = node->device});
}

static bool is_trained(const tu__node *node, const char *freeze) {
    return !tu__attrs(node, variable)->frozen && tu_dtype_is_float(node->outputs[0].dtype) &&
           !tu__pattern_matches(freeze, node->name);
}

/* Adds the network's variables to the graph, and lists the trained ones with their gradient sums. */
static tu_status copy_variables(tu_graph *graph, const tu_graph *network, const char *freeze,
                                tu__gradients *list) {
    TU_TRY(tu__gradients_new(network->node_count, list));
    list->count = 0;
    for (uint32_t i = 0; i < network->node_count; i++) {
        if (!tu__is_network_variable(network, i)) continue;
        tu_value variable = find_or_add_variable(graph, network->nodes[i]);
        if (!is_trained(network->nodes[i], freeze)) continue;
        list->variables[list->count] = variable;
        tu_with_device(graph, network->nodes[i]->device) list->gradients[list->count++] =
            gradient_sum(variable);
    }
    if (list->count == 0) return tu_fail(TU_INVALID, "apply: the network has no trainable variable");
    return tu_graph_status(graph);
}

/* Sets the sums to zero for the next batch, without the guard: also if they are non-finite. */
static tu_status clear_sums(const tu__gradients *list) {
    for (size_t i = 0; i < list->count; i++) {
        tu_value sum = list->gradients[i];
        tu_type type = tu_value_type(sum);
        tu_with_device(sum.graph, tu_value_device(sum))
            tu_assign(sum, tu_fill(sum.graph, type.dtype, type.shape, 0));
    }
    return tu_graph_status(list->gradients[0].graph);
}

static tu_status apply_sums(tu_graph *graph, const tu_graph *network, const tu__optimizer *optimizer,
                            tu_optimizer_values *values) {
    tu__gradients list;
    tu_status status = copy_variables(graph, network, optimizer->options.freeze, &list);
    tu__loss_scale none = tu__no_loss_scale(graph);
    if (status == TU_OK) status = tu__optimize(graph, optimizer, tu__invalid(graph), &none, &list, values);
    if (status == TU_OK) status = clear_sums(&list);
    tu__gradients_free(&list);
    return status;
}

tu_status tu_add_apply_with(tu_graph *graph, const tu_graph *network, tu_optimizer_values *values,
                            const tu_optimizer_options *options) {
    tu__optimizer optimizer;
    char *saved_scope;
    tu_value none = tu__invalid(graph);
    tu_optimizer_values full = {.rate = none, .gradient_norm = none, .finite = none};
    if (values) TU_TRY(TU__CHECK_SIZED(tu_optimizer_values, values));
    if (values) TU__COPY_SIZED(values, full);
    TU_TRY(tu_graph_status(graph));
    TU_TRY(tu_graph_status(network));
    TU_TRY(tu__optimizer_init(graph, options, &optimizer));
    if (optimizer.options.loss_scale > 0)
        return tu_fail(
            TU_UNSUPPORTED,
            "optimizer '%s': loss_scale is %g, expected 0: accumulated gradients do not support a loss scale",
            optimizer.rule->name, optimizer.options.loss_scale);
    TU_TRY(tu__leave_scopes(graph, &saved_scope));
    tu_status status = apply_sums(graph, network, &optimizer, values ? &full : NULL);
    if (values) TU__COPY_SIZED(values, full);
    tu_status restored = tu__restore_scopes(graph, saved_scope);
    return status == TU_OK ? restored : status;
}
