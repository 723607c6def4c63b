/* The pass `partition`: inserts copies on edges between devices, so that src/compile/partition.c can divide the graph
 * into one partition per device.
 *
 * Afterwards only copy nodes read values of other devices. A value is copied to a device once, however many nodes
 * read it there: the copy comes before its first reader, on the reader's device, and is named after the copied node
 * ("conv1/conv2d@cpu:0.1"). A fill, or a constant of up to 4 KiB, is duplicated on each device that reads it
 * instead, which is cheaper than waiting for a copy. Copied values are always dense in row-major order.
 *
 * A control dependency on a node of another device becomes one on a copy of that node's value, or of its first
 * element if the value is large. So copies are the only way in which devices wait for each other. Control
 * dependencies of an assignment are ignored: it takes effect after everything is computed. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "pass/pass.h"

/* Constants up to this size are duplicated; of a larger value only one element is copied for a control dependency. */
enum { SMALL_BYTES = 4096 };

typedef struct local_value { /* stands for a value of the old graph on a device: a copy or a duplicate */
    tu__edge value;
    const char *device;
    tu_value new_value;       /* in the new graph */
    struct local_value *next; /* of the same node */
} local_value;

enum { TOKEN = UINT32_MAX }; /* `value.output` of a local value that is only the first element */

typedef struct partition_pass {
    tu__rewrite r;
    const tu__unit *unit;
    tu__arena arena;            /* memory of the local values */
    local_value **local_values; /* per node of the old graph */
} partition_pass;

static bool is_duplicated_per_device(const tu__node *node) {
    if (node->op->code == TU__OP_FILL) return true;
    return node->op->code == TU__OP_CONSTANT && tu_type_bytes(node->outputs[0]) <= SMALL_BYTES;
}

static bool same_device(const char *a, const char *b) {
    return a == b || strcmp(a, b) == 0;
}

/* ---- Local values ---- */

/* Inserts a node whose name ends in "@device". */
static tu_value insert_on_device(tu__rewrite *r, const char *base, const char *suffix,
                                 const tu__node_request *request) {
    tu__text text = {0};
    tu__text_printf(&text, "%s@%s", suffix, request->device);
    tu_value new_value = text.failed ? tu__graph_fail(r->to, TU_NO_MEMORY, "%s", tu_message())
                                     : tu__rewrite_insert(r, base, tu__text_string(&text), request);
    tu__text_free(&text);
    return new_value;
}

/* Adds a copy of the value on `device`, or a duplicate of its constant. */
static tu_value make_local(partition_pass *p, const tu__node *node, tu__edge value, const char *device) {
    tu__rewrite *r = &p->r;
    tu_value source = tu__rewrite_value(r, value);
    tu__node_request request = {.op = TU__OP_COPY, .inputs = &source, .input_count = 1};
    if (is_duplicated_per_device(node)) request = tu__rewrite_request(r, node, NULL);
    request.device = device;
    if (is_duplicated_per_device(node) && same_device(node->device, device))
        return tu__rewrite_make(r, node, &request);
    /* The reason of the original's placement does not apply to the copy. */
    request.why = request.unsupported_on = NULL;
    char suffix[16] = "";
    if (value.output) snprintf(suffix, sizeof suffix, ":%u", value.output);
    return insert_on_device(r, node->name, suffix, &request);
}

static local_value *find_local(const partition_pass *p, tu__edge value, const char *device) {
    local_value *local = p->local_values[value.node];
    while (local && (local->value.output != value.output || !same_device(local->device, device)))
        local = local->next;
    return local;
}

static tu_status add_local(partition_pass *p, tu__edge value, const char *device, tu_value new_value) {
    local_value *local = tu__arena_alloc(&p->arena, sizeof *local);
    if (!local) return TU_NO_MEMORY;
    *local = (local_value){
        .value = value, .device = device, .new_value = new_value, .next = p->local_values[value.node]};
    p->local_values[value.node] = local;
    return TU_OK;
}

/* Returns the value for readers on `device`; adds its copy or duplicate on first use. */
static tu_value value_on(partition_pass *p, tu__edge value, const char *device) {
    const tu__node *node = p->r.from->nodes[value.node];
    if (same_device(node->device, device) && !is_duplicated_per_device(node))
        return tu__rewrite_value(&p->r, value);
    const local_value *local = find_local(p, value, device);
    if (local) return local->new_value;
    tu_value new_value = make_local(p, node, value, device);
    if (add_local(p, value, device, new_value) != TU_OK)
        return tu__graph_fail(p->r.to, TU_NO_MEMORY, "%s", tu_message());
    return new_value;
}

/* ---- Control dependencies ---- */

/* Returns slice attributes that select the first element. */
static struct tu__slice_attrs first_element_attrs(tu_shape shape) {
    struct tu__slice_attrs attrs = {0};
    for (int64_t i = 0; i < shape.rank; i++) attrs.end[i] = attrs.step[i] = 1;
    return attrs;
}

/* Sets `*is_supported` if the node's device supports that slice; tests it with a temporary graph. */
static tu_status can_slice(const partition_pass *p, const tu__node *node, bool *is_supported) {
    *is_supported = true;
    const tu__placement_options *options = p->unit->placement;
    if (!options || !options->supports) return TU_OK;
    size_t device = 0;
    while (!same_device(p->unit->devices[device], node->device)) device++;
    tu_type type = node->outputs[0];
    struct tu__slice_attrs attrs = first_element_attrs(type.shape);
    tu_graph *graph;
    TU_TRY(tu_graph_new(&graph));
    tu_value slice = tu__apply(SLICE, &attrs, tu_input(graph, "x", type.dtype, type.shape));
    tu_status status = tu_graph_status(graph);
    if (status == TU_OK) status = options->supports(options->context, device, graph, slice.node);
    *is_supported = status == TU_OK;
    tu_graph_free(graph);
    return status == TU_UNSUPPORTED ? TU_OK : status;
}

static tu_value make_token(partition_pass *p, const tu__node *node, const char *device) {
    tu_value value = tu__rewrite_value(&p->r, (tu__edge){node->id, 0});
    struct tu__slice_attrs attrs = first_element_attrs(node->outputs[0].shape);
    tu__node_request slice = {
        .op = TU__OP_SLICE, .attrs = &attrs, .inputs = &value, .input_count = 1, .device = node->device};
    value = tu__rewrite_insert(&p->r, node->name, "/done", &slice);
    tu__node_request request = {.op = TU__OP_COPY, .inputs = &value, .input_count = 1, .device = device};
    return insert_on_device(&p->r, node->name, "/done", &request);
}

/* Returns the node on `device` that replaces a dependency on a node of another device; made on first use. */
static tu_status dependency_on_device(partition_pass *p, const tu__node *node, const char *device,
                                      tu_value *local) {
    bool use_token = false;
    if (tu_type_bytes(node->outputs[0]) > SMALL_BYTES) TU_TRY(can_slice(p, node, &use_token));
    tu__edge value = {node->id, use_token ? (uint32_t)TOKEN : 0};
    const local_value *found = find_local(p, value, device);
    if (found || !use_token) {
        *local = found ? found->new_value : value_on(p, value, device);
        return tu_graph_status(p->r.to);
    }
    *local = make_token(p, node, device);
    TU_TRY(tu_graph_status(p->r.to));
    return add_local(p, value, device, *local);
}

static bool has_cross_device_dependency(const tu_graph *graph, const tu__node *node) {
    for (uint32_t i = 0; node->op->code != TU__OP_ASSIGN && i < node->after_count; i++)
        if (!same_device(graph->nodes[node->after[i]]->device, node->device)) return true;
    return false;
}

/* Makes the copies that the node will depend on; they must precede it in the graph. */
static tu_status make_dependency_copies(partition_pass *p, const tu__node *node) {
    if (!has_cross_device_dependency(p->r.from, node)) return TU_OK;
    for (uint32_t i = 0; i < node->after_count; i++) {
        const tu__node *dependency = p->r.from->nodes[node->after[i]];
        tu_value local;
        if (!same_device(dependency->device, node->device))
            TU_TRY(dependency_on_device(p, dependency, node->device, &local));
    }
    return TU_OK;
}

/* Replaces the new node's dependencies on other devices by those copies. */
static tu_status redirect_dependencies(partition_pass *p, const tu__node *node, tu__node *new_node) {
    if (!has_cross_device_dependency(p->r.from, node)) return TU_OK;
    new_node->after_count = 0;
    for (uint32_t i = 0; i < node->after_count; i++) {
        const tu__node *dependency = p->r.from->nodes[node->after[i]];
        tu_value local = tu__rewrite_value(&p->r, (tu__edge){dependency->id, 0});
        if (!same_device(dependency->device, node->device))
            TU_TRY(dependency_on_device(p, dependency, node->device, &local));
        TU_TRY(tu__node_add_dependency(p->r.to, new_node->id, local.node));
    }
    return TU_OK;
}

/* ---- Nodes ---- */

/* Adds the node to the new graph, with its inputs on its device. A copy node of the user (tu_copy) reads its input on
 * the input's device. */
static tu_status rewrite_node(partition_pass *p, const tu__node *node) {
    if (is_duplicated_per_device(node)) return TU_OK; /* value_on makes it for each reader */
    TU_TRY(make_dependency_copies(p, node));
    tu_value *inputs =
        tu__alloc_array((size_t)node->input_count + 1, sizeof *inputs, "an operation's inputs");
    if (!inputs) return TU_NO_MEMORY;
    tu__node_request request = tu__rewrite_request(&p->r, node, inputs);
    for (uint32_t i = 0; i < node->input_count; i++) {
        const char *source = p->r.from->nodes[node->inputs[i].node]->device;
        inputs[i] = value_on(p, node->inputs[i], node->op->code == TU__OP_COPY ? source : node->device);
    }
    tu_value new_value = tu__rewrite_make(&p->r, node, &request);
    tu__free(inputs);
    TU_TRY(tu_graph_status(p->r.to));
    if (!tu_ok(new_value)) return tu_fail(TU_INTERNAL, "partition dropped an input of '%s'", node->name);
    tu__rewrite_map_all(&p->r, node, new_value);
    return redirect_dependencies(p, node, p->r.to->nodes[new_value.node]);
}

/* A fetched fill or constant stays on its own device. */
static void map_fetched(partition_pass *p, const tu__unit *unit) {
    for (size_t i = 0; i < unit->fetch_count; i++) {
        const tu__node *node = p->r.from->nodes[unit->fetch[i].node];
        if (is_duplicated_per_device(node))
            tu__rewrite_map(&p->r, unit->fetch[i], value_on(p, unit->fetch[i], node->device));
    }
}

/* A named output of the graph that is a fill or constant is mapped to any of its duplicates. */
static void map_outputs(partition_pass *p) {
    for (uint32_t i = 0; i < p->r.from->result_count; i++) {
        tu__edge value = p->r.from->results[i].value;
        const local_value *first = p->local_values[value.node];
        if (first && !tu_ok(tu__rewrite_value(&p->r, value))) tu__rewrite_map(&p->r, value, first->new_value);
    }
}

static bool has_cross_device_edges(const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (has_cross_device_dependency(graph, graph->nodes[i])) return true;
    for (uint32_t i = 0; i < graph->node_count; i++)
        for (uint32_t k = 0; k < graph->nodes[i]->input_count; k++)
            if (!same_device(graph->nodes[graph->nodes[i]->inputs[k].node]->device, graph->nodes[i]->device))
                return true;
    return false;
}

tu_status tu__pass_partition(tu__unit *unit) {
    const tu_graph *graph = unit->graph;
    if (!has_cross_device_edges(graph)) return TU_OK;
    partition_pass p = {.unit = unit, .arena = {.purpose = "a pass"}};
    TU_TRY(tu__rewrite_begin(&p.r, graph));
    p.local_values = tu__alloc_array((size_t)graph->node_count + 1, sizeof(local_value *), "a pass");
    tu_status status = p.local_values ? TU_OK : TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count && status == TU_OK; i++)
        status = rewrite_node(&p, graph->nodes[i]);
    if (status == TU_OK) {
        map_fetched(&p, unit);
        map_outputs(&p);
        status = tu__rewrite_finish(&p.r, unit);
    } else {
        tu__rewrite_abandon(&p.r);
    }
    tu__free(p.local_values);
    tu__arena_free(&p.arena);
    return status;
}
