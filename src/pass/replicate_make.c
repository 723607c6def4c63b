/* Making the nodes of replicas: for every node of the old graph, in its order, those that stand for it.
 *
 * A whole node is made at every place that needs it, a cut one for every part, each with the attributes of its rows and on
 * the device of its replica. Operands are looked up as the shard rule says they are read. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/attrs.h"
#include "pass/replicate.h"

/* ---- Parts and places ---- */

/* Samples of a part. */
static int64_t part_rows(const tu__replicator *p, size_t part) {
    int64_t parts = (int64_t)p->parts;
    return p->samples / parts + ((int64_t)part < p->samples % parts);
}

/* The larger parts come first. */
static int64_t first_row(const tu__replicator *p, size_t part) {
    int64_t parts = (int64_t)p->parts, at = (int64_t)part, larger = p->samples % parts;
    return at * (p->samples / parts) + (at < larger ? at : larger);
}

static size_t replica_of(const tu__replicator *p, size_t part) {
    return part * p->replicas / p->parts;
}

size_t tu__central_place(const tu__replicator *p) {
    return p->how->strategy == TU__CENTRAL ? p->places - 1 : 0;
}

const char *tu__place_device(const tu__replicator *p, size_t place) {
    return place < p->replicas ? p->how->replicas[place] : p->how->central;
}

/* Rows of an axis, of which every sample has as many, that are a part's. */
static int64_t rows_of_axis(const tu__replicator *p, tu_shape whole, int axis, size_t part) {
    return whole.dim[axis] / p->samples * part_rows(p, part);
}

/* ---- Making nodes ---- */

tu__edge *tu__replicator_edges(tu__replicator *p, size_t count) {
    tu__edge *edges = tu__arena_alloc(&p->arena, count * sizeof *edges);
    for (size_t i = 0; edges && i < count; i++) edges[i] = (tu__edge){.node = TU_NO_NODE};
    return edges;
}

/* Where the parts of a value along an axis are noted; NULL: memory ran out. */
static tu__sharded_value *sharded_value_of(tu__replicator *p, tu__edge edge, int axis) {
    tu__replicated *value = tu__replicated_at(p, edge);
    for (tu__sharded_value *c = value->sharded_values; c; c = c->next)
        if (c->axis == axis) return c;
    tu__sharded_value *c = tu__arena_alloc(&p->arena, sizeof *c);
    if (!c) return NULL;
    c->axis = axis;
    c->parts = tu__replicator_edges(p, p->parts);
    if (!c->parts) return NULL;
    c->next = value->sharded_values;
    return value->sharded_values = c;
}

tu_value tu__replicator_insert(tu__replicator *p, const tu__node *beside, const char *what, size_t number,
                               const tu__node_request *request) {
    char suffix[80];
    if (number)
        snprintf(suffix, sizeof suffix, "%s@%zu", what, number);
    else
        snprintf(suffix, sizeof suffix, "%s", what);
    return tu__rewrite_insert(&p->r, beside->name, suffix, request);
}

/* Number 0 of what stands for a node has its name. */
static tu_value make_number(tu__replicator *p, const tu__node *node, size_t number,
                            const tu__node_request *request) {
    return number ? tu__replicator_insert(p, node, "", number, request)
                  : tu__rewrite_make(&p->r, node, request);
}

static tu_value to_value(const tu__replicator *p, tu__edge edge) {
    return tu__value(p->r.to, edge.node, edge.output);
}

/* Whether a node waits for another that stands for what it has to wait for: on its own device, and where one of them is
 * on the central one. */
static bool waits_for(const tu__replicator *p, const tu__node *node, const tu__node *dependency) {
    if (!tu__node_is_computed(dependency)) return false;
    if (strcmp(dependency->device, node->device) == 0) return true;
    return p->how->strategy == TU__CENTRAL &&
           (strcmp(dependency->device, p->how->central) == 0 || strcmp(node->device, p->how->central) == 0);
}

static tu_status wait_for_all(tu__replicator *p, tu__node *made, const tu__edge *edges, size_t count) {
    for (size_t i = 0; edges && i < count; i++) {
        if (edges[i].node == TU_NO_NODE) continue;
        if (waits_for(p, made, p->r.to->nodes[edges[i].node]))
            TU_TRY(tu__node_wait(p->r.to, made->id, edges[i].node));
    }
    return TU_OK;
}

static tu_status keep_waiting(tu__replicator *p, const tu__node *node, tu_value made) {
    if (!tu_ok(made)) return tu_graph_status(p->r.to);
    for (uint32_t i = 0; i < node->after_count; i++) {
        const tu__replicated *value = tu__replicated_at(p, (tu__edge){node->after[i], 0});
        TU_TRY(wait_for_all(p, p->r.to->nodes[made.node], value->whole, p->places));
        bool unsummed = !value->whole; /* of shares that nobody reads: each waits for its own */
        for (const tu__sharded_value *c = value->sharded_values; c; c = c->next)
            if (c->axis == value->as || (c->axis == TU__PARTIAL && unsummed))
                TU_TRY(wait_for_all(p, p->r.to->nodes[made.node], c->parts, p->parts));
    }
    return TU_OK;
}

/* The attributes of a node for a part: where they tell the shape of the result, or an end along the axis, with its
 * rows. NULL: memory ran out. */
static const void *attrs_of_part(tu__replicator *p, const tu__node *node, int axis, size_t part) {
    unsigned char *own =
        tu__arena_copy(&p->arena, node->attrs, node->op->attr_bytes ? node->op->attr_bytes : 1);
    if (!own || axis < 0) return own;
    int64_t rows = rows_of_axis(p, node->outputs[0].shape, axis, part);
    for (tu__field f = tu__first_field(node->op, own); f.attr; f = tu__next_field(f))
        if (f.attr->kind == TU__ATTR_SHAPE) {
            tu_shape shape = tu__field_shape(f, 0);
            shape.dim[axis] = rows;
            memcpy(own + (f.cells - own), &shape, sizeof shape); /* the field, to be written to */
        }
    if (node->op->code == TU__OP_SLICE) ((struct tu__slice_attrs *)(void *)own)->end[axis] = rows;
    return own;
}

/* ---- Values as a part or a place reads them ---- */

tu_value tu__replicated_whole(const tu__replicator *p, tu__edge edge, size_t place) {
    const tu__edge *whole = tu__replicated_at(p, edge)->whole;
    if (!whole) return tu__invalid(p->r.to);
    return to_value(p, whole[place].node == TU_NO_NODE ? whole[tu__central_place(p)] : whole[place]);
}

static tu_value slice_rows(tu__replicator *p, const tu__node *node, tu_value whole, int axis, size_t part) {
    if (!tu_ok(whole)) return whole;
    tu_shape shape = tu_value_shape(whole);
    struct tu__slice_attrs a = {{0}, {0}, {0}};
    for (int i = 0; i < shape.rank; i++) {
        a.end[i] = shape.dim[i];
        a.step[i] = 1;
    }
    a.begin[axis] = shape.dim[axis] / p->samples * first_row(p, part);
    a.end[axis] = a.begin[axis] + rows_of_axis(p, shape, axis, part);
    return tu__replicator_insert(p, node, "/rows", part,
                                 &(tu__node_request){.op = TU__OP_SLICE,
                                                     .attrs = &a,
                                                     .inputs = &whole,
                                                     .input_count = 1,
                                                     .device = tu__node_of(whole)->device});
}

/* The input of a broadcast or a reshape as a part reads it, to make its own rows of the result from; invalid: it cannot. */
static tu_value source_of_rows(tu__replicator *p, const tu__node *node, int axis, size_t part) {
    tu__edge source = node->inputs[0];
    tu_shape from = tu_edge_type(p->r.from, source).shape;
    int at = TU__REPLICATED;
    if (node->op->code == TU__OP_RESHAPE) {
        at = tu__reshape_source_axis(p->r.from, node, p->samples, axis);
        if (at < 0) return tu__invalid(p->r.to);
    } else {
        at = axis - (int)(node->outputs[0].shape.rank - from.rank);
        if (at < 0 || from.dim[at] == 1) return tu__replicated_whole(p, source, replica_of(p, part));
    }
    return tu__replicated_shard(p, source, at, part);
}

/* A part's rows of a whole value. */
static tu_value make_rows(tu__replicator *p, tu__edge edge, int axis, size_t part) {
    const tu__node *node = p->r.from->nodes[edge.node];
    bool remade = node->op->code == TU__OP_BROADCAST || node->op->code == TU__OP_RESHAPE;
    tu_value source = remade ? source_of_rows(p, node, axis, part) : tu__invalid(p->r.to);
    if (node->op->code != TU__OP_FILL && !tu_ok(source))
        return slice_rows(p, node, tu__replicated_whole(p, edge, replica_of(p, part)), axis, part);
    const void *attrs = attrs_of_part(p, node, axis, part);
    if (!attrs) return tu__graph_fail(p->r.to, TU_NO_MEMORY, "%s", tu_message());
    return tu__replicator_insert(p, node, "/rows", part,
                                 &(tu__node_request){.op = node->op->code,
                                                     .attrs = attrs,
                                                     .inputs = &source,
                                                     .input_count = node->input_count,
                                                     .device = tu__place_device(p, replica_of(p, part))});
}

tu_value tu__replicated_shard(tu__replicator *p, tu__edge edge, int axis, size_t part) {
    tu__sharded_value *c = sharded_value_of(p, edge, axis);
    if (!c) return tu__graph_fail(p->r.to, TU_NO_MEMORY, "%s", tu_message());
    if (c->parts[part].node == TU_NO_NODE) {
        tu_value made = make_rows(p, edge, axis, part);
        c->parts[part] = (tu__edge){made.node, made.output};
    }
    return to_value(p, c->parts[part]);
}

/* An operand that counts once is part 0's; the others have zeros. */
static tu_value read_once(tu__replicator *p, tu__edge edge, size_t part) {
    if (part == 0) return tu__replicated_whole(p, edge, 0);
    const tu__node *node = p->r.from->nodes[edge.node];
    tu_type type = node->outputs[edge.output];
    struct tu__fill_attrs zeros = {.dtype = type.dtype, .shape = type.shape};
    return tu__replicator_insert(p, node, "/zeros", part,
                                 &(tu__node_request){.op = TU__OP_FILL,
                                                     .attrs = &zeros,
                                                     .device = tu__place_device(p, replica_of(p, part))});
}

static tu_value read_as(tu__replicator *p, tu__edge edge, int as, size_t part) {
    if (as == TU__REPLICATED) return tu__replicated_whole(p, edge, replica_of(p, part));
    return as == TU__ONCE ? read_once(p, edge, part) : tu__replicated_shard(p, edge, as, part);
}

/* ---- What each node becomes ---- */

/* Whether a whole node is made at a place: everywhere between mirrors, with the central device on that alone. What is
 * there without computing is made wherever it is read; what nobody reads is dropped in the end. */
static bool is_made_at(const tu__replicator *p, const tu__node *node, size_t place) {
    if (p->how->strategy == TU__MIRRORED) return true;
    bool is_number = node->op->code == TU__OP_FILL || node->op->code == TU__OP_CONSTANT;
    return is_number || place == tu__central_place(p);
}

/* The central device's is the first. */
static size_t number_of(const tu__replicator *p, size_t place) {
    return p->how->strategy == TU__CENTRAL ? place + 1 : place;
}

static tu_status make_whole_at(tu__replicator *p, const tu__node *node, size_t place, tu_value *inputs) {
    tu__node_request request = tu__rewrite_request(&p->r, node, inputs);
    for (uint32_t i = 0; i < node->input_count; i++)
        inputs[i] = tu__replicated_whole(p, node->inputs[i], place);
    bool first = place == tu__central_place(p);
    bool fed = node->op->code == TU__OP_INPUT || node->op->code == TU__OP_VARIABLE;
    request.device = tu__place_device(p, place);
    request.group = 0;
    request.stands_for = fed && !first ? node->name : NULL;
    tu_value made = first ? tu__rewrite_make(&p->r, node, &request)
                          : tu__replicator_insert(p, node, "", number_of(p, place), &request);
    TU_TRY(tu_graph_status(p->r.to));
    if (!tu_ok(made)) return tu_fail(TU_INTERNAL, "replicate lost an input of '%s'", node->name);
    for (uint32_t i = 0; i < node->output_count; i++)
        tu__replicated_at(p, (tu__edge){node->id, i})->whole[place] = (tu__edge){made.node, i};
    return keep_waiting(p, node, made);
}

static tu_status make_whole(tu__replicator *p, const tu__node *node, tu_value *inputs) {
    for (uint32_t i = 0; i < node->output_count; i++) {
        tu__edge *whole = tu__replicator_edges(p, p->places);
        if (!whole) return TU_NO_MEMORY;
        tu__replicated_at(p, (tu__edge){node->id, i})->whole = whole;
    }
    for (size_t place = 0; place < p->places; place++)
        if (is_made_at(p, node, place)) TU_TRY(make_whole_at(p, node, place, inputs));
    return TU_OK;
}

/* A part of a batched input: rows of what the user feeds. */
static tu_status make_input_part(tu__replicator *p, const tu__node *node, size_t part) {
    tu__sharded_value *c = sharded_value_of(p, (tu__edge){node->id, 0}, 0);
    const void *attrs = attrs_of_part(p, node, 0, part);
    if (!c || !attrs) return TU_NO_MEMORY;
    tu__node_request request = {.op = TU__OP_INPUT,
                                .attrs = attrs,
                                .flags = node->flags,
                                .device = tu__place_device(p, replica_of(p, part)),
                                .stands_for = node->name,
                                .first_row = first_row(p, part)};
    char suffix[32];
    snprintf(suffix, sizeof suffix, "@%zu", part);
    tu_value made = tu__rewrite_insert(&p->r, node->name, suffix, &request);
    c->parts[part] = (tu__edge){made.node, made.output};
    return tu_graph_status(p->r.to);
}

static tu_status note_part(tu__replicator *p, const tu__shard *shard, tu_value made, size_t part) {
    for (uint32_t i = 0; i < shard->node->output_count; i++) {
        tu__sharded_value *c = sharded_value_of(p, (tu__edge){shard->node->id, i}, shard->out[i]);
        if (!c) return TU_NO_MEMORY;
        c->parts[part] = (tu__edge){made.node, i};
    }
    return TU_OK;
}

static tu_status make_part(tu__replicator *p, const tu__shard *shard, size_t part, tu_value *inputs) {
    const tu__node *node = shard->node;
    tu__node_request request = tu__rewrite_request(&p->r, node, inputs);
    for (uint32_t i = 0; i < node->input_count; i++)
        inputs[i] = read_as(p, node->inputs[i], shard->read[i], part);
    request.attrs = attrs_of_part(p, node, shard->out[0], part);
    if (!request.attrs) return TU_NO_MEMORY;
    if (shard->is_mean) request.op = TU__OP_SUM;
    request.device = tu__place_device(p, replica_of(p, part));
    request.group = 0;
    tu_value made = make_number(p, node, part, &request);
    TU_TRY(tu_graph_status(p->r.to));
    if (!tu_ok(made)) return tu_fail(TU_INTERNAL, "replicate lost an input of '%s'", node->name);
    TU_TRY(note_part(p, shard, made, part));
    return keep_waiting(p, node, made);
}

/* x times a number, on its own device. */
static tu_value weigh(tu__replicator *p, const tu__node *node, tu_value x, double weight, size_t number) {
    if (!tu_ok(x)) return x;
    const char *device = tu__node_of(x)->device;
    struct tu__fill_attrs a = {.dtype = tu_value_dtype(x), .number = weight};
    tu_value factor = tu__replicator_insert(
        p, node, "/weight", number, &(tu__node_request){.op = TU__OP_FILL, .attrs = &a, .device = device});
    return tu__replicator_insert(
        p, node, "/weighted", number,
        &(tu__node_request){
            .op = TU__OP_MUL, .inputs = (tu_value[]){x, factor}, .input_count = 2, .device = device});
}

/* What a sum over parts is to be multiplied by: a mean's by one over all its elements, that of statistics by one over the
 * parts. Where the parts are not equal, statistics are weighed by their samples before; else after, once, which also
 * leaves nothing but additions between the parts: a device that fuses a product with a sum would round differently
 * where other sums are its own. */
static double weight_of_sum(const tu__replicator *p, const tu__shard *shard, uint32_t output) {
    if (shard->out[output] == TU__PARTIAL) return 1 / shard->divisor;
    return p->samples % (int64_t)p->parts ? 1 : 1 / (double)p->parts;
}

static double weight_of_part(const tu__replicator *p, const tu__shard *shard, uint32_t output, size_t part) {
    bool uneven = p->samples % (int64_t)p->parts != 0;
    if (shard->out[output] != TU__PER_SHARD || !uneven) return 1;
    return (double)part_rows(p, part) / (double)p->samples;
}

static void weigh_sum(tu__replicator *p, const tu__shard *shard, uint32_t output) {
    tu__edge *whole = tu__replicated_at(p, (tu__edge){shard->node->id, output})->whole;
    double weight = weight_of_sum(p, shard, output);
    for (size_t place = 0; place < p->places && weight != 1; place++) {
        if (whole[place].node == TU_NO_NODE) continue;
        tu_value weighed = weigh(p, shard->node, to_value(p, whole[place]), weight, place);
        whole[place] = (tu__edge){weighed.node, weighed.output};
    }
}

static tu_status make_sum(tu__replicator *p, const tu__shard *shard, uint32_t output) {
    tu__sharded_value *c = sharded_value_of(p, (tu__edge){shard->node->id, output}, shard->out[output]);
    tu_value *shares = tu__arena_alloc(&p->arena, p->parts * sizeof *shares);
    if (!c || !shares) return TU_NO_MEMORY;
    for (size_t part = 0; part < p->parts; part++) {
        double weight = weight_of_part(p, shard, output, part);
        shares[part] = to_value(p, c->parts[part]);
        if (weight != 1) shares[part] = weigh(p, shard->node, shares[part], weight, part);
    }
    TU_TRY(tu__sum_partials(p, shard->node, output, shares));
    weigh_sum(p, shard, output);
    return tu_graph_status(p->r.to);
}

static tu_status make_parts(tu__replicator *p, const tu__shard *shard, tu_value *inputs) {
    for (size_t part = 0; part < p->parts; part++) TU_TRY(make_part(p, shard, part, inputs));
    for (uint32_t i = 0; i < shard->node->output_count; i++)
        if (tu__replicated_at(p, (tu__edge){shard->node->id, i})->summed) TU_TRY(make_sum(p, shard, i));
    return TU_OK;
}

static tu_status make_node(tu__replicator *p, const tu__node *node, tu_value *inputs) {
    if (p->sharded[node->id]) return make_parts(p, p->sharded[node->id], inputs);
    if (!tu__is_batched(node)) return make_whole(p, node, inputs);
    for (size_t part = 0; part < p->parts; part++) TU_TRY(make_input_part(p, node, part));
    return TU_OK;
}

tu_status tu__replicator_make(tu__replicator *p) {
    for (uint32_t id = 0; id < p->r.from->node_count; id++) {
        const tu__node *node = p->r.from->nodes[id];
        tu_value *inputs =
            tu__alloc_array((size_t)node->input_count + 1, sizeof *inputs, "an operation's inputs");
        tu_status status = inputs ? make_node(p, node, inputs) : TU_NO_MEMORY;
        tu__free(inputs);
        TU_TRY(status);
    }
    return TU_OK;
}
