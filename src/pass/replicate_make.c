/* Builds the replicas' nodes: for every node of the old graph, in order, those that replace it.
 *
 * A replicated node is built on every device that needs it, a sharded one for every shard, with the attributes of the
 * shard's rows and on the device of its replica. Operands are read as the shard rule requires. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/attrs.h"
#include "pass/replicate.h"

/* ---- Shards and devices ---- */

/* Returns the number of samples in a shard. */
static int64_t shard_rows(const tu__replicator *p, size_t shard) {
    int64_t shards = (int64_t)p->shards;
    return p->samples / shards + ((int64_t)shard < p->samples % shards);
}

/* If the shards are not equal, the larger ones come first. */
static int64_t first_row(const tu__replicator *p, size_t shard) {
    int64_t shards = (int64_t)p->shards, index = (int64_t)shard, larger = p->samples % shards;
    return index * (p->samples / shards) + (index < larger ? index : larger);
}

static size_t replica_of(const tu__replicator *p, size_t shard) {
    return (shard - p->first_shard) * p->replicas / (p->end_shard - p->first_shard);
}

size_t tu__central_device(const tu__replicator *p) {
    return p->options->strategy == TU__CENTRAL ? p->device_count - 1 : 0;
}

const char *tu__replicator_device_name(const tu__replicator *p, size_t device) {
    return device < p->replicas ? p->options->replicas[device] : p->options->central;
}

/* Returns the rows of an axis that belong to a shard; every sample has the same number of rows. */
static int64_t rows_of_axis(const tu__replicator *p, tu_shape shape, int axis, size_t shard) {
    return shape.dim[axis] / p->samples * shard_rows(p, shard);
}

/* ---- Building nodes ---- */

tu__edge *tu__replicator_new_edges(tu__replicator *p, size_t count) {
    tu__edge *edges = tu__arena_alloc(&p->arena, count * sizeof *edges);
    for (size_t i = 0; edges && i < count; i++) edges[i] = (tu__edge){.node = TU_NO_NODE};
    return edges;
}

/* Returns the entry for the shards of a value along an axis; makes it on first use. NULL if out of memory. */
static tu__sharded_value *find_sharded_value(tu__replicator *p, tu__edge edge, int axis) {
    tu__distributed_value *value = tu__distributed_value_of(p, edge);
    for (tu__sharded_value *c = value->sharded_values; c; c = c->next)
        if (c->axis == axis) return c;
    tu__sharded_value *c = tu__arena_alloc(&p->arena, sizeof *c);
    if (!c) return NULL;
    c->axis = axis;
    c->shards = tu__replicator_new_edges(p, p->shards);
    if (!c->shards) return NULL;
    c->next = value->sharded_values;
    return value->sharded_values = c;
}

tu_value tu__replicator_insert(tu__replicator *p, const tu__node *base, const char *suffix_text,
                               size_t instance, const tu__node_request *request) {
    char suffix[80];
    if (instance)
        snprintf(suffix, sizeof suffix, "%s@%zu", suffix_text, instance);
    else
        snprintf(suffix, sizeof suffix, "%s", suffix_text);
    return tu__rewrite_insert(&p->r, base->name, suffix, request);
}

/* Makes the given instance of a node; instance 0 keeps its name. */
static tu_value make_instance(tu__replicator *p, const tu__node *node, size_t instance,
                              const tu__node_request *request) {
    return instance ? tu__replicator_insert(p, node, "", instance, request)
                    : tu__rewrite_make(&p->r, node, request);
}

static tu_value to_value(const tu__replicator *p, tu__edge edge) {
    return tu__value(p->r.to, edge.node, edge.output);
}

/* True if a node must wait for this instance of its control dependency: if both are on one device, or if one of them
 * is on the central device. */
static bool depends_on(const tu__replicator *p, const tu__node *node, const tu__node *dependency) {
    if (!tu__node_is_computed(dependency)) return false;
    if (strcmp(dependency->device, node->device) == 0) return true;
    return p->options->strategy == TU__CENTRAL && (strcmp(dependency->device, p->options->central) == 0 ||
                                                   strcmp(node->device, p->options->central) == 0);
}

static tu_status add_control_deps(tu__replicator *p, tu__node *new_node, const tu__edge *edges,
                                  size_t count) {
    for (size_t i = 0; edges && i < count; i++) {
        if (edges[i].node == TU_NO_NODE) continue;
        if (depends_on(p, new_node, p->r.to->nodes[edges[i].node]))
            TU_TRY(tu__node_add_dependency(p->r.to, new_node->id, edges[i].node));
    }
    return TU_OK;
}

static tu_status copy_control_deps(tu__replicator *p, const tu__node *node, tu_value new_value) {
    if (!tu_ok(new_value)) return tu_graph_status(p->r.to);
    for (uint32_t i = 0; i < node->after_count; i++) {
        const tu__distributed_value *value = tu__distributed_value_of(p, (tu__edge){node->after[i], 0});
        TU_TRY(add_control_deps(p, p->r.to->nodes[new_value.node], value->by_device, p->device_count));
        /* Partial sums that no node reads: wait for the partials themselves. */
        bool is_unsummed = !value->by_device;
        for (const tu__sharded_value *c = value->sharded_values; c; c = c->next)
            if (c->axis == value->layout || (c->axis == TU__PARTIAL && is_unsummed))
                TU_TRY(add_control_deps(p, p->r.to->nodes[new_value.node], c->shards, p->shards));
    }
    return TU_OK;
}

/* Returns a node's attributes for a shard: shapes, and the end of a slice along the axis, have the shard's rows.
 * NULL if out of memory. */
static const void *attrs_of_shard(tu__replicator *p, const tu__node *node, int axis, size_t shard) {
    unsigned char *shard_attrs =
        tu__arena_copy(&p->arena, node->attrs, node->op->attr_bytes ? node->op->attr_bytes : 1);
    if (!shard_attrs || axis < 0) return shard_attrs;
    int64_t rows = rows_of_axis(p, node->outputs[0].shape, axis, shard);
    for (tu__field f = tu__first_field(node->op, shard_attrs); f.attr; f = tu__next_field(f))
        if (f.attr->kind == TU__ATTR_SHAPE) {
            tu_shape shape = tu__field_shape(f, 0);
            shape.dim[axis] = rows;
            /* Through `shard_attrs`: the field is const. */
            memcpy(shard_attrs + (f.cells - shard_attrs), &shape, sizeof shape);
        }
    if (node->op->code == TU__OP_SLICE) ((struct tu__slice_attrs *)(void *)shard_attrs)->end[axis] = rows;
    return shard_attrs;
}

/* ---- Operands on a shard or a device ---- */

tu_value tu__replicated_value(const tu__replicator *p, tu__edge edge, size_t device) {
    const tu__edge *by_device = tu__distributed_value_of(p, edge)->by_device;
    if (!by_device) return tu__invalid(p->r.to);
    tu__edge found =
        by_device[device].node == TU_NO_NODE ? by_device[tu__central_device(p)] : by_device[device];
    return found.node == TU_NO_NODE ? tu__invalid(p->r.to) : to_value(p, found);
}

static tu_value slice_rows(tu__replicator *p, const tu__node *node, tu_value replicated, int axis,
                           size_t shard) {
    if (!tu_ok(replicated)) return replicated;
    tu_shape shape = tu_value_shape(replicated);
    struct tu__slice_attrs a = {{0}, {0}, {0}};
    for (int i = 0; i < shape.rank; i++) {
        a.end[i] = shape.dim[i];
        a.step[i] = 1;
    }
    a.begin[axis] = shape.dim[axis] / p->samples * first_row(p, shard);
    a.end[axis] = a.begin[axis] + rows_of_axis(p, shape, axis, shard);
    return tu__replicator_insert(p, node, "/rows", shard,
                                 &(tu__node_request){.op = TU__OP_SLICE,
                                                     .attrs = &a,
                                                     .inputs = &replicated,
                                                     .input_count = 1,
                                                     .device = tu__node_of(replicated)->device});
}

/* Returns the operand from which a shard can compute its rows of a broadcast or reshape; invalid if it cannot. */
static tu_value source_of_rows(tu__replicator *p, const tu__node *node, int axis, size_t shard) {
    tu__edge source = node->inputs[0];
    tu_shape from = tu_edge_type(p->r.from, source).shape;
    int source_axis = TU__REPLICATED;
    if (node->op->code == TU__OP_RESHAPE) {
        source_axis = tu__reshape_source_axis(p->r.from, node, p->samples, axis);
        if (source_axis < 0) return tu__invalid(p->r.to);
    } else {
        source_axis = axis - (int)(node->outputs[0].shape.rank - from.rank);
        if (source_axis < 0 || from.dim[source_axis] == 1)
            return tu__replicated_value(p, source, replica_of(p, shard));
    }
    return tu__shard_of_value(p, source, source_axis, shard);
}

/* Returns a shard's rows of a replicated value. */
static tu_value make_rows(tu__replicator *p, tu__edge edge, int axis, size_t shard) {
    const tu__node *node = p->r.from->nodes[edge.node];
    bool is_rebuilt = node->op->code == TU__OP_BROADCAST || node->op->code == TU__OP_RESHAPE;
    tu_value source = is_rebuilt ? source_of_rows(p, node, axis, shard) : tu__invalid(p->r.to);
    if (node->op->code != TU__OP_FILL && !tu_ok(source))
        return slice_rows(p, node, tu__replicated_value(p, edge, replica_of(p, shard)), axis, shard);
    const void *attrs = attrs_of_shard(p, node, axis, shard);
    if (!attrs) return tu__graph_fail(p->r.to, TU_NO_MEMORY, "%s", tu_message());
    return tu__replicator_insert(
        p, node, "/rows", shard,
        &(tu__node_request){.op = node->op->code,
                            .attrs = attrs,
                            .inputs = &source,
                            .input_count = node->input_count,
                            .device = tu__replicator_device_name(p, replica_of(p, shard))});
}

tu_value tu__shard_of_value(tu__replicator *p, tu__edge edge, int axis, size_t shard) {
    tu__sharded_value *c = find_sharded_value(p, edge, axis);
    if (!c) return tu__graph_fail(p->r.to, TU_NO_MEMORY, "%s", tu_message());
    if (c->shards[shard].node == TU_NO_NODE) {
        tu_value new_value = make_rows(p, edge, axis, shard);
        c->shards[shard] = (tu__edge){new_value.node, new_value.output};
    }
    return to_value(p, c->shards[shard]);
}

/* Returns an operand that must be counted once: the value in shard 0, zeros in the others. */
static tu_value read_in_shard_0(tu__replicator *p, tu__edge edge, size_t shard) {
    if (shard == 0) return tu__replicated_value(p, edge, 0);
    const tu__node *node = p->r.from->nodes[edge.node];
    tu_type type = node->outputs[edge.output];
    struct tu__fill_attrs zeros = {.dtype = type.dtype, .shape = type.shape};
    return tu__replicator_insert(
        p, node, "/zeros", shard,
        &(tu__node_request){.op = TU__OP_FILL,
                            .attrs = &zeros,
                            .device = tu__replicator_device_name(p, replica_of(p, shard))});
}

static tu_value read_operand(tu__replicator *p, tu__edge edge, int layout, size_t shard) {
    if (layout == TU__REPLICATED) return tu__replicated_value(p, edge, replica_of(p, shard));
    return layout == TU__ONCE ? read_in_shard_0(p, edge, shard) : tu__shard_of_value(p, edge, layout, shard);
}

/* ---- Nodes ---- */

/* True if a replicated node is built on a device: on every device if mirrored, else only on the central one, of several
 * processes where it is needed. Fills and constants are built everywhere; those that no node reads are dropped at the
 * end. */
static bool is_built_on_device(const tu__replicator *p, const tu__node *node, size_t device) {
    if (p->options->strategy == TU__MIRRORED) return true;
    bool is_fill_or_constant = node->op->code == TU__OP_FILL || node->op->code == TU__OP_CONSTANT;
    bool is_needed =
        tu__has_variables(p) || (node->op->code != TU__OP_VARIABLE && tu__is_computed_elsewhere(p, node));
    return is_fill_or_constant || (is_needed && device == tu__central_device(p));
}

/* Returns the number in the name of a device's instance; 0, for the central device's: none. */
static size_t name_index(const tu__replicator *p, size_t device) {
    return p->options->strategy == TU__CENTRAL ? device + 1 : device;
}

static tu_status make_replicated_on_device(tu__replicator *p, const tu__node *node, size_t device,
                                           tu_value *inputs) {
    tu__node_request request = tu__rewrite_request(&p->r, node, inputs);
    for (uint32_t i = 0; i < node->input_count; i++)
        inputs[i] = tu__replicated_value(p, node->inputs[i], device);
    bool is_central = device == tu__central_device(p);
    bool is_input_or_variable = node->op->code == TU__OP_INPUT || node->op->code == TU__OP_VARIABLE;
    request.device = tu__replicator_device_name(p, device);
    request.group = 0;
    request.stands_for = is_input_or_variable && !is_central ? node->name : NULL;
    tu_value new_value = is_central ? tu__rewrite_make(&p->r, node, &request)
                                    : tu__replicator_insert(p, node, "", name_index(p, device), &request);
    TU_TRY(tu_graph_status(p->r.to));
    if (!tu_ok(new_value)) return tu_fail(TU_INTERNAL, "replicate dropped an input of '%s'", node->name);
    for (uint32_t i = 0; i < node->output_count; i++)
        tu__distributed_value_of(p, (tu__edge){node->id, i})->by_device[device] =
            (tu__edge){new_value.node, i};
    return copy_control_deps(p, node, new_value);
}

static tu_status make_replicated(tu__replicator *p, const tu__node *node, tu_value *inputs) {
    for (uint32_t i = 0; i < node->output_count; i++) {
        tu__edge *by_device = tu__replicator_new_edges(p, p->device_count);
        if (!by_device) return TU_NO_MEMORY;
        tu__distributed_value_of(p, (tu__edge){node->id, i})->by_device = by_device;
    }
    for (size_t device = 0; device < p->device_count; device++)
        if (is_built_on_device(p, node, device)) TU_TRY(make_replicated_on_device(p, node, device, inputs));
    bool is_sent = node->op->code == TU__OP_VARIABLE && tu__is_computed_elsewhere(p, node);
    return is_sent ? tu__send_variable(p, node) : TU_OK;
}

/* Builds a shard of a batched input: some rows of the array that the user feeds. */
static tu_status make_input_shard(tu__replicator *p, const tu__node *node, size_t shard) {
    tu__sharded_value *c = find_sharded_value(p, (tu__edge){node->id, 0}, 0);
    const void *attrs = attrs_of_shard(p, node, 0, shard);
    if (!c || !attrs) return TU_NO_MEMORY;
    tu__node_request request = {.op = TU__OP_INPUT,
                                .attrs = attrs,
                                .flags = node->flags,
                                .device = tu__replicator_device_name(p, replica_of(p, shard)),
                                .stands_for = node->name,
                                .first_row = first_row(p, shard)};
    char suffix[32];
    snprintf(suffix, sizeof suffix, "@%zu", shard);
    tu_value new_value = tu__rewrite_insert(&p->r, node->name, suffix, &request);
    c->shards[shard] = (tu__edge){new_value.node, new_value.output};
    return tu_graph_status(p->r.to);
}

static tu_status record_shard(tu__replicator *p, const tu__sharding *sharding, tu_value new_value,
                              size_t shard) {
    for (uint32_t i = 0; i < sharding->node->output_count; i++) {
        tu__sharded_value *c = find_sharded_value(p, (tu__edge){sharding->node->id, i}, sharding->out[i]);
        if (!c) return TU_NO_MEMORY;
        c->shards[shard] = (tu__edge){new_value.node, i};
    }
    return TU_OK;
}

static tu_status make_shard(tu__replicator *p, const tu__sharding *sharding, size_t shard, tu_value *inputs) {
    const tu__node *node = sharding->node;
    tu__node_request request = tu__rewrite_request(&p->r, node, inputs);
    for (uint32_t i = 0; i < node->input_count; i++)
        inputs[i] = read_operand(p, node->inputs[i], sharding->read[i], shard);
    request.attrs = attrs_of_shard(p, node, sharding->out[0], shard);
    if (!request.attrs) return TU_NO_MEMORY;
    if (sharding->is_mean) request.op = TU__OP_SUM;
    request.device = tu__replicator_device_name(p, replica_of(p, shard));
    request.group = 0;
    tu_value new_value = make_instance(p, node, shard, &request);
    TU_TRY(tu_graph_status(p->r.to));
    if (!tu_ok(new_value)) return tu_fail(TU_INTERNAL, "replicate dropped an input of '%s'", node->name);
    TU_TRY(record_shard(p, sharding, new_value, shard));
    return copy_control_deps(p, node, new_value);
}

/* Multiplies x by `weight`, on x's device. */
static tu_value scale(tu__replicator *p, const tu__node *node, tu_value x, double weight, size_t instance) {
    if (!tu_ok(x)) return x;
    const char *device = tu__node_of(x)->device;
    struct tu__fill_attrs a = {.dtype = tu_value_dtype(x), .number = weight};
    tu_value factor = tu__replicator_insert(
        p, node, "/weight", instance, &(tu__node_request){.op = TU__OP_FILL, .attrs = &a, .device = device});
    return tu__replicator_insert(
        p, node, "/weighted", instance,
        &(tu__node_request){
            .op = TU__OP_MUL, .inputs = (tu_value[]){x, factor}, .input_count = 2, .device = device});
}

/* Returns the factor of a sum over shards: 1 / (number of elements) for a mean, 1 / shards for statistics. If the
 * shards differ in size, statistics are scaled by their number of samples before the sum instead. Scaling once,
 * after the sum, leaves only additions between shards: a device that fuses a multiplication with an addition would
 * round differently depending on which sums it computes itself. */
static double scale_of_sum(const tu__replicator *p, const tu__sharding *sharding, uint32_t output) {
    if (sharding->out[output] == TU__PARTIAL) return 1 / sharding->divisor;
    return p->samples % (int64_t)p->shards ? 1 : 1 / (double)p->shards;
}

static double scale_of_shard(const tu__replicator *p, const tu__sharding *sharding, uint32_t output,
                             size_t shard) {
    bool is_uneven = p->samples % (int64_t)p->shards != 0;
    if (sharding->out[output] != TU__PER_SHARD || !is_uneven) return 1;
    return (double)shard_rows(p, shard) / (double)p->samples;
}

static void scale_sum(tu__replicator *p, const tu__sharding *sharding, uint32_t output) {
    tu__edge *by_device = tu__distributed_value_of(p, (tu__edge){sharding->node->id, output})->by_device;
    double weight = scale_of_sum(p, sharding, output);
    for (size_t device = 0; device < p->device_count && weight != 1; device++) {
        if (by_device[device].node == TU_NO_NODE) continue;
        tu_value weighted = scale(p, sharding->node, to_value(p, by_device[device]), weight, device);
        by_device[device] = (tu__edge){weighted.node, weighted.output};
    }
}

static tu_status make_sum(tu__replicator *p, const tu__sharding *sharding, uint32_t output) {
    tu__sharded_value *c =
        find_sharded_value(p, (tu__edge){sharding->node->id, output}, sharding->out[output]);
    tu_value *partials = tu__arena_alloc(&p->arena, (p->end_shard - p->first_shard) * sizeof *partials);
    if (!c || !partials) return TU_NO_MEMORY;
    for (size_t shard = p->first_shard; shard < p->end_shard; shard++) {
        double weight = scale_of_shard(p, sharding, output, shard);
        tu_value partial = to_value(p, c->shards[shard]);
        if (weight != 1) partial = scale(p, sharding->node, partial, weight, shard);
        partials[shard - p->first_shard] = partial;
    }
    TU_TRY(tu__sum_partials(p, sharding->node, output, partials));
    scale_sum(p, sharding, output);
    return tu_graph_status(p->r.to);
}

static tu_status make_shards(tu__replicator *p, const tu__sharding *sharding, tu_value *inputs) {
    for (size_t shard = p->first_shard; shard < p->end_shard; shard++)
        TU_TRY(make_shard(p, sharding, shard, inputs));
    for (uint32_t i = 0; i < sharding->node->output_count; i++)
        if (tu__distributed_value_of(p, (tu__edge){sharding->node->id, i})->is_summed)
            TU_TRY(make_sum(p, sharding, i));
    return TU_OK;
}

static tu_status make_node(tu__replicator *p, const tu__node *node, tu_value *inputs) {
    if (p->sharded[node->id]) return make_shards(p, p->sharded[node->id], inputs);
    if (!tu__is_batched(node)) return make_replicated(p, node, inputs);
    for (size_t shard = p->first_shard; shard < p->end_shard; shard++)
        TU_TRY(make_input_shard(p, node, shard));
    return TU_OK;
}

tu_status tu__replicator_build(tu__replicator *p) {
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
