/* Rewriting: how passes transform a graph, which is immutable.
 *
 * Nodes are never removed or changed, so a pass builds a second graph. It iterates over the nodes of `from` in
 * order, makes the new nodes in `to`, and records for every output of `from` which value of `to` replaces it. The
 * inputs of later nodes, the fetches and the named results are looked up there. Outputs that are not mapped are
 * dropped. New nodes are made by tu__make like all others, so the shape rules check them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "pass/pass.h"

tu_status tu__rewrite_begin(tu__rewrite *r, const tu_graph *from) {
    *r = (tu__rewrite){.from = from};
    size_t outputs = 0;
    r->first_output = tu__alloc_array((size_t)from->node_count + 1, sizeof *r->first_output, "a pass");
    if (!r->first_output) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < from->node_count; i++) {
        r->first_output[i] = (uint32_t)outputs;
        outputs += from->nodes[i]->output_count;
    }
    r->map = tu__alloc_array(outputs + 1, sizeof *r->map, "a pass");
    tu_status status = r->map ? tu_graph_new(&r->to) : TU_NO_MEMORY;
    if (status != TU_OK) {
        tu__rewrite_abandon(r);
        return status;
    }
    for (size_t i = 0; i < outputs; i++) r->map[i] = (tu__edge){.node = TU_NO_NODE};
    tu_set_training(r->to, tu_training(from));
    r->to->is_frozen = from->is_frozen;
    r->to->sum_threads = from->sum_threads;
    r->to->members = from->members;
    return TU_OK;
}

void tu__rewrite_abandon(tu__rewrite *r) {
    tu_graph_free(r->to);
    tu__free(r->first_output);
    tu__free(r->map);
    *r = (tu__rewrite){0};
}

/* ---- Mapping ---- */

void tu__rewrite_map(tu__rewrite *r, tu__edge from, tu_value to) {
    r->map[r->first_output[from.node] + from.output] = (tu__edge){to.node, to.output};
}

void tu__rewrite_map_all(tu__rewrite *r, const tu__node *from, tu_value to) {
    for (uint32_t i = 0; i < from->output_count; i++)
        tu__rewrite_map(r, (tu__edge){from->id, i}, tu__value(r->to, to.node, to.output + i));
}

tu_value tu__rewrite_value(const tu__rewrite *r, tu__edge from) {
    tu__edge to = r->map[r->first_output[from.node] + from.output];
    return tu__value(r->to, to.node, to.output);
}

/* ---- Making nodes ---- */

/* Makes a node with this full path, in its scope like its builder did. (The length of a name within a scope is
 * limited, that of a path is not.) */
static tu_value make_at_path(tu__rewrite *r, const char *path, tu__node_request request) {
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    const char *current = r->to->scope ? r->to->scope : "";
    bool is_current_scope =
        strlen(current) == (slash ? length + 1 : 0) && strncmp(current, path, length) == 0;
    if (!is_current_scope) {
        char *scope = tu__alloc(length + 1, "a scope's name");
        if (scope) memcpy(scope, path, length);
        tu_status status = scope ? tu__scope_replace(r->to, scope, NULL) : TU_NO_MEMORY;
        tu__free(scope);
        if (status != TU_OK) return tu__graph_fail(r->to, status, "%s", tu_message());
    }
    request.name = slash ? slash + 1 : path;
    request.exact_name = true;
    return tu__make(r->to, &request);
}

tu__node_request tu__rewrite_request(const tu__rewrite *r, const tu__node *node, tu_value *inputs) {
    for (uint32_t i = 0; i < node->input_count; i++) inputs[i] = tu__rewrite_value(r, node->inputs[i]);
    return (tu__node_request){.op = node->op->code,
                              .attrs = node->attrs,
                              .inputs = inputs,
                              .input_count = node->input_count,
                              .data = node->data,
                              .shared = node->shared,
                              .custom = node->custom,
                              .flags = node->flags,
                              .device = node->device,
                              .group = node->group,
                              .why = node->why,
                              .unsupported_on = node->unsupported_on,
                              .moved = node->moved,
                              .stands_for = node->stands_for,
                              .first_row = node->first_row};
}

/* Gives the new node the control dependencies of the old one, mapped. Dependencies that became constants are
 * dropped. */
static tu_status copy_control_deps(tu__rewrite *r, const tu__node *from, uint32_t to) {
    for (uint32_t i = 0; i < from->after_count; i++) {
        tu_value dependency = tu__rewrite_value(r, (tu__edge){from->after[i], 0});
        if (tu_ok(dependency) && tu__node_is_computed(tu__node_of(dependency)))
            TU_TRY(tu__node_add_dependency(r->to, to, dependency.node));
    }
    return TU_OK;
}

tu_value tu__rewrite_make(tu__rewrite *r, const tu__node *node, const tu__node_request *request) {
    tu_value new_value = make_at_path(r, node->name, *request);
    if (tu_ok(new_value) && copy_control_deps(r, node, new_value.node) != TU_OK)
        return tu__graph_fail(r->to, TU_NO_MEMORY, "%s", tu_message());
    return new_value;
}

static bool name_exists(const tu__rewrite *r, const char *name) {
    return tu__find_node(r->from, name) || tu__find_node(r->to, name);
}

tu_value tu__rewrite_insert(tu__rewrite *r, const char *base, const char *suffix,
                            const tu__node_request *request) {
    tu__text name = {0};
    tu__text_printf(&name, "%s%s", base, suffix);
    for (uint32_t i = 1; !name.failed && name_exists(r, tu__text_string(&name)); i++) {
        name.length = 0;
        tu__text_printf(&name, "%s%s_%" PRIu32, base, suffix, i);
    }
    tu_value new_value = name.failed ? tu__graph_fail(r->to, TU_NO_MEMORY, "%s", tu_message())
                                     : make_at_path(r, tu__text_string(&name), *request);
    tu__text_free(&name);
    return new_value;
}

tu_status tu__rewrite_copy(tu__rewrite *r, const tu__node *node) {
    tu_value *inputs =
        tu__alloc_array((size_t)node->input_count + 1, sizeof *inputs, "an operation's inputs");
    if (!inputs) return TU_NO_MEMORY;
    tu__node_request request = tu__rewrite_request(r, node, inputs);
    tu_value new_value = tu__rewrite_make(r, node, &request);
    tu__free(inputs);
    if (!tu_ok(new_value)) {
        TU_TRY(tu_graph_status(r->to));
        return tu_fail(TU_INTERNAL, "a pass dropped an input of '%s'", node->name);
    }
    tu__rewrite_map_all(r, node, new_value);
    return TU_OK;
}

/* ---- Finishing ---- */

static tu_status map_results(tu__rewrite *r) {
    TU_TRY(tu__scope_replace(r->to, "", NULL));
    for (uint32_t i = 0; i < r->from->result_count; i++) {
        tu_value value = tu__rewrite_value(r, r->from->results[i].value);
        if (tu_ok(value)) tu_output(value, r->from->results[i].name);
    }
    return tu_graph_status(r->to);
}

static tu_status check_mapped(const tu__rewrite *r, const char *kind, size_t count, const tu__edge *edges) {
    for (size_t i = 0; i < count; i++)
        if (!tu_ok(tu__rewrite_value(r, edges[i])))
            return tu_fail(TU_INTERNAL, "a pass dropped %s %zu, '%s'", kind, i,
                           r->from->nodes[edges[i].node]->name);
    return TU_OK;
}

static void map_edges(const tu__rewrite *r, size_t count, tu__edge *edges) {
    for (size_t i = 0; i < count; i++) {
        tu_value value = tu__rewrite_value(r, edges[i]);
        edges[i] = (tu__edge){value.node, value.output};
    }
}

tu_status tu__rewrite_finish(tu__rewrite *r, tu__unit *unit) {
    tu_status status = tu_graph_status(r->to);
    if (status == TU_OK) status = map_results(r);
    if (status == TU_OK) status = check_mapped(r, "fetch", unit->fetch_count, unit->fetch);
    if (status == TU_OK) status = check_mapped(r, "kept value", unit->kept_count, unit->kept);
    if (status != TU_OK) {
        tu__rewrite_abandon(r);
        return status;
    }
    map_edges(r, unit->fetch_count, unit->fetch);
    map_edges(r, unit->kept_count, unit->kept);
    tu_graph_free(unit->graph);
    unit->graph = r->to;
    r->to = NULL;
    tu__rewrite_abandon(r);
    return TU_OK;
}
