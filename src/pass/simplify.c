/* simplify: computes the same results with fewer nodes.
 *
 * Iterates over the nodes once, in order. The inputs of a needed node are replaced by their simplified values. Then
 * the node is computed if its inputs are constant (fold.c), replaced by an identity (algebra.c), or merged with an
 * equal node: same operation, attributes and inputs. Finally the nodes that are no longer needed are dropped. Since
 * inputs come before their readers, one iteration is enough.
 *
 * Never merged: random operations, assignments, inputs and variables; nodes copied in order to be recomputed late,
 * since merging them would keep memory alive that the copies were made to free; nodes pinned to different devices or
 * in different colocation groups. Nodes with control dependencies are neither merged nor replaced, so that
 * everything that reads them still runs after those dependencies.
 *
 * On the device `ref` results stay bit-identical, except that
 *   - x + 0 and x - 0 are x, so -0 stays -0 (it would have become +0);
 *   - (x * 2^i) * 2^j is x * 2^(i+j): a subnormal result is rounded once instead of twice;
 *   - if operands are swapped to merge nodes and both are NaN, the payload of the other NaN may be the result's.
 * x * 0 is not replaced by 0: x may be infinite or NaN. Sums of constants are not regrouped: float addition is not
 * associative. */
#include "pass/simplify.h"

#include <string.h>

#include "base/alloc.h"
#include "base/number.h"

typedef struct tu__simplifier {
    tu__unit *unit;
    tu__rewrite rewrite;
    /* Hash table of the new nodes: a hash gives the latest node, `earlier` the node before it with the same hash. */
    uint32_t *latest, bucket_count; /* a power of two */
    uint32_t *earlier;              /* per node of the new graph */
    size_t earlier_capacity;
} simplifier;

/* ---- Equal nodes ---- */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size) {
    const unsigned char *b = bytes;
    for (size_t i = 0; i < size; i++) hash = (hash ^ b[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Maximum and minimum are excluded: they commute except for the sign of zero. */
static bool can_swap_inputs(const tu__op *op) {
    return (op->traits & TU__COMMUTES) && op->code != TU__OP_MAXIMUM && op->code != TU__OP_MINIMUM;
}

static bool edge_less(tu__edge a, tu__edge b) {
    return a.node != b.node ? a.node < b.node : a.output < b.output;
}

/* Returns input `i` after the two inputs of a commutative operation are sorted. */
static tu__edge ordered_input(const tu__op *op, const tu__edge *inputs, uint32_t i) {
    bool swap = can_swap_inputs(op) && edge_less(inputs[1], inputs[0]);
    return inputs[swap ? 1 - i : i];
}

static uint64_t hash_node(const tu__node *node) {
    uint64_t hash = hash_bytes(UINT64_C(0xcbf29ce484222325), &node->op->code, sizeof node->op->code);
    hash = hash_bytes(hash, node->attrs, node->op->attr_bytes);
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu__edge edge = ordered_input(node->op, node->inputs, i);
        hash = hash_bytes(hash, &edge, sizeof edge);
    }
    if (node->shared)
        hash = hash_bytes(hash, &node->shared->id, sizeof node->shared->id);
    else if (node->data)
        hash = hash_bytes(hash, node->data, tu_type_bytes(node->outputs[0]));
    return hash ^ hash >> 29;
}

static bool same_device(const tu__node *a, const tu__node *b) {
    if (!a->device || !b->device) return a->device == b->device;
    return strcmp(a->device, b->device) == 0;
}

static bool equal_nodes(const tu__node *a, const tu__node *b) {
    if (a->op != b->op || a->custom != b->custom || a->input_count != b->input_count) return false;
    if (memcmp(a->attrs, b->attrs, a->op->attr_bytes) != 0 || !same_device(a, b)) return false;
    if (a->group != b->group) return false;
    for (uint32_t i = 0; i < a->input_count; i++) {
        tu__edge x = ordered_input(a->op, a->inputs, i), y = ordered_input(b->op, b->inputs, i);
        if (x.node != y.node || x.output != y.output) return false;
    }
    /* Equal attributes: equal types. */
    if (a->shared || b->shared) return a->shared == b->shared;
    return !a->data || memcmp(a->data, b->data, tu_type_bytes(a->outputs[0])) == 0;
}

static bool may_merge(const tu__node *node) {
    if (node->op->code == TU__OP_INPUT || node->op->code == TU__OP_VARIABLE) return false;
    if (node->op->traits & TU__COLLECTIVE) return false; /* all ranks must pass the same number of values */
    return !(node->op->traits & (TU__RANDOM | TU__EFFECT)) && !(node->flags & TU__NODE_RECOMPUTED) &&
           !node->after_count;
}

static tu_status reserve_earlier(simplifier *s, size_t count) {
    if (count <= s->earlier_capacity) return TU_OK;
    uint32_t *grown = tu__realloc(s->earlier, 2 * count * sizeof *grown, "a pass");
    if (!grown) return TU_NO_MEMORY;
    s->earlier = grown;
    s->earlier_capacity = 2 * count;
    return TU_OK;
}

/* Returns a node of the new graph that equals `key`, which is not in the graph; NULL: none. */
static const tu__node *find_equal(const simplifier *s, const tu__node *key) {
    const tu_graph *to = s->rewrite.to;
    uint32_t id = s->latest[hash_node(key) & (s->bucket_count - 1)];
    while (id != TU_NO_NODE && !equal_nodes(to->nodes[id], key)) id = s->earlier[id];
    return id == TU_NO_NODE ? NULL : to->nodes[id];
}

static tu_status add_to_table(simplifier *s, const tu__node *node) {
    if (!may_merge(node)) return TU_OK;
    TU_TRY(reserve_earlier(s, (size_t)node->id + 1));
    uint32_t *bucket = &s->latest[hash_node(node) & (s->bucket_count - 1)];
    s->earlier[node->id] = *bucket;
    *bucket = node->id;
    return TU_OK;
}

/* ---- Creating simplified nodes ---- */

tu_status tu__simplify_make(tu__candidate *c, const char *inserted, const tu__node_request *request,
                            tu_value *value) {
    simplifier *s = c->simplifier;
    tu__rewrite *r = c->r;
    const tu__node *origin = c->origin;
    tu__edge *edges = tu__alloc_array(request->input_count + 1, sizeof *edges, "an operation's inputs");
    if (!edges) return TU_NO_MEMORY;
    for (size_t i = 0; i < request->input_count; i++)
        edges[i] = (tu__edge){request->inputs[i].node, request->inputs[i].output};
    tu__node key = {/* in no graph; for comparison only */
                    .op = tu__op_get(request->op),
                    .flags = request->flags,
                    .input_count = (uint32_t)request->input_count,
                    .inputs = edges,
                    .outputs = origin->outputs,
                    .attrs = request->attrs,
                    .data = request->data,
                    .shared = request->shared,
                    .custom = request->custom,
                    .device = request->device,
                    .group = request->group,
                    .after_count = inserted ? 0 : origin->after_count};
    const tu__node *equal = may_merge(&key) ? find_equal(s, &key) : NULL;
    tu__free(edges);
    if (equal) {
        *value = tu__value(r->to, equal->id, 0);
        return TU_OK;
    }
    *value = inserted ? tu__rewrite_insert(r, origin->name, inserted, request)
                      : tu__rewrite_make(r, origin, request);
    if (tu_ok(*value)) return add_to_table(s, r->to->nodes[value->node]);
    TU_TRY(tu_graph_status(r->to));
    return tu_fail(TU_INTERNAL, "simplify dropped an input of '%s'", origin->name);
}

tu_value tu__simplify_fill(tu__candidate *c, tu_type type, double number) {
    struct tu__fill_attrs attrs = {.dtype = type.dtype, .shape = type.shape, .number = number};
    tu__node_request request = {.op = TU__OP_FILL, .attrs = &attrs, .device = c->origin->device};
    tu_value value;
    tu_status status = tu__simplify_make(c, "/fill", &request, &value);
    return status == TU_OK ? value : tu__graph_fail(c->r->to, status, "%s", tu_message());
}

bool tu__is_fill(tu_value value, double *number) {
    const tu__node *node = tu__node_of(value);
    if (node->op->code != TU__OP_FILL) return false;
    *number = tu__round_to(node->outputs[0].dtype, tu__attrs(node, fill)->number);
    return true;
}

/* ---- The iteration ---- */

/* Folds and applies identities until none applies; each makes the candidate simpler, so this ends. */
static tu_status apply_rules(tu__candidate *c, tu__outcome *outcome) {
    do {
        TU_TRY(tu__simplify_by_folding(c, outcome));
        if (*outcome == TU__KEPT) *outcome = tu__simplify_by_algebra(c);
        TU_TRY(tu_graph_status(c->r->to));
    } while (*outcome == TU__CHANGED);
    return TU_OK;
}

static tu_status simplify_with_inputs(simplifier *s, const tu__node *node, tu_value *inputs) {
    tu__rewrite *r = &s->rewrite;
    tu__node_request request = tu__rewrite_request(r, node, inputs);
    tu__candidate c = {.simplifier = s,
                       .r = r,
                       .origin = node,
                       .op = node->op->code,
                       .attrs = node->attrs,
                       .input_count = node->input_count,
                       .inputs = inputs};
    tu__outcome outcome = TU__KEPT;
    if (node->op->code == TU__OP_ASSIGN && !s->unit->updates) { /* a fetched assignment: only its value */
        c.replacement = inputs[1];
        outcome = TU__REPLACED;
    } else if (!node->after_count) {
        TU_TRY(apply_rules(&c, &outcome));
    }
    tu_value value = c.replacement;
    if (outcome == TU__KEPT) {
        request.op = c.op;
        request.attrs = c.attrs;
        request.input_count = c.input_count;
        TU_TRY(tu__simplify_make(&c, NULL, &request, &value));
    }
    tu__rewrite_map_all(r, node, value);
    return TU_OK;
}

static tu_status simplify_node(simplifier *s, const tu__node *node) {
    tu_value *inputs =
        tu__alloc_array((size_t)node->input_count + 1, sizeof *inputs, "an operation's inputs");
    if (!inputs) return TU_NO_MEMORY;
    tu_status status = simplify_with_inputs(s, node, inputs);
    tu__free(inputs);
    return status;
}

static tu_status init_simplifier(simplifier *s, const tu_graph *graph) {
    TU_TRY(tu__rewrite_begin(&s->rewrite, graph));
    for (s->bucket_count = 64; s->bucket_count < graph->node_count;) s->bucket_count *= 2;
    s->latest = tu__alloc_array(s->bucket_count, sizeof *s->latest, "a pass");
    if (!s->latest) return TU_NO_MEMORY;
    memset(s->latest, 0xff, s->bucket_count * sizeof *s->latest); /* TU_NO_NODE */
    return TU_OK;
}

static tu_status simplify_nodes(simplifier *s) {
    const tu_graph *graph = s->unit->graph;
    bool *needed = tu__unit_needed(s->unit);
    tu_status status = needed ? init_simplifier(s, graph) : TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count && status == TU_OK; i++)
        if (needed[i]) status = simplify_node(s, graph->nodes[i]);
    tu__free(needed);
    return status;
}

tu_status tu__pass_simplify(tu__unit *unit) {
    simplifier s = {.unit = unit};
    tu_status status = simplify_nodes(&s);
    if (status == TU_OK)
        status = tu__rewrite_finish(&s.rewrite, unit);
    else
        tu__rewrite_abandon(&s.rewrite);
    tu__free(s.latest);
    tu__free(s.earlier);
    return status == TU_OK ? tu__unit_drop_dead(unit) : status;
}
