/* Lists the squared global norms of a partition, so that devices need not search for them (tu_squared_norm):
 *
 *     total = ((f64(sum(sum(square(g0), rows))) + f64(sum(square(g1)))) + …
 *
 * as an optimizer builds them (optim/gradients.c) and as graph files contain them. Operation by operation that is two
 * or three kernels per tensor. A norm has two or more tensors. Only nodes of the norm read its values, except that of
 * the total: a value that something else needs could not stay inside a kernel. */
#include "compile/squared_norms.h"

#include "base/alloc.h"

/* Readers of the partition's nodes, per node of the graph. */
typedef struct readers {
    const tu_graph *graph;
    uint32_t *count; /* uses of its outputs, by nodes of the partition or as exports */
    uint32_t *last;  /* the last node that reads it */
    bool *is_inside; /* it is a node of the partition */
} readers;

static void count_readers(readers *r, const tu_partition *p) {
    for (uint32_t i = 0; i < p->node_count; i++) {
        const tu__node *node = r->graph->nodes[p->nodes[i]];
        r->is_inside[node->id] = true;
        for (uint32_t k = 0; k < node->input_count; k++) {
            r->count[node->inputs[k].node]++;
            r->last[node->inputs[k].node] = node->id;
        }
    }
    for (uint32_t i = 0; i < p->export_count; i++) r->count[p->exports[i].node] += 2; /* has no only reader */
}

/* True if the node is this operation and only `reader` reads it. A reader with control dependencies stays alone. */
static bool is_private(const readers *r, const tu__node *node, tu__opcode op, const tu__node *reader) {
    return node->op->code == op && r->is_inside[node->id] && r->count[node->id] == 1 &&
           r->last[node->id] == reader->id && !reader->after_count;
}

static const tu__node *input_of(const readers *r, const tu__node *node) {
    return r->graph->nodes[node->inputs[0].node];
}

static bool is_scalar_add(const tu__node *node) {
    return node->op->code == TU__OP_ADD && node->outputs[0].dtype == TU_F64 &&
           tu_shape_elements(node->outputs[0].shape) == 1;
}

/* True for an addition that is not part of another one. */
static bool is_total(const readers *r, const tu__node *node) {
    if (!is_scalar_add(node)) return false;
    const tu__node *reader = r->count[node->id] == 1 ? r->graph->nodes[r->last[node->id]] : NULL;
    return !(reader && is_scalar_add(reader));
}

/* A norm being matched. */
typedef struct match {
    uint32_t tensor_count, node_count;
    tu_edge *tensors;
    uint32_t *nodes;
} match;

/* Adds f64(sum(sum(square(x), rows))), possibly without the sum over rows. */
static bool add_tensor(match *m, const readers *r, const tu__node *cast, const tu__node *reader) {
    if (!is_private(r, cast, TU__OP_CAST, reader)) return false;
    const tu__node *total = input_of(r, cast), *last = total;
    if (!is_private(r, total, TU__OP_SUM, cast) || tu_shape_elements(total->outputs[0].shape) != 1)
        return false;
    if (is_private(r, input_of(r, total), TU__OP_SUM, total)) last = input_of(r, total);
    const tu__node *square = input_of(r, last);
    if (!is_private(r, square, TU__OP_SQUARE, last)) return false;
    m->tensors[m->tensor_count++] = square->inputs[0];
    m->nodes[m->node_count++] = square->id;
    if (last != total) m->nodes[m->node_count++] = last->id;
    m->nodes[m->node_count++] = total->id;
    m->nodes[m->node_count++] = cast->id;
    return true;
}

/* Visits ((t0 + t1) + t2) + t3 from the total. */
static bool add_tensors(match *m, const readers *r, const tu__node *total) {
    const tu__node *current = total;
    for (;;) {
        m->nodes[m->node_count++] = current->id;
        if (!add_tensor(m, r, r->graph->nodes[current->inputs[1].node], current)) return false;
        const tu__node *next = input_of(r, current);
        if (!is_scalar_add(next)) return add_tensor(m, r, next, current);
        if (!is_private(r, next, TU__OP_ADD, current)) return false;
        current = next;
    }
}

static uint32_t count_additions(const readers *r, const tu__node *total) {
    uint32_t count = 0;
    for (const tu__node *node = total; is_scalar_add(node); node = input_of(r, node)) count++;
    return count;
}

/* Adds the norm with this total to `norms`, if it is one. */
static tu_status match_norm(const readers *r, const tu__node *total, tu__arena *arena, tu_squared_norm *norms,
                            uint32_t *count) {
    enum { NODES_PER_TENSOR = 4 };
    size_t additions = count_additions(r, total), tensors = additions + 1;
    match m = {.tensors = tu__arena_alloc(arena, tensors * sizeof *m.tensors),
               .nodes = tu__arena_alloc(arena, (additions + NODES_PER_TENSOR * tensors) * sizeof *m.nodes)};
    if (!m.tensors || !m.nodes) return TU_NO_MEMORY;
    if (add_tensors(&m, r, total))
        norms[(*count)++] = (tu_squared_norm){.total = total->id,
                                              .tensor_count = m.tensor_count,
                                              .tensors = m.tensors,
                                              .node_count = m.node_count,
                                              .nodes = m.nodes};
    return TU_OK;
}

static tu_status match_norms(const readers *r, tu_partition *p, tu__arena *arena) {
    uint32_t totals = 0;
    for (uint32_t i = 0; i < p->node_count; i++) totals += is_total(r, r->graph->nodes[p->nodes[i]]);
    tu_squared_norm *norms = totals ? tu__arena_alloc(arena, totals * sizeof *norms) : NULL;
    if (!totals) return TU_OK;
    if (!norms) return TU_NO_MEMORY;
    p->norms = norms;
    for (uint32_t i = 0; i < p->node_count; i++) {
        const tu__node *node = r->graph->nodes[p->nodes[i]];
        if (is_total(r, node)) TU_TRY(match_norm(r, node, arena, norms, &p->norm_count));
    }
    return TU_OK;
}

tu_status tu__find_squared_norms(tu_partition *p, tu__arena *arena) {
    size_t nodes = p->graph->node_count;
    readers r = {.graph = p->graph,
                 .count = tu__alloc_array(nodes, sizeof *r.count, "a partition"),
                 .last = tu__alloc_array(nodes, sizeof *r.last, "a partition"),
                 .is_inside = tu__alloc_array(nodes, sizeof *r.is_inside, "a partition")};
    tu_status status = TU_NO_MEMORY;
    if (r.count && r.last && r.is_inside) {
        count_readers(&r, p);
        status = match_norms(&r, p, arena);
    }
    tu__free(r.count);
    tu__free(r.last);
    tu__free(r.is_inside);
    return status;
}
