/* Freezing a graph, in five steps:
 *
 *   constants   variables become constants with shared data, so that copying the graph copies no weights
 *   simplify    computes what depends on constants alone, such as the scale of a batch normalisation
 *   scales      are folded into the weights before them (fold_scale.c)
 *   precision   inserts casts where half precision is requested
 *   simplify    computes the casts of weights
 *
 * The values differ from those of the graph by the rounding of the folded weights. */
#include "infer/freeze.h"

#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/names.h"
#include "pass/pass.h"

/* The values of variables, by name. */
typedef struct variable_values {
    const tu__named_tensor *variables;
    tu__name_table *names;
} variable_values;

static tu_status index_variables(size_t count, const tu__named_tensor *variables, variable_values *values) {
    *values = (variable_values){variables, tu__names_new()};
    if (!values->names) return TU_NO_MEMORY;
    for (size_t i = 0; i < count; i++) TU_TRY(tu__names_add(values->names, variables[i].name, (uint32_t)i));
    return TU_OK;
}

/* Makes the constant that replaces a variable. */
static tu_status replace_variable(tu__rewrite *r, const tu__node *node, const variable_values *values) {
    tu_type type = node->outputs[0];
    uint32_t index;
    if (!tu__names_find(values->names, node->name, &index))
        return tu_fail(TU_NOT_FOUND, "there is no value for variable '%s' %s", node->name,
                       tu__type_string(type));
    const tu__named_tensor *variable = &values->variables[index];
    if (variable->type.dtype != type.dtype || !tu_shape_equal(variable->type.shape, type.shape))
        return tu_fail(TU_INVALID, "variable '%s' is %s: expected %s", node->name,
                       tu__type_string(variable->type), tu__type_string(type));
    size_t bytes = tu_type_bytes(variable->type);
    tu__shared_data *data = tu__shared_data_new(bytes, node->name);
    if (!data) return TU_NO_MEMORY;
    memcpy(data->data, variable->data, bytes);
    struct tu__constant_attrs attrs = {.dtype = variable->type.dtype, .shape = variable->type.shape};
    tu_value constant = tu__rewrite_make(
        r, node, &(tu__node_request){.op = TU__OP_CONSTANT, .attrs = &attrs, .shared = data});
    tu__shared_data_release(data);
    TU_TRY(tu_graph_status(r->to));
    tu__rewrite_map(r, (tu__edge){node->id, 0}, constant);
    return TU_OK;
}

static tu_status check_operation(const tu__node *node) {
    bool is_training = node->op->code == TU__OP_ASSIGN || node->op->code == TU__OP_BATCH_NORM;
    if (!(node->op->traits & (TU__RANDOM | TU__COLLECTIVE)) && !is_training) return TU_OK;
    return tu_fail(TU_UNSUPPORTED,
                   "%s '%s' cannot be part of a model, which only computes its results from its inputs and "
                   "variables: build the graph with tu_set_training(graph, false)",
                   node->op->name, node->name);
}

static tu_status replace_variables(tu__unit *unit, const variable_values *values) {
    tu__rewrite r;
    TU_TRY(tu__rewrite_begin(&r, unit->graph));
    tu_status status = TU_OK;
    for (uint32_t i = 0; i < unit->graph->node_count && status == TU_OK; i++) {
        const tu__node *node = unit->graph->nodes[i];
        status = check_operation(node);
        if (status == TU_OK)
            status = node->op->code == TU__OP_VARIABLE ? replace_variable(&r, node, values)
                                                       : tu__rewrite_copy(&r, node);
    }
    if (status == TU_OK) return tu__rewrite_finish(&r, unit);
    tu__rewrite_abandon(&r);
    return status;
}

static tu_status freeze_unit(tu__unit *unit, size_t count, const tu__named_tensor *variables) {
    variable_values values;
    TU_TRY(tu__unit_drop_dead(unit));
    tu_status status = index_variables(count, variables, &values);
    if (status == TU_OK) status = replace_variables(unit, &values);
    tu__names_free(values.names);
    TU_TRY(status);
    TU_TRY(tu__pass_simplify(unit));
    TU_TRY(tu__fold_scales(unit));
    TU_TRY(tu__pass_precision(unit));
    return tu__pass_simplify(unit);
}

tu_status tu__freeze(const tu_graph *graph, size_t count, const tu__named_tensor *variables,
                     tu__precision precision, tu_graph **frozen) {
    *frozen = NULL;
    tu_value *results = tu__alloc_array((size_t)graph->result_count + 1, sizeof *results, "a model");
    if (!results) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->result_count; i++)
        results[i] =
            tu__value((tu_graph *)graph, graph->results[i].value.node, graph->results[i].value.output);
    tu__unit unit;
    tu_status status = tu__unit_begin(&unit, graph, graph->result_count, results, false);
    tu__free(results);
    TU_TRY(status);
    unit.graph->is_frozen = true;
    unit.precision = precision;
    status = freeze_unit(&unit, count, variables);
    if (status == TU_OK) {
        *frozen = unit.graph;
        unit.graph = NULL;
    }
    tu__unit_end(&unit);
    return status;
}
