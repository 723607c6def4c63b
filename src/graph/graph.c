/* Building graphs: nodes, scopes, values.
 *
 * tu__make is the only function that adds nodes, for builders, gradients and files. So the invariants of graph.h are
 * enforced in one place: inputs are earlier nodes, the shape rule succeeds, the name is unique. The graph keeps the
 * first error. Callers get an invalid value and may continue: operations on invalid values do nothing. */
#include "graph/graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <tutti/custom.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/text.h"
#include "graph/names.h"

/* ---- Creating and freeing ---- */

tu_status tu_graph_new(tu_graph **graph) {
    *graph = NULL;
    tu_graph *g = tu__alloc(sizeof *g, "a graph");
    if (!g) return TU_NO_MEMORY;
    g->arena.purpose = "a graph's nodes";
    g->training = true;
    g->names = tu__names_new();
    g->message = tu__arena_alloc(&g->arena, 1024); /* allocated now: reporting an error must not allocate */
    if (!g->names || !g->message) {
        tu_graph_free(g);
        return TU_NO_MEMORY;
    }
    *graph = g;
    return TU_OK;
}

/* A reference of a graph to shared data. */
typedef struct tu__kept_data {
    tu__shared_data *data;
    struct tu__kept_data *next;
} tu__kept_data;

void tu_graph_free(tu_graph *graph) {
    if (!graph) return;
    for (tu__kept_data *kept = graph->kept_data; kept; kept = kept->next) tu__shared_data_release(kept->data);
    tu__names_free(graph->names);
    tu__free(graph->nodes);
    tu__free(graph->results);
    tu__free(graph->scope);
    tu__arena_free(&graph->arena);
    tu__free(graph);
}

/* ---- Errors ---- */

tu_status tu_graph_status(const tu_graph *graph) {
    if (!graph) return tu_fail(TU_INVALID, "the graph is NULL: create one with tu_graph_new");
    return graph->status == TU_OK ? TU_OK : tu_fail(graph->status, "%s", graph->message);
}

/* Records `status` and this thread's message in the graph if it has no error yet. */
static tu_value record_error(tu_graph *graph, tu_status status) {
    if (graph && graph->status == TU_OK) {
        graph->status = status;
        snprintf(graph->message, 1024, "%s", tu_message());
    }
    return tu__invalid(graph);
}

tu_value tu__graph_fail(tu_graph *graph, tu_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tu__fail_list(status, format, arguments);
    va_end(arguments);
    return record_error(graph, status);
}

enum { MAX_SHOWN_INPUTS = 8 };

tu_status tu__rule_fail(const tu__rule *rule, const char *format, ...) {
    tu__text text = {0};
    tu__text_printf(&text, "%s node '%s'", rule->op->name, rule->name);
    for (uint32_t i = 0; i < rule->input_count && i < MAX_SHOWN_INPUTS; i++) {
        tu__text_printf(&text, "%s", i > 0 ? ", " : rule->input_count == 1 ? " (input " : " (inputs ");
        tu__text_type(&text, rule->in[i]);
    }
    if (rule->input_count > MAX_SHOWN_INPUTS) tu__text_printf(&text, ", ...");
    tu__text_printf(&text, rule->input_count ? "): " : ": ");
    char detail[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    tu_fail(TU_INVALID, "%s%s", tu__text_string(&text), detail);
    tu__text_free(&text);
    return TU_INVALID;
}

tu_status tu__rule_fail_axis(const tu__rule *rule, int64_t axis) {
    int64_t rank = rule->in[0].shape.rank;
    if (rank == 0) return tu__rule_fail(rule, "axis %" PRId64 " is out of range: a scalar has no axes", axis);
    /* Builders convert negative axes; only a file can contain one. */
    int64_t lowest = axis < 0 && axis >= -rank ? 0 : -rank;
    return tu__rule_fail(rule, "axis %" PRId64 " is out of range: expected %" PRId64 " to %" PRId64, axis,
                         lowest, rank - 1);
}

tu_value tu__graph_fail_axis(const char *operation, tu_value x, int64_t axis) {
    int64_t rank = tu_value_shape(x).rank;
    const char *name = tu_value_name(x), *type = tu__type_string(tu_value_type(x));
    if (rank == 0)
        return tu__graph_fail(x.graph, TU_INVALID,
                              "%s of '%s' %s: axis %" PRId64 " is out of range: a scalar has no axes",
                              operation, name, type, axis);
    return tu__graph_fail(x.graph, TU_INVALID,
                          "%s of '%s' %s: axis %" PRId64 " is out of range: expected %" PRId64 " to %" PRId64,
                          operation, name, type, axis, -rank, rank - 1);
}

/* ---- Names and scopes ---- */

static const char *scope_path(const tu_graph *graph) {
    return graph->scope ? graph->scope : "";
}

static bool name_is_usable(const char *name) {
    if (!name || !*name || *name == '/' || strlen(name) > 512) return false;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 0x21 || *c == 0x7f) return false;
    return name[strlen(name) - 1] != '/' && !strstr(name, "//");
}

/* Sets the current scope to the first `prefix_length` characters of `prefix`, followed by `name` and a slash. */
static tu_status set_scope(tu_graph *graph, const char *prefix, size_t prefix_length, const char *name) {
    size_t need = prefix_length + strlen(name) + 2;
    if (need > graph->scope_capacity) {
        char *scope = tu__realloc(graph->scope, need * 2, "a scope's name");
        if (!scope) return TU_NO_MEMORY;
        if (prefix == graph->scope) prefix = scope;
        graph->scope = scope;
        graph->scope_capacity = need * 2;
    }
    memmove(graph->scope, prefix, prefix_length);
    snprintf(graph->scope + prefix_length, graph->scope_capacity - prefix_length, "%s%s", name,
             *name ? "/" : "");
    return TU_OK;
}

int tu_scope_begin(tu_graph *graph, const char *name) {
    if (!graph) return 1;
    if (!name_is_usable(name) || strchr(name, '/')) {
        tu__graph_fail(graph, TU_INVALID,
                       "scope '%s': expected a name of visible characters (no spaces) without '/'",
                       name ? name : "");
        name = "invalid";
    }
    const char *path = scope_path(graph);
    if (set_scope(graph, path, strlen(path), name) != TU_OK) record_error(graph, TU_NO_MEMORY);
    return 1;
}

int tu_scope_end(tu_graph *graph) {
    if (!graph || !graph->scope || !*graph->scope) return 0;
    graph->scope[strlen(graph->scope) - 1] = '\0';
    char *slash = strrchr(graph->scope, '/');
    if (slash)
        slash[1] = '\0';
    else
        graph->scope[0] = '\0';
    return 0;
}

tu_status tu__scope_replace(tu_graph *graph, const char *path, char **previous) {
    if (previous) {
        size_t length = strlen(scope_path(graph));
        *previous = tu__alloc(length + 1, "a scope's name"); /* zeroed */
        if (!*previous) return TU_NO_MEMORY;
        if (length)
            memcpy(*previous, scope_path(graph), length - 1); /* without the slash, which set_scope adds */
    }
    tu_status status = set_scope(graph, "", 0, path);
    if (status != TU_OK && previous) {
        tu__free(*previous);
        *previous = NULL;
    }
    return status;
}

int tu_recompute_begin(tu_graph *graph) {
    if (graph) graph->recompute_depth++;
    return 1;
}

int tu_recompute_end(tu_graph *graph) {
    if (graph && graph->recompute_depth) graph->recompute_depth--;
    return 0;
}

/* ---- Devices ---- */

struct tu__device_scope {
    const char *name; /* NULL: none */
    const struct tu__device_scope *outer;
};

bool tu__device_name_is_valid(const char *name) {
    if (!*name || strlen(name) > 64) return false;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 0x21 || *c == 0x7f || *c == ',') return false; /* commas separate devices in lists */
    return true;
}

/* An invalid name enters a scope too, so that tu_device_end leaves the right one. */
int tu_device_begin(tu_graph *graph, const char *device) {
    if (!graph) return 1;
    if (device && !tu__device_name_is_valid(device)) {
        tu__graph_fail(graph, TU_INVALID, "device '%s': expected a name like cpu:0 or cpu:0.1", device);
        device = NULL;
    }
    struct tu__device_scope *scope = tu__arena_alloc(&graph->arena, sizeof *scope);
    const char *name = scope && device ? tu__arena_string(&graph->arena, device) : NULL;
    if (!scope || (device && !name)) {
        graph->failed_device_scopes++; /* its tu_device_end must not leave the enclosing scope */
        record_error(graph, TU_NO_MEMORY);
        return 1;
    }
    *scope = (struct tu__device_scope){.name = name, .outer = graph->device_scope};
    graph->device_scope = scope;
    return 1;
}

int tu_device_end(tu_graph *graph) {
    if (graph && graph->failed_device_scopes)
        graph->failed_device_scopes--;
    else if (graph && graph->device_scope)
        graph->device_scope = graph->device_scope->outer;
    return 0;
}

/* Sets the node's device to `requested`, else to the enclosing scope's device. Shares the previous node's string if
 * equal. */
static tu_status set_device(tu_graph *graph, tu__node *node, const char *requested) {
    node->device = graph->device_scope ? graph->device_scope->name : NULL;
    if (!requested) return TU_OK;
    if (!tu__device_name_is_valid(requested))
        return tu_fail(TU_INVALID, "device '%s' of node '%s': expected a name like cpu:0 or cpu:0.1",
                       requested, node->name);
    const char *before = graph->node_count ? graph->nodes[graph->node_count - 1]->device : NULL;
    bool same = before && strcmp(before, requested) == 0;
    node->device = same ? before : tu__arena_string(&graph->arena, requested);
    return node->device ? TU_OK : TU_NO_MEMORY;
}

void tu_set_training(tu_graph *graph, bool training) {
    if (graph) graph->training = training;
}

bool tu_training(const tu_graph *graph) {
    return graph && graph->training;
}

uint64_t tu__name_hash(const char *name) {
    return tu__names_hash(name);
}

/* Returns a unique scoped name in the graph's arena: if it is taken, with the next free suffix. */
static char *unique_name(tu_graph *graph, const char *base) {
    size_t room = strlen(scope_path(graph)) + strlen(base) + 16;
    char *name = tu__arena_alloc(&graph->arena, room);
    if (!name) return NULL;
    int stem = snprintf(name, room, "%s%s", scope_path(graph), base);
    uint32_t taken;
    if (!tu__names_find(graph->names, name, &taken)) return name;
    char *candidate = tu__arena_alloc(&graph->arena, room);
    if (!candidate) return NULL;
    do snprintf(candidate, room, "%.*s_%u", stem, name, tu__names_next_suffix(graph->names, name));
    while (tu__names_find(graph->names, candidate, &taken));
    return candidate;
}

const char *tu__scoped_name(tu_graph *graph, const char *name) {
    char *full = unique_name(graph, name);
    if (!full) record_error(graph, TU_NO_MEMORY);
    return full;
}

const tu__node *tu__find_node(const tu_graph *graph, const char *name) {
    uint32_t node;
    return tu__names_find(graph->names, name, &node) ? graph->nodes[node] : NULL;
}

/* ---- Adding a node ---- */

/* Checks that the inputs exist and belong to this graph. Sets `*is_invalid` and returns TU_OK if one is an invalid
 * value: its error was reported before. */
static tu_status check_inputs(tu_graph *graph, const tu__op *op, const tu__node_request *request,
                              bool *is_invalid) {
    for (size_t i = 0; i < request->input_count; i++) {
        tu_value v = request->inputs[i];
        if (!v.graph)
            return tu_fail(TU_INVALID, "%s in scope '%s': input %zu is an uninitialised tu_value", op->name,
                           scope_path(graph), i);
        if (v.graph != graph)
            return tu_fail(TU_INVALID, "%s in scope '%s': input %zu belongs to another graph", op->name,
                           scope_path(graph), i);
        if (v.node == TU_NO_NODE) {
            *is_invalid = true;
            return TU_OK;
        }
        if (v.node >= graph->node_count || v.output >= graph->nodes[v.node]->output_count)
            return tu_fail(TU_INVALID, "%s in scope '%s': input %zu (node %u, output %u) does not exist",
                           op->name, scope_path(graph), i, v.node, v.output);
    }
    bool count_ok = op->inputs == TU__ANY_INPUTS ? request->input_count >= 1 && request->input_count <= 65536
                                                 : request->input_count == op->inputs;
    if (!count_ok)
        return tu_fail(TU_INVALID, "%s in scope '%s': %zu inputs given, %s%u expected", op->name,
                       scope_path(graph), request->input_count,
                       op->inputs == TU__ANY_INPUTS ? "at least " : "",
                       op->inputs == TU__ANY_INPUTS ? 1 : op->inputs);
    return TU_OK;
}

static tu_status reserve_node(tu_graph *graph) {
    if (graph->node_count < graph->node_capacity) return TU_OK;
    if (graph->node_count >= 1u << 30)
        return tu_fail(TU_UNSUPPORTED, "the graph has 2^30 nodes, which is the maximum");
    uint32_t capacity = graph->node_capacity ? graph->node_capacity * 2 : 64;
    tu__node **nodes = tu__realloc(graph->nodes, capacity * sizeof *nodes, "a graph's nodes");
    if (!nodes) return TU_NO_MEMORY;
    graph->nodes = nodes;
    graph->node_capacity = capacity;
    return TU_OK;
}

/* Sets the node's name, inputs and attributes to copies in the graph's arena. */
static tu_status fill_node(tu_graph *graph, tu__node *node, const tu__node_request *request) {
    const char *base = request->name ? request->name : node->op->name;
    if (!name_is_usable(base))
        return tu_fail(
            TU_INVALID,
            "%s '%s%s': expected a name of visible characters (no spaces), without '/' at its ends",
            node->op->name, scope_path(graph), base);
    node->name = unique_name(graph, base);
    if (!node->name) return TU_NO_MEMORY;
    if (request->exact_name && strcmp(node->name + strlen(scope_path(graph)), base) != 0)
        return tu_fail(TU_INVALID, "%s '%s%s': the name is already used; choose another name or scope",
                       node->op->name, scope_path(graph), base);
    tu__edge *edges = tu__arena_alloc(&graph->arena, request->input_count * sizeof *edges);
    if (!edges) return TU_NO_MEMORY;
    for (size_t i = 0; i < request->input_count; i++)
        edges[i] = (tu__edge){request->inputs[i].node, request->inputs[i].output};
    node->inputs = edges;
    node->attrs = tu__arena_alloc(&graph->arena, node->op->attr_bytes ? node->op->attr_bytes : 8);
    if (!node->attrs) return TU_NO_MEMORY;
    if (request->attrs) memcpy((void *)node->attrs, request->attrs, node->op->attr_bytes);
    return TU_OK;
}

tu_status tu__node_infer(const tu_graph *graph, const tu__node *node, tu_type *in, tu_type *out) {
    for (uint32_t i = 0; i < node->input_count; i++)
        in[i] = graph->nodes[node->inputs[i].node]->outputs[node->inputs[i].output];
    tu__rule rule = {.op = node->op,
                     .name = node->name,
                     .attrs = node->attrs,
                     .input_count = node->input_count,
                     .output_count = node->output_count,
                     .in = in,
                     .out = out,
                     .custom = node->custom};
    return node->op->shape(&rule);
}

/* Sets the types of the node's outputs. */
static tu_status infer_node(tu_graph *graph, tu__node *node) {
    tu_type *in = tu__alloc_array(node->input_count + 1, sizeof *in, "an operation's input types");
    tu_type *out = tu__arena_alloc(&graph->arena, node->output_count * sizeof *out);
    if (!in || !out) {
        tu__free(in);
        return TU_NO_MEMORY;
    }
    tu_status status = tu__node_infer(graph, node, in, out);
    tu__free(in);
    node->outputs = out;
    return status;
}

/* Sets the group and the fields about the placement. Passes copy group numbers with the nodes to another
 * graph. */
static tu_status set_placement(tu_graph *graph, tu__node *node, const tu__node_request *request) {
    node->group = request->group ? request->group : graph->group_scope;
    if (node->group > graph->group_count) graph->group_count = node->group;
    node->moved = request->moved;
    node->why = request->why ? tu__arena_string(&graph->arena, request->why) : NULL;
    node->unsupported_on =
        request->unsupported_on ? tu__arena_string(&graph->arena, request->unsupported_on) : NULL;
    node->stands_for = request->stands_for ? tu__arena_string(&graph->arena, request->stands_for) : NULL;
    node->first_row = request->first_row;
    bool copied = (node->why || !request->why) && (node->unsupported_on || !request->unsupported_on) &&
                  (node->stands_for || !request->stands_for);
    return copied ? TU_OK : TU_NO_MEMORY;
}

static tu_status keep_data(tu_graph *graph, tu__shared_data *data) {
    tu__kept_data *kept = tu__arena_alloc(&graph->arena, sizeof *kept);
    if (!kept) return TU_NO_MEMORY;
    *kept = (tu__kept_data){tu__shared_data_keep(data), graph->kept_data};
    graph->kept_data = kept;
    return TU_OK;
}

static tu_status set_data(tu_graph *graph, tu__node *node, const tu__node_request *request) {
    if (request->shared) {
        TU_TRY(keep_data(graph, request->shared));
        node->shared = request->shared;
        node->data = request->shared->data;
        return TU_OK;
    }
    node->data = tu__arena_copy(&graph->arena, request->data, tu_type_bytes(node->outputs[0]));
    return node->data ? TU_OK : TU_NO_MEMORY;
}

static tu_status make_node(tu_graph *graph, const tu__node_request *request, bool *is_invalid) {
    const tu__op *op = tu__op_get(request->op);
    TU_TRY(check_inputs(graph, op, request, is_invalid));
    if (*is_invalid) return TU_OK;
    TU_TRY(reserve_node(graph));
    tu__node *node = tu__arena_alloc(&graph->arena, sizeof *node);
    if (!node) return TU_NO_MEMORY;
    node->op = op;
    node->id = graph->node_count;
    node->flags = request->flags;
    if (graph->recompute_depth && !(op->traits & (TU__LEAF | TU__EFFECT))) node->flags |= TU__NODE_RECOMPUTE;
    node->input_count = (uint32_t)request->input_count;
    node->custom = request->custom;
    node->output_count = node->custom ? node->custom->outputs : op->outputs;
    TU_TRY(fill_node(graph, node, request));
    TU_TRY(set_device(graph, node, request->device));
    TU_TRY(set_placement(graph, node, request));
    TU_TRY(infer_node(graph, node));
    if (request->op == TU__OP_CONSTANT) TU_TRY(set_data(graph, node, request));
    TU_TRY(tu__names_add(graph->names, node->name, node->id));
    if (op->code == TU__OP_ASSIGN) graph->nodes[node->inputs[0].node]->is_assigned = true;
    graph->nodes[graph->node_count++] = node;
    return TU_OK;
}

tu_value tu__make(tu_graph *graph, const tu__node_request *request) {
    if (!graph) {
        tu_fail(TU_INVALID, "%s: no graph given", tu__op_get(request->op)->name);
        return tu__invalid(NULL);
    }
    bool is_invalid = graph->status != TU_OK;
    tu_status status = is_invalid ? TU_OK : make_node(graph, request, &is_invalid);
    if (status != TU_OK) return record_error(graph, status);
    return is_invalid ? tu__invalid(graph) : tu__value(graph, graph->node_count - 1, 0);
}

tu_value tu__apply_list(tu__opcode op, const void *attrs, size_t count, const tu_value *inputs) {
    return tu__make(count ? inputs[0].graph : NULL,
                    &(tu__node_request){.op = op, .attrs = attrs, .inputs = inputs, .input_count = count});
}

void tu__copy_options(void *local, size_t size, const void *given) {
    if (!given) return;
    size_t given_size;
    memcpy(&given_size, given, sizeof given_size);
    memcpy(local, given, given_size < size ? given_size : size);
}

/* ---- Values ---- */

bool tu_ok(tu_value value) {
    return value.graph && value.node < value.graph->node_count &&
           value.output < value.graph->nodes[value.node]->output_count;
}

const tu__node *tu__node_of(tu_value value) {
    return value.graph->nodes[value.node];
}

tu_type tu_value_type(tu_value value) {
    if (!tu_ok(value)) return (tu_type){.dtype = TU_F32, .shape = {.rank = -1}};
    return tu__node_of(value)->outputs[value.output];
}

tu_shape tu_value_shape(tu_value value) {
    return tu_value_type(value).shape;
}

tu_dtype tu_value_dtype(tu_value value) {
    return tu_value_type(value).dtype;
}

const char *tu_value_name(tu_value value) {
    return tu_ok(value) ? tu__node_of(value)->name : "(invalid)";
}

const char *tu_value_device(tu_value value) {
    return tu_ok(value) ? tu__node_of(value)->device : NULL;
}

tu_value tu_output_of(tu_value value, uint32_t index) {
    if (!tu_ok(value)) return tu__invalid(value.graph);
    const tu__node *node = tu__node_of(value);
    if (index < node->output_count) return tu__value(value.graph, value.node, index);
    return tu__graph_fail(value.graph, TU_INVALID, "%s '%s' has no output %u: it has %u outputs",
                          node->op->name, node->name, index, node->output_count);
}

tu_value tu_find(tu_graph *graph, const char *name) {
    if (!graph || graph->status != TU_OK) return tu__invalid(graph);
    uint32_t node;
    if (tu__names_find(graph->names, name, &node)) return tu__value(graph, node, 0);
    return tu__graph_fail(graph, TU_NOT_FOUND,
                          "the graph has no node '%s': expected a scoped name like \"conv1/weights\"", name);
}

tu_value tu_name(tu_value value, const char *name) {
    if (!tu_ok(value)) return tu__invalid(value.graph);
    tu_graph *graph = value.graph;
    tu__node *node = graph->nodes[value.node];
    if (node->op->traits & TU__LEAF)
        return tu__graph_fail(graph, TU_INVALID,
                              "%s '%s' cannot be renamed: feeds and checkpoints use its name", node->op->name,
                              node->name);
    if (!name_is_usable(name))
        return tu__graph_fail(
            graph, TU_INVALID,
            "cannot rename %s '%s' to '%s': expected visible characters (no spaces), without '/' at its ends",
            node->op->name, node->name, name ? name : "");
    char *full = unique_name(graph, name);
    if (!full) return record_error(graph, TU_NO_MEMORY);
    if (strcmp(full + strlen(scope_path(graph)), name) != 0)
        return tu__graph_fail(graph, TU_INVALID, "cannot rename %s '%s' to '%s': the name is already used",
                              node->op->name, node->name, name);
    if (tu__names_add(graph->names, full, node->id) != TU_OK) return record_error(graph, TU_NO_MEMORY);
    tu__names_remove(graph->names, node->name);
    node->name = full;
    return value;
}

/* ---- Results ---- */

tu_value tu_output(tu_value value, const char *name) {
    if (!tu_ok(value)) return tu__invalid(value.graph);
    tu_graph *graph = value.graph;
    if (!name_is_usable(name))
        return tu__graph_fail(
            graph, TU_INVALID,
            "result '%s': expected a name of visible characters (no spaces), without '/' at its ends",
            name ? name : "");
    for (uint32_t i = 0; i < graph->result_count; i++)
        if (strcmp(graph->results[i].name, name) == 0)
            return tu__graph_fail(graph, TU_INVALID, "the graph already has a result '%s'", name);
    if (graph->result_count == graph->result_capacity) {
        uint32_t capacity = graph->result_capacity ? graph->result_capacity * 2 : 8;
        tu__named_value *results =
            tu__realloc(graph->results, capacity * sizeof *results, "a graph's results");
        if (!results) return record_error(graph, TU_NO_MEMORY);
        graph->results = results;
        graph->result_capacity = capacity;
    }
    char *copy = tu__arena_string(&graph->arena, name);
    if (!copy) return record_error(graph, TU_NO_MEMORY);
    graph->results[graph->result_count++] = (tu__named_value){copy, {value.node, value.output}};
    return value;
}

size_t tu_outputs(tu_graph *graph, size_t capacity, tu_value *values) {
    for (uint32_t i = 0; graph && i < graph->result_count && i < capacity; i++)
        values[i] = tu__value(graph, graph->results[i].value.node, graph->results[i].value.output);
    return graph ? graph->result_count : 0;
}

tu_value tu_find_output(tu_graph *graph, const char *name) {
    if (!graph || graph->status != TU_OK) return tu__invalid(graph);
    for (uint32_t i = 0; i < graph->result_count; i++)
        if (strcmp(graph->results[i].name, name) == 0)
            return tu__value(graph, graph->results[i].value.node, graph->results[i].value.output);
    return tu__graph_fail(graph, TU_NOT_FOUND, "the graph has no result '%s'", name);
}
