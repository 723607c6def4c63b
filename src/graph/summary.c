/* tu_graph_summary: prints a table of layers with parameters, FLOPs and activation sizes, and their totals.
 *
 * A row is a layer: the outermost scope that directly contains trainable variables (conv1, with conv1/weights and
 * conv1/bias). All nodes of an outermost scope without trainable variables (grad, optimizer) form one row. A
 * node outside of these scopes, such as a pooling between layers, is a row. Fills and constants belong to the row of
 * the first node that uses them.
 *
 * Activation sizes assume that all activations are kept until the end of the run. This is what training without
 * recomputation needs, and an upper bound of the memory plan. */
#include "graph/summary.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "base/text.h"
#include "graph/names.h"

/* ---- Costs of a node ---- */

/* Adds with saturation at INT64_MAX: sizes in hostile graph files may overflow. */
static int64_t add_saturating(int64_t a, int64_t b) {
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

int64_t tu__node_flops(const tu_graph *graph, const tu__node *node, tu_type *input_types) {
    if (node->input_count == 0 || (node->op->traits & (TU__LEAF | TU__EFFECT | TU__VIEW))) return 0;
    if (!node->op->flops) {
        int64_t elements = 0;
        for (uint32_t i = 0; i < node->output_count; i++)
            elements = add_saturating(elements, tu_shape_elements(node->outputs[i].shape));
        return elements;
    }
    for (uint32_t i = 0; i < node->input_count; i++)
        input_types[i] = graph->nodes[node->inputs[i].node]->outputs[node->inputs[i].output];
    return node->op->flops(node, input_types);
}

int64_t tu__node_activation_bytes(const tu__node *node) {
    if (node->op->code == TU__OP_VARIABLE || node->op->code == TU__OP_CONSTANT) return 0;
    if (node->op->traits & (TU__EFFECT | TU__VIEW)) return 0;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < node->output_count; i++)
        bytes = add_saturating(bytes, (int64_t)tu_type_bytes(node->outputs[i]));
    return bytes;
}

static bool is_trainable(const tu__node *node) {
    return node->op->code == TU__OP_VARIABLE && !tu__attrs(node, variable)->frozen &&
           tu_dtype_is_float(node->outputs[0].dtype);
}

static void count_node(tu_graph_totals *totals, const tu_graph *graph, const tu__node *node,
                       tu_type *input_types) {
    totals->nodes++;
    totals->flops = add_saturating(totals->flops, tu__node_flops(graph, node, input_types));
    totals->activation_bytes = add_saturating(totals->activation_bytes, tu__node_activation_bytes(node));
    if (node->op->code != TU__OP_VARIABLE) return;
    totals->variables++;
    totals->variable_bytes = add_saturating(totals->variable_bytes, (int64_t)tu_type_bytes(node->outputs[0]));
    if (is_trainable(node))
        totals->parameters = add_saturating(totals->parameters, tu_shape_elements(node->outputs[0].shape));
}

/* Allocates space for the input types of any node. */
static tu_type *alloc_input_types(const tu_graph *graph) {
    size_t max_inputs = 1;
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->input_count > max_inputs) max_inputs = graph->nodes[i]->input_count;
    return tu__alloc_array(max_inputs, sizeof(tu_type), "the costs of a graph");
}

tu_status tu_graph_total(const tu_graph *graph, tu_graph_totals *totals) {
    tu_graph_totals full = TU_SIZED(tu_graph_totals);
    TU_TRY(TU__CHECK_SIZED(tu_graph_totals, totals));
    TU_TRY(tu_graph_status(graph));
    tu_type *input_types = alloc_input_types(graph);
    if (!input_types) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++) count_node(&full, graph, graph->nodes[i], input_types);
    tu__free(input_types);
    TU__COPY_SIZED(totals, full);
    return TU_OK;
}

/* ---- Rows ---- */

enum { MAX_SCOPE_DEPTH = 32 };

typedef struct row {
    const char *name;
    uint32_t output_node, output; /* the row's output: its value that a node of another row uses first */
    uint32_t first_use;           /* that node; TU_NO_NODE: none, `output_node` is the row's last operation */
    bool has_effects;             /* the row assigns variables */
    tu_graph_totals totals;
} row;

typedef struct table {
    const tu_graph *graph;
    tu__arena arena;           /* the rows' names */
    tu__name_table *layers;    /* scopes that directly contain trainable variables */
    tu__name_table *ancestors; /* scopes that contain these */
    tu__name_table *by_name;   /* name of a row -> its index */
    row *rows;                 /* in the order of their first nodes; at most one per node */
    uint32_t row_count;
    uint32_t *row_of_node; /* node -> row */
    uint32_t *used_by;     /* node -> the first node that uses it, or TU_NO_NODE */
} table;

static bool contains(const tu__name_table *names, const char *name) {
    uint32_t unused;
    return tu__names_find(names, name, &unused);
}

/* Returns the slash that ends the next scope in a name; NULL after the last. Ignores scopes deeper than
 * MAX_SCOPE_DEPTH, so that a name with many slashes does not take quadratic time. */
static const char *scope_end(const char *name, const char *after, int *depth) {
    return ++*depth > MAX_SCOPE_DEPTH ? NULL : strchr(after ? after + 1 : name, '/');
}

static char *copy_prefix(table *t, const char *name, size_t length) {
    char *copy = tu__arena_alloc(&t->arena, length + 1);
    if (copy) memcpy(copy, name, length);
    return copy;
}

static tu_status add_name(tu__name_table *names, const char *name) {
    return contains(names, name) ? TU_OK : tu__names_add(names, name, 0);
}

/* Adds the scope of each trainable variable to `layers`, and the scopes that contain it to `ancestors`. */
static tu_status find_layers(table *t) {
    for (uint32_t i = 0; i < t->graph->node_count; i++) {
        const tu__node *node = t->graph->nodes[i];
        if (!is_trainable(node)) continue;
        int depth = 0;
        const char *next;
        for (const char *slash = scope_end(node->name, NULL, &depth); slash; slash = next) {
            next = scope_end(node->name, slash, &depth);
            char *scope = copy_prefix(t, node->name, (size_t)(slash - node->name));
            if (!scope) return TU_NO_MEMORY;
            TU_TRY(add_name(next ? t->ancestors : t->layers, scope));
        }
    }
    return TU_OK;
}

/* Returns the name of the row to which a node belongs by its name; NULL if memory runs out. */
static const char *row_name(table *t, const tu__node *node) {
    int depth = 0;
    for (const char *slash = NULL; (slash = scope_end(node->name, slash, &depth));) {
        char *scope = copy_prefix(t, node->name, (size_t)(slash - node->name));
        if (!scope) return NULL;
        if (contains(t->layers, scope) || !contains(t->ancestors, scope)) return scope;
    }
    return node->name;
}

static bool is_literal(const tu__node *node) {
    return node->op->code == TU__OP_FILL || node->op->code == TU__OP_CONSTANT;
}

static void find_users(table *t) {
    for (uint32_t i = 0; i < t->graph->node_count; i++) t->used_by[i] = TU_NO_NODE;
    for (uint32_t i = 0; i < t->graph->node_count; i++)
        for (uint32_t k = 0; k < t->graph->nodes[i]->input_count; k++) {
            uint32_t *user = &t->used_by[t->graph->nodes[i]->inputs[k].node];
            if (*user == TU_NO_NODE) *user = i;
        }
}

static tu_status find_rows(table *t) {
    for (uint32_t i = 0; i < t->graph->node_count; i++) {
        const tu__node *node = t->graph->nodes[i], *owner = node;
        while (is_literal(owner) && t->used_by[owner->id] != TU_NO_NODE)
            owner = t->graph->nodes[t->used_by[owner->id]];
        const char *name = row_name(t, owner);
        if (!name) return TU_NO_MEMORY;
        if (!tu__names_find(t->by_name, name, &t->row_of_node[i])) {
            TU_TRY(tu__names_add(t->by_name, name, t->row_count));
            t->row_of_node[i] = t->row_count;
            t->rows[t->row_count++] = (row){.name = name, .output_node = TU_NO_NODE, .first_use = TU_NO_NODE};
        }
    }
    return TU_OK;
}

/* Finds the output of each row: the value that a node of another row uses first, else that of its last operation. */
static void find_outputs(table *t) {
    for (uint32_t i = 0; i < t->graph->node_count; i++) {
        const tu__node *node = t->graph->nodes[i];
        for (uint32_t k = 0; k < node->input_count; k++) {
            tu__edge edge = node->inputs[k];
            row *source = &t->rows[t->row_of_node[edge.node]];
            const tu__op *op = t->graph->nodes[edge.node]->op;
            if (t->row_of_node[i] == t->row_of_node[edge.node] || source->first_use != TU_NO_NODE) continue;
            if (op->code == TU__OP_VARIABLE || is_literal(t->graph->nodes[edge.node])) continue;
            source->output_node = edge.node;
            source->output = edge.output;
            source->first_use = i;
        }
        row *node_row = &t->rows[t->row_of_node[i]];
        bool effect = node->op->traits & TU__EFFECT, variable = node->op->code == TU__OP_VARIABLE;
        node_row->has_effects |= effect;
        if (node_row->first_use == TU_NO_NODE && !effect &&
            (node_row->output_node == TU_NO_NODE || !variable))
            node_row->output_node = i;
    }
}

static tu_status fill_table(table *t) {
    const tu_graph *graph = t->graph;
    TU_TRY(find_layers(t));
    find_users(t);
    TU_TRY(find_rows(t));
    find_outputs(t);
    tu_type *input_types = alloc_input_types(graph);
    if (!input_types) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++)
        count_node(&t->rows[t->row_of_node[i]].totals, graph, graph->nodes[i], input_types);
    tu__free(input_types);
    return TU_OK;
}

static tu_status table_new(table *t, const tu_graph *graph) {
    *t = (table){.graph = graph, .arena = {.purpose = "the summary of a graph"}};
    size_t count = (size_t)graph->node_count + 1;
    t->layers = tu__names_new();
    t->ancestors = tu__names_new();
    t->by_name = tu__names_new();
    t->rows = tu__alloc_array(count, sizeof *t->rows, "the summary of a graph");
    t->row_of_node = tu__alloc_array(count, sizeof *t->row_of_node, "the summary of a graph");
    t->used_by = tu__alloc_array(count, sizeof *t->used_by, "the summary of a graph");
    return t->layers && t->ancestors && t->by_name && t->rows && t->row_of_node && t->used_by ? TU_OK
                                                                                              : TU_NO_MEMORY;
}

static void table_free(table *t) {
    tu__names_free(t->layers);
    tu__names_free(t->ancestors);
    tu__names_free(t->by_name);
    tu__free(t->rows);
    tu__free(t->row_of_node);
    tu__free(t->used_by);
    tu__arena_free(&t->arena);
}

/* ---- Formatting numbers ---- */

typedef struct cell {
    char text[32];
} cell;

/* "1,068,298" */
static cell with_commas(int64_t number) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, number), used = 0;
    cell c;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) c.text[used++] = ',';
        c.text[used++] = digits[i];
    }
    c.text[used] = '\0';
    return c;
}

/* "12.3 M": at least three significant digits, scaled by powers of `base`. */
static cell in_units(int64_t number, double base, const char *const *units) {
    double value = (double)number;
    while (value >= base && units[1]) {
        value /= base;
        units++;
    }
    bool is_integer = value == (double)(int64_t)value;
    int decimals = is_integer || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    cell c;
    snprintf(c.text, sizeof c.text, "%.*f %s", decimals, value, *units);
    return c;
}

static cell flops_text(int64_t flops) {
    static const char *const units[] = {" ", "K", "M", "G", "T", "P", "E", NULL};
    return in_units(flops, 1000, units);
}

static cell bytes_text(int64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", NULL};
    return in_units(bytes, 1024, units);
}

/* ---- The table ---- */

typedef struct widths {
    int name, output;
} widths;

/* False for rows of gradients and updates, which have many outputs. */
static bool has_one_output(const row *r) {
    const char *slash = strrchr(r->name, '/'), *last = slash ? slash + 1 : r->name;
    bool updates = r->has_effects && r->first_use == TU_NO_NODE;
    return r->output_node != TU_NO_NODE && !updates && strcmp(last, "grad") != 0;
}

static const char *output_text(const table *t, const row *r) {
    if (!has_one_output(r)) return "";
    return tu__type_string(t->graph->nodes[r->output_node]->outputs[r->output]);
}

static void put_row(tu__text *text, widths w, const char *name, const char *output, const char *parameters,
                    const char *flops, const char *bytes) {
    tu__text_printf(text, "%-*s  %-*s  %13s  %9s  %11s\n", w.name, name, w.output, output, parameters, flops,
                    bytes);
}

static void put_separator(tu__text *text, widths w) {
    for (int i = 0; i < w.name + w.output + 41; i++) tu__text_append(text, "-", 1);
    tu__text_append(text, "\n", 1);
}

static void put_table(tu__text *text, const table *t, const tu_graph_totals *totals) {
    widths w = {(int)strlen("layer"), (int)strlen("output")};
    for (uint32_t i = 0; i < t->row_count; i++) {
        int name = (int)strlen(t->rows[i].name), output = (int)strlen(output_text(t, &t->rows[i]));
        if (name > w.name) w.name = name;
        if (output > w.output) w.output = output;
    }
    put_row(text, w, "layer", "output", "parameters", "FLOPs", "activations");
    put_separator(text, w);
    for (uint32_t i = 0; i < t->row_count; i++) {
        const row *r = &t->rows[i];
        put_row(text, w, r->name, output_text(t, r), with_commas(r->totals.parameters).text,
                flops_text(r->totals.flops).text, bytes_text(r->totals.activation_bytes).text);
    }
    put_separator(text, w);
    put_row(text, w, "total", "", with_commas(totals->parameters).text, flops_text(totals->flops).text,
            bytes_text(totals->activation_bytes).text);
    tu__text_printf(text, "%s nodes; %s variables of %s\n", with_commas(totals->nodes).text,
                    with_commas(totals->variables).text, bytes_text(totals->variable_bytes).text);
}

tu_status tu_graph_summary(const tu_graph *graph, FILE *out) {
    tu_graph_totals totals = TU_SIZED(tu_graph_totals);
    TU_TRY(tu_graph_total(graph, &totals));
    table t;
    tu_status status = table_new(&t, graph);
    if (status == TU_OK) status = fill_table(&t);
    tu__text text = {0};
    if (status == TU_OK) put_table(&text, &t, &totals);
    if (text.failed) status = TU_NO_MEMORY;
    if (status == TU_OK && fwrite(tu__text_string(&text), 1, text.length, out) != text.length)
        status = tu_fail(TU_IO, "cannot write the summary of a graph");
    tu__text_free(&text);
    table_free(&t);
    return status;
}
