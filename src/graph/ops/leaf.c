/* Leaves and state: inputs, constants, variables and assignments.
 *
 * A variable's node returns the value at the beginning of the run; all assignments take effect at its end. So reads
 * and writes need no order. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* ---- Rules ---- */

static tu_status leaf_shape(tu__rule *rule, int64_t dtype, tu_shape shape) {
    if (dtype < 0 || dtype >= TU_DTYPE_COUNT)
        return tu__rule_fail(rule, "unknown element type %d", (int)dtype);
    if (!tu__shape_valid(shape))
        return tu__rule_fail(
            rule,
            "shape %s: expected at most %d dimensions, each at least 1, and at most 2^48 elements in total",
            tu__shape_string(shape), TU_MAX_RANK);
    rule->out[0] = (tu_type){.dtype = (tu_dtype)dtype, .shape = shape};
    return TU_OK;
}

tu_status tu__input_shape(tu__rule *rule) {
    const struct tu__input_attrs *a = rule->attrs;
    if (a->batched && a->shape.rank < 1)
        return tu__rule_fail(rule, "a batch input is a scalar, expected at least 1 axis, the samples");
    bool is_sample_ordinal = strcmp(rule->name, "sample_ordinal") == 0;
    if (is_sample_ordinal && (a->dtype != TU_I64 || a->shape.rank != 1 || !a->batched))
        return tu__rule_fail(
            rule,
            "the name is reserved for sample indices, a batch input i64[samples]: use tu_sample_ordinals");
    return leaf_shape(rule, a->dtype, a->shape);
}

tu_status tu__constant_shape(tu__rule *rule) {
    const struct tu__constant_attrs *a = rule->attrs;
    return leaf_shape(rule, a->dtype, a->shape);
}

tu_status tu__fill_shape(tu__rule *rule) {
    const struct tu__fill_attrs *a = rule->attrs;
    return leaf_shape(rule, a->dtype, a->shape);
}

tu_status tu__variable_shape(tu__rule *rule) {
    const struct tu__variable_attrs *a = rule->attrs;
    if (a->init < TU_INIT_DEFAULT || a->init > TU_INIT_HE_NORMAL)
        return tu__rule_fail(rule, "unknown initialiser %d", (int)a->init);
    bool is_random = a->init >= TU_INIT_UNIFORM;
    if (is_random && !tu_dtype_is_float((tu_dtype)a->dtype))
        return tu__rule_fail(rule,
                             "a random initialiser needs a floating-point type: use zeros or a constant");
    if (!isfinite(a->a) || !isfinite(a->b))
        return tu__rule_fail(rule, "the initialiser's numbers are %g and %g, expected finite numbers", a->a,
                             a->b);
    if (a->fan_in < 0 || a->fan_out < 0)
        return tu__rule_fail(rule, "fan_in is %" PRId64 " and fan_out is %" PRId64 ", expected at least 0",
                             a->fan_in, a->fan_out);
    return leaf_shape(rule, a->dtype, a->shape);
}

tu_status tu__assign_shape(tu__rule *rule) {
    if (rule->in[0].dtype != rule->in[1].dtype || !tu_shape_equal(rule->in[0].shape, rule->in[1].shape))
        return tu__rule_fail(rule, "the types differ, expected a value of the variable's type");
    rule->out[0] = rule->in[0];
    return TU_OK;
}

tu_status tu__copy_shape(tu__rule *rule) {
    rule->out[0] = rule->in[0];
    return TU_OK;
}

tu_status tu__stop_gradient_shape(tu__rule *rule) {
    rule->out[0] = rule->in[0];
    return TU_OK;
}

/* ---- Gradients ---- */

void tu__copy_gradient(tu__vjp *vjp) {
    tu__vjp_accumulate(vjp, 0, tu__vjp_gradient(vjp, 0));
}

/* ---- Reference kernels. Inputs and variables are set before any kernel runs; these two report that it did not
 * happen. ---- */

tu_status tu__input_reference(const tu__reference_call *m) {
    return tu_fail(TU_INVALID, "input '%s' %s was not fed", m->node->name,
                   tu__type_string(m->node->outputs[0]));
}

tu_status tu__variable_reference(const tu__reference_call *m) {
    return tu_fail(TU_NOT_FOUND, "variable '%s' is not in the state", m->node->name);
}

tu_status tu__constant_reference(const tu__reference_call *m) {
    tu_type type = m->out[0].type;
    tu__load_array(type.dtype, m->node->data, tu_shape_elements(type.shape), m->out[0].data);
    return TU_OK;
}

tu_status tu__fill_reference(const tu__reference_call *m) {
    const struct tu__fill_attrs *a = m->attrs;
    int64_t count = tu_shape_elements(m->out[0].type.shape);
    for (int64_t i = 0; i < count; i++) m->out[0].data[i] = a->number;
    return TU_OK;
}

static tu_status copy_input(const tu__reference_call *m, int input) {
    size_t count = (size_t)tu_shape_elements(m->out[0].type.shape);
    memcpy(m->out[0].data, m->in[input].data, count * sizeof(double));
    return TU_OK;
}

tu_status tu__assign_reference(const tu__reference_call *m) {
    return copy_input(m, 1);
}

tu_status tu__copy_reference(const tu__reference_call *m) {
    return copy_input(m, 0);
}

tu_status tu__stop_gradient_reference(const tu__reference_call *m) {
    return copy_input(m, 0);
}

/* ---- Builders ---- */

static tu_value make_input(tu_graph *graph, const char *name, tu_dtype dtype, tu_shape shape, bool batched) {
    struct tu__input_attrs a = {.dtype = dtype, .shape = shape, .batched = batched};
    return tu__make(graph,
                    &(tu__node_request){.op = TU__OP_INPUT, .name = name, .exact_name = true, .attrs = &a});
}

tu_value tu_input(tu_graph *graph, const char *name, tu_dtype dtype, tu_shape shape) {
    return make_input(graph, name, dtype, shape, false);
}

tu_value tu_batch_input(tu_graph *graph, const char *name, tu_dtype dtype, tu_shape shape) {
    return make_input(graph, name, dtype, shape, true);
}

/* Returns the graph's node `name`; adds it on first use, outside of any scope. */
static tu_value find_or_add_leaf(tu_graph *graph, const char *name, const tu__node_request *request) {
    const tu__node *node = tu__find_node(graph, name);
    if (node) return tu__value(graph, node->id, 0);
    char *scope;
    if (tu__scope_replace(graph, "", &scope) != TU_OK)
        return tu__graph_fail(graph, TU_NO_MEMORY, "%s", tu_message());
    tu_value value = tu__make(graph, request);
    tu_status status = tu__scope_replace(graph, scope, NULL);
    tu__free(scope);
    return status == TU_OK ? value : tu__graph_fail(graph, status, "%s", tu_message());
}

tu_value tu_sample_ordinals(tu_graph *graph, int64_t samples) {
    if (!graph || graph->status != TU_OK) return tu__invalid(graph);
    struct tu__input_attrs a = {.dtype = TU_I64, .shape = TU_SHAPE(samples), .batched = true};
    tu_value value = find_or_add_leaf(
        graph, "sample_ordinal",
        &(tu__node_request){.op = TU__OP_INPUT, .name = "sample_ordinal", .exact_name = true, .attrs = &a});
    if (tu_ok(value) && tu_value_shape(value).dim[0] != samples)
        return tu__graph_fail(
            graph, TU_INVALID,
            "%" PRId64
            " samples requested, but 'sample_ordinal' is %s: all per-sample random numbers of a graph must have "
            "the same number of samples",
            samples, tu__type_string(tu_value_type(value)));
    return value;
}

tu_value tu_step(tu_graph *graph) {
    if (!graph || graph->status != TU_OK) return tu__invalid(graph);
    struct tu__variable_attrs a = {.dtype = TU_I64, .shape = TU_SCALAR, .frozen = true};
    return find_or_add_leaf(
        graph, "step",
        &(tu__node_request){.op = TU__OP_VARIABLE, .name = "step", .exact_name = true, .attrs = &a});
}

/* Returns the index of the first byte that is neither 0 nor 1; -1 if there is none. */
static int64_t find_invalid_bool(const unsigned char *data, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (data[i] > 1) return i;
    return -1;
}

tu_value tu_constant(tu_graph *graph, tu_dtype dtype, tu_shape shape, const void *data) {
    struct tu__constant_attrs a = {.dtype = dtype, .shape = shape};
    if (!data && graph) return tu__graph_fail(graph, TU_INVALID, "constant: data is NULL");
    if (graph && dtype == TU_BOOL && tu__shape_valid(shape)) {
        int64_t index = find_invalid_bool(data, tu_shape_elements(shape));
        if (index >= 0)
            return tu__graph_fail(graph, TU_INVALID,
                                  "constant of bool%s: element %" PRId64 " is %u, expected 0 or 1",
                                  tu__shape_string(shape), index, ((const unsigned char *)data)[index]);
    }
    return tu__make(graph, &(tu__node_request){.op = TU__OP_CONSTANT, .attrs = &a, .data = data});
}

tu_value tu_fill(tu_graph *graph, tu_dtype dtype, tu_shape shape, double number) {
    struct tu__fill_attrs a = {.dtype = dtype, .shape = shape, .number = number};
    return tu__make(graph, &(tu__node_request){.op = TU__OP_FILL, .attrs = &a});
}

tu_value tu_number(tu_value like, double number) {
    if (!tu_ok(like)) return tu__invalid(like.graph);
    return tu_fill(like.graph, tu_value_dtype(like), TU_SCALAR, number);
}

tu_value tu_variable_with(tu_graph *graph, const char *name, tu_dtype dtype, tu_shape shape,
                          const tu_variable_options *options) {
    TU__OPTIONS(tu_variable_options, o, options);
    struct tu__variable_attrs a = {.dtype = dtype,
                                   .shape = shape,
                                   .init = o.init.kind,
                                   .a = o.init.a,
                                   .b = o.init.b,
                                   .fan_in = o.init.fan_in,
                                   .fan_out = o.init.fan_out,
                                   .frozen = o.frozen};
    return tu__make(
        graph, &(tu__node_request){.op = TU__OP_VARIABLE, .name = name, .exact_name = true, .attrs = &a});
}

size_t tu_trainable(tu_graph *graph, size_t capacity, tu_value *values) {
    size_t count = 0;
    for (uint32_t i = 0; graph && i < graph->node_count; i++) {
        const tu__node *node = graph->nodes[i];
        if (node->op->code != TU__OP_VARIABLE || tu__attrs(node, variable)->frozen) continue;
        if (!tu_dtype_is_float(node->outputs[0].dtype)) continue;
        if (count < capacity) values[count] = tu__value(graph, i, 0);
        count++;
    }
    return count;
}

tu_value tu_assign(tu_value variable, tu_value value) {
    if (!tu_ok(variable) || !tu_ok(value)) return tu__invalid(variable.graph);
    tu_graph *graph = variable.graph;
    const tu__node *target = tu__node_of(variable);
    if (target->op->code != TU__OP_VARIABLE)
        return tu__graph_fail(graph, TU_INVALID, "assign to '%s': the node is a %s, expected a variable",
                              target->name, target->op->name);
    for (uint32_t i = target->id + 1; target->is_assigned && i < graph->node_count; i++)
        if (graph->nodes[i]->op->code == TU__OP_ASSIGN && graph->nodes[i]->inputs[0].node == target->id)
            return tu__graph_fail(graph, TU_INVALID,
                                  "assign to '%s': the variable is already assigned by '%s'", target->name,
                                  graph->nodes[i]->name);
    return tu__apply(ASSIGN, NULL, variable, value);
}

/* Replaces the assignment by stop_gradient, which also returns its input without a gradient. The value is the last
 * input. */
void tu__cancel_assign(tu_graph *graph, uint32_t id) {
    tu__node *node = graph->nodes[id];
    graph->nodes[node->inputs[0].node]->is_assigned = false;
    node->op = tu__op_get(TU__OP_STOP_GRADIENT);
    node->inputs++;
    node->input_count = 1;
}

tu_value tu_copy(tu_value value) {
    return tu__apply(COPY, NULL, value);
}

tu_value tu_stop_gradient(tu_value value) {
    return tu__apply(STOP_GRADIENT, NULL, value);
}
