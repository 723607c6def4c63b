/* Printing a graph: tu_graph_print, and the text format with one node per line.
 *
 *     %12 conv1/conv2d = conv2d(%3, %11) stride=[1,1] pad=[2,2,2,2] : f32[128,24,24,64]
 *
 * means: node 12, called conv1/conv2d, is the operation conv2d with nodes 3 and 11 as inputs, these attributes and
 * this output type. "%9:1" is output 1 of node 9; "@cpu:0" is the device assigned to a node. Attributes that are zero
 * or repeat the type are omitted. Results follow as "result loss = %43". A graph with an error prints the nodes built
 * before it, and the error in the last line. */
#include "graph/print.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <tutti/custom.h>

#include "base/number.h"
#include "graph/attrs.h"

/* Maximum number of elements shown per constant. */
enum { SHOWN_ELEMENTS = 8 };

void tu__print_number(tu__text *text, double number) {
    if (isnan(number)) {
        tu__text_printf(text, "nan");
    } else if (isinf(number)) {
        tu__text_printf(text, number < 0 ? "-inf" : "inf");
    } else {
        tu_json json = tu__json_to_text(text); /* shortest digits, independent of the locale */
        tu_json_f64(&json, NULL, number);
    }
}

/* ---- Attributes ---- */

static void print_axes(tu__text *text, int64_t mask) {
    const char *comma = "";
    tu__text_printf(text, "[");
    for (int axis = 0; axis < TU_MAX_RANK; axis++) {
        if (!(mask >> axis & 1)) continue;
        tu__text_printf(text, "%s%d", comma, axis);
        comma = ",";
    }
    tu__text_printf(text, "]");
}

static void print_element(tu__text *text, tu__field field, uint32_t index) {
    const char *choice = tu__field_choice(field, index);
    switch (field.attr->kind) {
    case TU__ATTR_I64:
        if (choice)
            tu__text_printf(text, "%s", choice);
        else
            tu__text_printf(text, "%" PRId64, tu__field_i64(field, index));
        break;
    case TU__ATTR_F64: tu__print_number(text, tu__field_f64(field, index)); break;
    case TU__ATTR_BOOL: tu__text_printf(text, tu__field_i64(field, index) ? "true" : "false"); break;
    case TU__ATTR_DTYPE:
        tu__text_printf(text, "%s", tu_dtype_name((tu_dtype)tu__field_i64(field, index)));
        break;
    case TU__ATTR_SHAPE: tu__text_shape(text, tu__field_shape(field, index)); break;
    case TU__ATTR_AXES: print_axes(text, tu__field_i64(field, index)); break;
    }
}

/* True if the attribute repeats the type at the end of the line. */
static bool repeats_type(tu__field field, tu_type type) {
    if (field.attr->kind == TU__ATTR_DTYPE) return tu__field_i64(field, 0) == (int64_t)type.dtype;
    if (field.attr->kind == TU__ATTR_SHAPE) return tu_shape_equal(tu__field_shape(field, 0), type.shape);
    return false;
}

static void print_field(tu__text *text, const tu__node *node, tu__field field) {
    if (tu__field_is_zero(field) || repeats_type(field, node->outputs[0])) return;
    tu__text_printf(text, " %s=", field.attr->name);
    if (field.attr->count == 1) {
        print_element(text, field, 0);
        return;
    }
    /* Arrays with TU_MAX_RANK elements have one element per axis: print only those of existing axes. */
    uint32_t count = field.attr->count, rank = (uint32_t)node->outputs[0].shape.rank;
    if (count == TU_MAX_RANK && rank < count) count = rank;
    for (uint32_t i = 0; i < count; i++) {
        tu__text_printf(text, i ? "," : "[");
        print_element(text, field, i);
    }
    tu__text_printf(text, "]");
}

/* ---- Nodes ---- */

static void print_edge(tu__text *text, tu__edge edge) {
    tu__text_printf(text, "%%%" PRIu32, edge.node);
    if (edge.output) tu__text_printf(text, ":%" PRIu32, edge.output);
}

static void print_data(tu__text *text, const tu__node *node) {
    tu_type type = node->outputs[0];
    int64_t count = tu_shape_elements(type.shape), shown = count < SHOWN_ELEMENTS ? count : SHOWN_ELEMENTS;
    tu__text_printf(text, " value=[");
    for (int64_t i = 0; i < shown; i++) {
        if (i) tu__text_printf(text, ",");
        tu__print_number(text, tu__load(type.dtype, node->data, i));
    }
    tu__text_printf(text, shown < count ? ",...]" : "]");
}

static void print_types(tu__text *text, const tu__node *node) {
    tu__text_printf(text, node->output_count > 1 ? " : (" : " : ");
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (i) tu__text_printf(text, ", ");
        tu__text_type(text, node->outputs[i]);
    }
    if (node->output_count > 1) tu__text_printf(text, ")");
}

void tu__print_node(tu__text *text, const tu__node *node) {
    tu__text_printf(text, "%%%" PRIu32 " %s = %s", node->id, node->name, node->op->name);
    if (node->custom) tu__text_printf(text, " \"%s\"", node->custom->name);
    tu__text_printf(text, "(");
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (i) tu__text_printf(text, ", ");
        print_edge(text, node->inputs[i]);
    }
    tu__text_printf(text, ")");
    if (node->device) tu__text_printf(text, " @%s", node->device);
    for (tu__field f = tu__first_field(node->op, node->attrs); f.attr; f = tu__next_field(f))
        print_field(text, node, f);
    if (node->data) print_data(text, node);
    if (node->flags & TU__NODE_RECOMPUTE) tu__text_printf(text, " recompute");
    if (node->flags & TU__NODE_RECOMPUTED) tu__text_printf(text, " recomputed");
    if (node->group) tu__text_printf(text, " group=%" PRIu32, node->group);
    for (uint32_t i = 0; i < node->after_count; i++)
        tu__text_printf(text, "%s%%%" PRIu32, i ? "," : " after=", node->after[i]);
    print_types(text, node);
}

void tu__print_text(tu__text *text, const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++) {
        tu__print_node(text, graph->nodes[i]);
        tu__text_printf(text, "\n");
    }
    for (uint32_t i = 0; i < graph->result_count; i++) {
        tu__text_printf(text, "result %s = ", graph->results[i].name);
        print_edge(text, graph->results[i].value);
        tu__text_printf(text, "\n");
    }
    if (graph->status != TU_OK) tu__text_printf(text, "mistake: %s\n", graph->message);
}

/* ---- tu_graph_print ---- */

static tu_status fail_write(void) {
    return tu_fail(TU_IO, "cannot write the graph: %s", errno ? strerror(errno) : "a write failed");
}

static tu_status print_as_json(const tu_graph *graph, FILE *out) {
    tu_json json = tu_json_to_file(out);
    tu__print_json(&json, graph);
    return tu_json_finish(&json) && fputc('\n', out) != EOF ? TU_OK : fail_write();
}

static tu_status print_as_text(const tu_graph *graph, void (*print)(tu__text *, const tu_graph *),
                               FILE *out) {
    tu__text text = {0};
    print(&text, graph);
    tu_status status = text.failed ? TU_NO_MEMORY : TU_OK;
    if (status == TU_OK && fwrite(tu__text_string(&text), 1, text.length, out) != text.length)
        status = fail_write();
    tu__text_free(&text);
    return status;
}

tu_status tu_graph_print(const tu_graph *graph, tu_graph_format format, FILE *out) {
    if (!graph) return tu_graph_status(graph);
    errno = 0;
    switch (format) {
    case TU_GRAPH_TEXT: return print_as_text(graph, tu__print_text, out);
    case TU_GRAPH_DOT: return print_as_text(graph, tu__print_dot, out);
    case TU_GRAPH_JSON: return print_as_json(graph, out);
    }
    return tu_fail(TU_INVALID,
                   "unknown graph format %d: expected TU_GRAPH_TEXT, TU_GRAPH_DOT or TU_GRAPH_JSON",
                   (int)format);
}
