/* partition: copies where an edge crosses devices.
 *
 * Afterwards every node but a copy reads values of its own device alone. A value goes to another device
 * once, however many read it there: the copy stands before its first reader, on the reader's device, and is
 * named after what it copies ("conv1/conv2d@cpu:0.1"). A fill, and a constant of up to 4 KiB, is made on
 * each device that reads it instead: it is cheaper to have than to wait for. Seams are canonical: what is
 * copied is dense. */
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "pass/pass.h"

enum { MOST_DUPLICATED_BYTES = 4096 };

typedef struct copy { /* of a value of the old graph, on a device */
    tu__edge value;
    const char *device;
    tu_value made;
    struct copy *next; /* of the same node */
} copy;

typedef struct partition {
    tu__rewrite r;
    tu__arena arena; /* of the copies */
    copy **copies;   /* per node of the old graph */
} partition;

static bool is_duplicated(const tu__node *node) {
    if (node->op->code == TU__OP_FILL) return true;
    return node->op->code == TU__OP_CONSTANT && tu_type_bytes(node->outputs[0]) <= MOST_DUPLICATED_BYTES;
}

static bool same_device(const char *a, const char *b) {
    return a == b || strcmp(a, b) == 0;
}

/* ---- Copies ---- */

static tu_value make_copy(partition *p, const tu__node *node, tu__edge value, const char *device) {
    tu__rewrite *r = &p->r;
    tu_value source = tu__rewrite_value(r, value);
    tu__node_request request = {.op = TU__OP_COPY, .inputs = &source, .input_count = 1};
    if (is_duplicated(node)) request = tu__rewrite_request(r, node, NULL);
    request.device = device;
    if (is_duplicated(node) && same_device(node->device, device)) return tu__rewrite_make(r, node, &request);
    tu__text suffix = {0};
    if (value.output) tu__text_printf(&suffix, ":%u", value.output);
    tu__text_printf(&suffix, "@%s", device);
    tu_value made = suffix.failed ? tu__graph_fail(r->to, TU_NO_MEMORY, "%s", tu_message())
                                  : tu__rewrite_insert(r, node->name, tu__text_string(&suffix), &request);
    tu__text_free(&suffix);
    return made;
}

/* The value as it is read on a device; made on first use. */
static tu_value value_on(partition *p, tu__edge value, const char *device) {
    const tu__node *node = p->r.from->nodes[value.node];
    if (same_device(node->device, device) && !is_duplicated(node)) return tu__rewrite_value(&p->r, value);
    for (copy *c = p->copies[value.node]; c; c = c->next)
        if (c->value.output == value.output && same_device(c->device, device)) return c->made;
    copy *c = tu__arena_alloc(&p->arena, sizeof *c);
    if (!c) return tu__graph_fail(p->r.to, TU_NO_MEMORY, "%s", tu_message());
    *c = (copy){.value = value, .device = device, .made = make_copy(p, node, value, device)};
    c->next = p->copies[value.node];
    p->copies[value.node] = c;
    return c->made;
}

/* ---- Nodes ---- */

/* A copy that stands in the graph already crosses by itself. */
static tu_status copy_node(partition *p, const tu__node *node) {
    if (is_duplicated(node)) return TU_OK; /* made where it is read */
    tu_value *inputs =
        tu__alloc_array((size_t)node->input_count + 1, sizeof *inputs, "an operation's inputs");
    if (!inputs) return TU_NO_MEMORY;
    tu__node_request request = tu__rewrite_request(&p->r, node, inputs);
    for (uint32_t i = 0; i < node->input_count; i++) {
        const char *source = p->r.from->nodes[node->inputs[i].node]->device;
        inputs[i] = value_on(p, node->inputs[i], node->op->code == TU__OP_COPY ? source : node->device);
    }
    tu_value made = tu__rewrite_make(&p->r, node, &request);
    tu__free(inputs);
    TU_TRY(tu_graph_status(p->r.to));
    if (!tu_ok(made)) return tu_fail(TU_INTERNAL, "partition lost an input of '%s'", node->name);
    tu__rewrite_map_all(&p->r, node, made);
    return TU_OK;
}

/* A fill or a constant that the user fetches stays on its own device. */
static void map_fetched(partition *p, const tu__unit *unit) {
    for (size_t i = 0; i < unit->fetch_count; i++) {
        const tu__node *node = p->r.from->nodes[unit->fetch[i].node];
        if (is_duplicated(node))
            tu__rewrite_map(&p->r, unit->fetch[i], value_on(p, unit->fetch[i], node->device));
    }
}

/* A named result that is a fill or a constant stands for whichever of its makings there is. */
static void map_results(partition *p) {
    for (uint32_t i = 0; i < p->r.from->result_count; i++) {
        tu__edge value = p->r.from->results[i].value;
        copy *made = p->copies[value.node];
        if (made && !tu_ok(tu__rewrite_value(&p->r, value))) tu__rewrite_map(&p->r, value, made->made);
    }
}

static bool crosses(const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++)
        for (uint32_t k = 0; k < graph->nodes[i]->input_count; k++)
            if (!same_device(graph->nodes[graph->nodes[i]->inputs[k].node]->device, graph->nodes[i]->device))
                return true;
    return false;
}

tu_status tu__pass_partition(tu__unit *unit) {
    const tu_graph *graph = unit->graph;
    if (!crosses(graph)) return TU_OK;
    partition p = {.arena = {.purpose = "a pass"}};
    TU_TRY(tu__rewrite_begin(&p.r, graph));
    p.copies = tu__alloc_array((size_t)graph->node_count + 1, sizeof(copy *), "a pass");
    tu_status status = p.copies ? TU_OK : TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count && status == TU_OK; i++)
        status = copy_node(&p, graph->nodes[i]);
    if (status == TU_OK) {
        map_fetched(&p, unit);
        map_results(&p);
        status = tu__rewrite_finish(&p.r, unit);
    } else {
        tu__rewrite_abandon(&p.r);
    }
    tu__free(p.copies);
    tu__arena_free(&p.arena);
    return status;
}
