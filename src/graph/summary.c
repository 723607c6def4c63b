/* The summary of a graph: a table that a person likes to read, and the totals.
 *
 * A row is a layer. A layer is the outermost scope that holds trainable variables of its own (conv1, with
 * conv1/weights and conv1/bias); where no scope around a node leads to variables, the outermost of these (grad,
 * optimizer); and a node that stands beside layers, like a pooling between two, is a row by itself. Numbers that a node
 * needs as operands (fills, constants) belong to the row of their first user.
 *
 * Activations are counted as if each were kept until the end of the run: what training without recomputation needs,
 * and an upper bound of what a memory plan will take. */
#include "graph/summary.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "base/text.h"
#include "graph/names.h"

/* ---- Costs of a node ---- */

/* A sum that stays at the largest number instead of overflowing: hostile files have graphs of any size. */
static int64_t add_up(int64_t a, int64_t b) {
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

int64_t tu__node_flops(const tu_graph *graph, const tu__node *node, tu_type *in) {
    if (node->input_count == 0 || (node->op->traits & (TU__LEAF | TU__EFFECT | TU__VIEW))) return 0;
    if (!node->op->flops) {
        int64_t elements = 0;
        for (uint32_t i = 0; i < node->output_count; i++)
            elements = add_up(elements, tu_shape_elements(node->outputs[i].shape));
        return elements;
    }
    for (uint32_t i = 0; i < node->input_count; i++)
        in[i] = graph->nodes[node->inputs[i].node]->outputs[node->inputs[i].output];
    return node->op->flops(node, in);
}

int64_t tu__node_activation_bytes(const tu__node *node) {
    if (node->op->code == TU__OP_VARIABLE || node->op->code == TU__OP_CONSTANT) return 0;
    if (node->op->traits & (TU__EFFECT | TU__VIEW)) return 0;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < node->output_count; i++)
        bytes = add_up(bytes, (int64_t)tu_type_bytes(node->outputs[i]));
    return bytes;
}

static bool is_trainable(const tu__node *node) {
    return node->op->code == TU__OP_VARIABLE && !tu__attrs(node, variable)->frozen &&
           tu_dtype_is_float(node->outputs[0].dtype);
}

static void count_node(tu_graph_totals *totals, const tu_graph *graph, const tu__node *node, tu_type *in) {
    totals->nodes++;
    totals->flops = add_up(totals->flops, tu__node_flops(graph, node, in));
    totals->activation_bytes = add_up(totals->activation_bytes, tu__node_activation_bytes(node));
    if (node->op->code != TU__OP_VARIABLE) return;
    totals->variables++;
    totals->variable_bytes = add_up(totals->variable_bytes, (int64_t)tu_type_bytes(node->outputs[0]));
    if (is_trainable(node))
        totals->parameters = add_up(totals->parameters, tu_shape_elements(node->outputs[0].shape));
}

/* Room for the input types of any node. */
static tu_type *input_room(const tu_graph *graph) {
    size_t most = 1;
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->input_count > most) most = graph->nodes[i]->input_count;
    return tu__alloc_array(most, sizeof(tu_type), "the costs of a graph");
}

tu_status tu_graph_total(const tu_graph *graph, tu_graph_totals *totals) {
    tu_graph_totals full = TU_SIZED(tu_graph_totals);
    TU_TRY(TU__CHECK_SIZED(tu_graph_totals, totals));
    TU_TRY(tu_graph_status(graph));
    tu_type *in = input_room(graph);
    if (!in) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++) count_node(&full, graph, graph->nodes[i], in);
    tu__free(in);
    TU__GIVE_SIZED(totals, full);
    return TU_OK;
}

/* ---- Rows ---- */

enum { DEEPEST_SCOPE = 32 };

typedef struct row {
    const char *name;
    uint32_t output_node, output; /* what the row hands on: its value that another row uses first */
    uint32_t first_use;           /* TU_NO_NODE: none, `output_node` is its last operation */
    bool effects;                 /* it assigns variables */
    tu_graph_totals totals;
} row;

typedef struct table {
    const tu_graph *graph;
    tu__arena arena;           /* the rows' names */
    tu__name_table *layers;    /* scopes that hold trainable variables */
    tu__name_table *ancestors; /* scopes around these */
    tu__name_table *by_name;   /* name of a row -> its number */
    row *rows;                 /* in the order of their first nodes; at most one a node */
    uint32_t row_count;
    uint32_t *row_of;  /* node -> row */
    uint32_t *used_by; /* node -> the first node that uses it, or TU_NO_NODE */
} table;

static bool contains(const tu__name_table *names, const char *name) {
    uint32_t unused;
    return tu__names_find(names, name, &unused);
}

/* The end of the next scope in a name: its slash; NULL after the last. Scopes deeper than any person's are ignored,
 * lest a name that is nothing but slashes costs the square of its length. */
static const char *scope_end(const char *name, const char *after, int *depth) {
    return ++*depth > DEEPEST_SCOPE ? NULL : strchr(after ? after + 1 : name, '/');
}

static char *prefix(table *t, const char *name, size_t length) {
    char *copy = tu__arena_alloc(&t->arena, length + 1);
    if (copy) memcpy(copy, name, length);
    return copy;
}

static tu_status add_name(tu__name_table *names, const char *name) {
    return contains(names, name) ? TU_OK : tu__names_add(names, name, 0);
}

/* The scope of each trainable variable is a layer; the scopes around it are not. */
static tu_status find_layers(table *t) {
    for (uint32_t i = 0; i < t->graph->node_count; i++) {
        const tu__node *node = t->graph->nodes[i];
        if (!is_trainable(node)) continue;
        int depth = 0;
        const char *next;
        for (const char *slash = scope_end(node->name, NULL, &depth); slash; slash = next) {
            next = scope_end(node->name, slash, &depth);
            char *scope = prefix(t, node->name, (size_t)(slash - node->name));
            if (!scope) return TU_NO_MEMORY;
            TU_TRY(add_name(next ? t->ancestors : t->layers, scope));
        }
    }
    return TU_OK;
}

/* The name of the row that a node belongs to by its own name; NULL when memory runs out. */
static const char *row_name(table *t, const tu__node *node) {
    int depth = 0;
    for (const char *slash = NULL; (slash = scope_end(node->name, slash, &depth));) {
        char *scope = prefix(t, node->name, (size_t)(slash - node->name));
        if (!scope) return NULL;
        if (contains(t->layers, scope) || !contains(t->ancestors, scope)) return scope;
    }
    return node->name;
}

static bool is_operand(const tu__node *node) {
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
        while (is_operand(owner) && t->used_by[owner->id] != TU_NO_NODE)
            owner = t->graph->nodes[t->used_by[owner->id]];
        const char *name = row_name(t, owner);
        if (!name) return TU_NO_MEMORY;
        if (!tu__names_find(t->by_name, name, &t->row_of[i])) {
            TU_TRY(tu__names_add(t->by_name, name, t->row_count));
            t->row_of[i] = t->row_count;
            t->rows[t->row_count++] = (row){.name = name, .output_node = TU_NO_NODE, .first_use = TU_NO_NODE};
        }
    }
    return TU_OK;
}

/* The output of a row: the value that a node of another row uses first; else that of its last operation. */
static void find_outputs(table *t) {
    for (uint32_t i = 0; i < t->graph->node_count; i++) {
        const tu__node *node = t->graph->nodes[i];
        for (uint32_t k = 0; k < node->input_count; k++) {
            tu__edge edge = node->inputs[k];
            row *source = &t->rows[t->row_of[edge.node]];
            const tu__op *op = t->graph->nodes[edge.node]->op;
            if (t->row_of[i] == t->row_of[edge.node] || source->first_use != TU_NO_NODE) continue;
            if (op->code == TU__OP_VARIABLE || is_operand(t->graph->nodes[edge.node])) continue;
            source->output_node = edge.node;
            source->output = edge.output;
            source->first_use = i;
        }
        row *own = &t->rows[t->row_of[i]];
        bool effect = node->op->traits & TU__EFFECT, variable = node->op->code == TU__OP_VARIABLE;
        own->effects |= effect;
        if (own->first_use == TU_NO_NODE && !effect && (own->output_node == TU_NO_NODE || !variable))
            own->output_node = i;
    }
}

static tu_status fill_table(table *t) {
    const tu_graph *graph = t->graph;
    TU_TRY(find_layers(t));
    find_users(t);
    TU_TRY(find_rows(t));
    find_outputs(t);
    tu_type *in = input_room(graph);
    if (!in) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++)
        count_node(&t->rows[t->row_of[i]].totals, graph, graph->nodes[i], in);
    tu__free(in);
    return TU_OK;
}

static tu_status table_new(table *t, const tu_graph *graph) {
    *t = (table){.graph = graph, .arena = {.purpose = "the summary of a graph"}};
    size_t count = (size_t)graph->node_count + 1;
    t->layers = tu__names_new();
    t->ancestors = tu__names_new();
    t->by_name = tu__names_new();
    t->rows = tu__alloc_array(count, sizeof *t->rows, "the summary of a graph");
    t->row_of = tu__alloc_array(count, sizeof *t->row_of, "the summary of a graph");
    t->used_by = tu__alloc_array(count, sizeof *t->used_by, "the summary of a graph");
    return t->layers && t->ancestors && t->by_name && t->rows && t->row_of && t->used_by ? TU_OK
                                                                                         : TU_NO_MEMORY;
}

static void table_free(table *t) {
    tu__names_free(t->layers);
    tu__names_free(t->ancestors);
    tu__names_free(t->by_name);
    tu__free(t->rows);
    tu__free(t->row_of);
    tu__free(t->used_by);
    tu__arena_free(&t->arena);
}

/* ---- Numbers for people ---- */

typedef struct cell {
    char text[32];
} cell;

/* 1,068,298 */
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

/* "12.3 M": three digits or a little more, by powers of `base`. */
static cell in_units(int64_t number, double base, const char *const *units) {
    double value = (double)number;
    while (value >= base && units[1]) {
        value /= base;
        units++;
    }
    bool whole = value == (double)(int64_t)value;
    int decimals = whole || value >= 100 ? 0 : value >= 10 ? 1 : 2;
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

/* Gradients and updates hand on many values: to name one of them would say nothing. */
static bool has_one_output(const row *r) {
    const char *slash = strrchr(r->name, '/'), *last = slash ? slash + 1 : r->name;
    bool updates = r->effects && r->first_use == TU_NO_NODE;
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

static void put_rule(tu__text *text, widths w) {
    for (int i = 0; i < w.name + w.output + 41; i++) tu__text_append(text, "-", 1);
    tu__text_append(text, "\n", 1);
}

static void put_table(tu__text *text, const table *t, const tu_graph_totals *all) {
    widths w = {(int)strlen("layer"), (int)strlen("output")};
    for (uint32_t i = 0; i < t->row_count; i++) {
        int name = (int)strlen(t->rows[i].name), output = (int)strlen(output_text(t, &t->rows[i]));
        if (name > w.name) w.name = name;
        if (output > w.output) w.output = output;
    }
    put_row(text, w, "layer", "output", "parameters", "FLOPs", "activations");
    put_rule(text, w);
    for (uint32_t i = 0; i < t->row_count; i++) {
        const row *r = &t->rows[i];
        put_row(text, w, r->name, output_text(t, r), with_commas(r->totals.parameters).text,
                flops_text(r->totals.flops).text, bytes_text(r->totals.activation_bytes).text);
    }
    put_rule(text, w);
    put_row(text, w, "total", "", with_commas(all->parameters).text, flops_text(all->flops).text,
            bytes_text(all->activation_bytes).text);
    tu__text_printf(text, "%s nodes; %s variables of %s\n", with_commas(all->nodes).text,
                    with_commas(all->variables).text, bytes_text(all->variable_bytes).text);
}

tu_status tu_graph_summary(const tu_graph *graph, FILE *out) {
    tu_graph_totals all = TU_SIZED(tu_graph_totals);
    TU_TRY(tu_graph_total(graph, &all));
    table t;
    tu_status status = table_new(&t, graph);
    if (status == TU_OK) status = fill_table(&t);
    tu__text text = {0};
    if (status == TU_OK) put_table(&text, &t, &all);
    if (text.failed) status = TU_NO_MEMORY;
    if (status == TU_OK && fwrite(tu__text_string(&text), 1, text.length, out) != text.length)
        status = tu_fail(TU_IO, "cannot write the summary of a graph");
    tu__text_free(&text);
    table_free(&t);
    return status;
}
