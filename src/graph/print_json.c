/* Prints a graph as JSON.
 *
 *     {"training": true,
 *      "nodes": [{"id": 12, "name": "conv1/conv2d", "op": "conv2d", "inputs": [{"node": 3, "output": 0}, …],
 *                 "attributes": {"stride": [1, 1], …}, "outputs": [{"dtype": "f32", "shape": [128, 24, 24, 64]}]}, …],
 *      "results": [{"name": "loss", "node": 43, "output": 0}]}
 *
 * A constant has "values", a flat array. A custom operation has "custom", its registered name. A node with an
 * assigned device has "device". Nodes that the backward pass recomputes have "recompute", the copies "recomputed".
 * Infinities and NaN are null. */
#include <string.h>

#include <tutti/custom.h>

#include "base/number.h"
#include "graph/attrs.h"
#include "graph/print.h"

static void put_shape(tu_json *json, const char *key, tu_shape shape) {
    tu_json_begin_array(json, key);
    for (int64_t i = 0; i < shape.rank; i++) tu_json_i64(json, NULL, shape.dim[i]);
    tu_json_end_array(json);
}

static void put_axes(tu_json *json, const char *key, int64_t mask) {
    tu_json_begin_array(json, key);
    for (int axis = 0; axis < TU_MAX_RANK; axis++)
        if (mask >> axis & 1) tu_json_i64(json, NULL, axis);
    tu_json_end_array(json);
}

static void put_element(tu_json *json, const char *key, tu__field field, uint32_t index) {
    const char *choice = tu__field_choice(field, index);
    switch (field.attr->kind) {
    case TU__ATTR_I64:
        if (choice)
            tu_json_string(json, key, choice);
        else
            tu_json_i64(json, key, tu__field_i64(field, index));
        break;
    case TU__ATTR_F64: tu_json_f64(json, key, tu__field_f64(field, index)); break;
    case TU__ATTR_BOOL: tu_json_bool(json, key, tu__field_i64(field, index) != 0); break;
    case TU__ATTR_DTYPE:
        tu_json_string(json, key, tu_dtype_name((tu_dtype)tu__field_i64(field, index)));
        break;
    case TU__ATTR_SHAPE: put_shape(json, key, tu__field_shape(field, index)); break;
    case TU__ATTR_AXES: put_axes(json, key, tu__field_i64(field, index)); break;
    }
}

static void put_attributes(tu_json *json, const tu__node *node) {
    tu_json_begin_object(json, "attributes");
    for (tu__field f = tu__first_field(node->op, node->attrs); f.attr; f = tu__next_field(f)) {
        if (f.attr->count == 1) {
            put_element(json, f.attr->name, f, 0);
            continue;
        }
        tu_json_begin_array(json, f.attr->name);
        for (uint32_t i = 0; i < f.attr->count; i++) put_element(json, NULL, f, i);
        tu_json_end_array(json);
    }
    tu_json_end_object(json);
}

static void put_values(tu_json *json, const tu__node *node) {
    tu_type type = node->outputs[0];
    int64_t count = tu_shape_elements(type.shape);
    tu_json_begin_array(json, "values");
    for (int64_t i = 0; i < count; i++) {
        if (type.dtype == TU_I64) { /* doubles are exact only up to 2^53 */
            int64_t value;
            memcpy(&value, (const char *)node->data + i * (int64_t)sizeof value, sizeof value);
            tu_json_i64(json, NULL, value);
        } else {
            tu_json_f64(json, NULL, tu__load(type.dtype, node->data, i));
        }
    }
    tu_json_end_array(json);
}

static void put_edge(tu_json *json, tu__edge edge) {
    tu_json_u64(json, "node", edge.node);
    tu_json_u64(json, "output", edge.output);
}

static void put_node(tu_json *json, const tu__node *node) {
    tu_json_begin_object(json, NULL);
    tu_json_u64(json, "id", node->id);
    tu_json_string(json, "name", node->name);
    tu_json_string(json, "op", node->op->name);
    if (node->custom) tu_json_string(json, "custom", node->custom->name);
    if (node->device) tu_json_string(json, "device", node->device);
    tu_json_begin_array(json, "inputs");
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu_json_begin_object(json, NULL);
        put_edge(json, node->inputs[i]);
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
    put_attributes(json, node);
    tu_json_begin_array(json, "outputs");
    for (uint32_t i = 0; i < node->output_count; i++) {
        tu_json_begin_object(json, NULL);
        tu_json_string(json, "dtype", tu_dtype_name(node->outputs[i].dtype));
        put_shape(json, "shape", node->outputs[i].shape);
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
    if (node->data) put_values(json, node);
    if (node->flags & TU__NODE_RECOMPUTE) tu_json_bool(json, "recompute", true);
    if (node->flags & TU__NODE_RECOMPUTED) tu_json_bool(json, "recomputed", true);
    if (node->group) tu_json_u64(json, "group", node->group);
    if (node->after_count) {
        tu_json_begin_array(json, "after");
        for (uint32_t i = 0; i < node->after_count; i++) tu_json_u64(json, NULL, node->after[i]);
        tu_json_end_array(json);
    }
    tu_json_end_object(json);
}

void tu__print_json(tu_json *json, const tu_graph *graph) {
    tu_json_begin_object(json, NULL);
    tu_json_bool(json, "training", graph->training);
    tu_json_begin_array(json, "nodes");
    for (uint32_t i = 0; i < graph->node_count; i++) put_node(json, graph->nodes[i]);
    tu_json_end_array(json);
    tu_json_begin_array(json, "results");
    for (uint32_t i = 0; i < graph->result_count; i++) {
        tu_json_begin_object(json, NULL);
        tu_json_string(json, "name", graph->results[i].name);
        put_edge(json, graph->results[i].value);
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
    if (graph->status != TU_OK) tu_json_string(json, "mistake", graph->message);
    tu_json_end_object(json);
}
