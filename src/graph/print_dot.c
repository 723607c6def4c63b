/* Prints a graph in DOT, the language of Graphviz.
 *
 *     tutti graph tutorial-cnn --format dot | dot -Tsvg > tutorial-cnn.svg
 *
 * Scopes are nested clusters ("boxes"), node shapes depend on the operation, frame colours on the device, edges are
 * labelled with types, and a node's tooltip is its line of the text format. The nodes are sorted by name, so that
 * those of a scope are adjacent and each box is opened and closed once. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/print.h"

/* Maximum depth of nested boxes; deeper scopes become part of the node's label. */
enum { MAX_SCOPE_DEPTH = 16 };

static const struct {
    tu__opcode code;
    const char *style;
} styles[] = {
    {TU__OP_INPUT, "shape=parallelogram, fillcolor=\"#cfe2f3\""},
    {TU__OP_VARIABLE, "shape=cylinder, fillcolor=\"#fff2cc\""},
    {TU__OP_ASSIGN, "shape=cds, fillcolor=\"#fce5cd\""},
    {TU__OP_CONSTANT, "shape=note, fillcolor=\"#eeeeee\""},
    {TU__OP_FILL, "shape=note, fillcolor=\"#eeeeee\""},
    {TU__OP_RANDOM, "shape=hexagon, fillcolor=\"#ead1dc\""},
    {TU__OP_CUSTOM, "shape=component"},
};

/* Frame colours of devices, in the order in which the devices occur. */
static const char *const device_colors[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                            "#ff7f0e", "#8c564b", "#e377c2", "#17becf"};
enum { COLORS = sizeof device_colors / sizeof *device_colors };

/* Writes the contents of a quoted string: escapes quotes and backslashes. */
static void put_escaped(tu__text *text, const char *string, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (string[i] == '"' || string[i] == '\\') tu__text_append(text, "\\", 1);
        tu__text_append(text, string + i, 1);
    }
}

static void indent(tu__text *text, int depth) {
    tu__text_printf(text, "%*s", 2 * (depth + 1), "");
}

/* ---- Nodes ---- */

typedef struct
    palette { /* the graph's devices in order of occurrence; devices beyond the last colour share it */
    const char *name[COLORS];
    size_t count;
} palette;

static void add_device(palette *devices, const char *name) {
    for (size_t i = 0; i < devices->count; i++)
        if (strcmp(devices->name[i], name) == 0) return;
    if (devices->count < COLORS) devices->name[devices->count++] = name;
}

static const char *color_of(const palette *devices, const char *name) {
    for (size_t i = 0; i < devices->count; i++)
        if (strcmp(devices->name[i], name) == 0) return device_colors[i];
    return device_colors[COLORS - 1];
}

/* Writes a node. The first `scope` characters of its name are the enclosing boxes' and omitted. */
static void put_node(tu__text *text, const tu__node *node, size_t scope, const palette *devices) {
    const char *local = node->name + scope;
    tu__text_printf(text, "n%" PRIu32 " [label=\"", node->id);
    put_escaped(text, local, strlen(local));
    if (strcmp(local, node->op->name) != 0) tu__text_printf(text, "\\n%s", node->op->name);
    if (node->device) {
        tu__text_printf(text, "\\n@");
        put_escaped(text, node->device, strlen(node->device));
    }
    tu__text_printf(text, "\", tooltip=\"");
    tu__text line = {0};
    tu__print_node(&line, node);
    put_escaped(text, tu__text_string(&line), line.length);
    if (line.failed) text->failed = true;
    tu__text_free(&line);
    tu__text_printf(text, "\"");
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        if (styles[i].code == node->op->code) tu__text_printf(text, ", %s", styles[i].style);
    if (node->device) tu__text_printf(text, ", color=\"%s\", penwidth=2", color_of(devices, node->device));
    tu__text_printf(text, "];\n");
}

/* ---- Scopes ---- */

typedef struct scope_boxes { /* the open boxes: the scopes in the first `length` characters of `path` */
    const char *path;
    size_t length;
    int depth;
} scope_boxes;

static void open_box(tu__text *text, scope_boxes *open) {
    size_t begin = open->length;
    open->length += strcspn(open->path + begin, "/") + 1;
    indent(text, open->depth++);
    tu__text_printf(text, "subgraph \"cluster_");
    put_escaped(text, open->path, open->length - 1);
    tu__text_printf(text, "\" {\n");
    indent(text, open->depth);
    tu__text_printf(text, "label=\"");
    put_escaped(text, open->path + begin, open->length - 1 - begin);
    tu__text_printf(text, "\";\n");
}

static void close_box(tu__text *text, scope_boxes *open) {
    indent(text, --open->depth);
    tu__text_printf(text, "}\n");
    open->length--; /* remove the slash, then the name before it */
    while (open->length > 0 && open->path[open->length - 1] != '/') open->length--;
}

/* Closes and opens boxes until the open ones are the scopes of `name`. */
static void enter_scope_of(tu__text *text, scope_boxes *open, const char *name) {
    const char *slash = strrchr(name, '/');
    size_t scope = slash ? (size_t)(slash - name) + 1 : 0;
    while (open->depth > 0 && (open->length > scope || strncmp(open->path, name, open->length) != 0))
        close_box(text, open);
    open->path = name;
    while (open->length < scope && open->depth < MAX_SCOPE_DEPTH) open_box(text, open);
}

static int compare_names(const void *a, const void *b) {
    const tu__node *const *left = a, *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

static void put_nodes(tu__text *text, const tu_graph *graph) {
    if (graph->node_count == 0) return;
    const tu__node **sorted = tu__alloc_array(graph->node_count, sizeof *sorted, "printing a graph");
    if (!sorted) {
        text->failed = true;
        return;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) sorted[i] = graph->nodes[i];
    qsort(sorted, graph->node_count, sizeof *sorted, compare_names);
    palette devices = {.count = 0};
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->device) add_device(&devices, graph->nodes[i]->device);
    scope_boxes open = {.path = ""};
    for (uint32_t i = 0; i < graph->node_count; i++) {
        enter_scope_of(text, &open, sorted[i]->name);
        indent(text, open.depth);
        put_node(text, sorted[i], open.length, &devices);
    }
    while (open.depth) close_box(text, &open);
    tu__free(sorted);
}

/* ---- Edges ---- */

static void put_edges(tu__text *text, const tu_graph *graph, const tu__node *node) {
    bool ordered = node->input_count > 1 && !(node->op->traits & TU__COMMUTES);
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu__edge edge = node->inputs[i];
        tu__text_printf(text, "  n%" PRIu32 " -> n%" PRIu32 " [label=\"", edge.node, node->id);
        if (edge.output) tu__text_printf(text, "%" PRIu32 ": ", edge.output);
        tu__text_type(text, graph->nodes[edge.node]->outputs[edge.output]);
        tu__text_printf(text, "\"");
        if (ordered) tu__text_printf(text, ", headlabel=\"%" PRIu32 "\"", i);
        tu__text_printf(text, "];\n");
    }
    for (uint32_t i = 0; i < node->after_count; i++)
        tu__text_printf(text, "  n%" PRIu32 " -> n%" PRIu32 " [style=dashed, label=\"before\"];\n",
                        node->after[i], node->id);
}

static void put_result(tu__text *text, const tu_graph *graph, uint32_t index) {
    const tu__named_value *result = &graph->results[index];
    tu__text_printf(text, "  r%" PRIu32 " [label=\"", index);
    put_escaped(text, result->name, strlen(result->name));
    tu__text_printf(
        text, "\", shape=doubleoctagon, fillcolor=\"#d9ead3\"];\n  n%" PRIu32 " -> r%" PRIu32 " [label=\"",
        result->value.node, index);
    tu__text_type(text, graph->nodes[result->value.node]->outputs[result->value.output]);
    tu__text_printf(text, "\"];\n");
}

void tu__print_dot(tu__text *text, const tu_graph *graph) {
    tu__text_printf(
        text, "digraph tutti {\n"
              "  graph [fontname=\"Helvetica\", fontsize=11, color=\"#999999\", style=rounded];\n"
              "  node [fontname=\"Helvetica\", fontsize=10, shape=box, style=filled, fillcolor=white];\n"
              "  edge [fontname=\"Helvetica\", fontsize=8, color=\"#555555\", fontcolor=\"#555555\"];\n");
    put_nodes(text, graph);
    for (uint32_t i = 0; i < graph->node_count; i++) put_edges(text, graph, graph->nodes[i]);
    for (uint32_t i = 0; i < graph->result_count; i++) put_result(text, graph, i);
    tu__text_printf(text, "}\n");
}
