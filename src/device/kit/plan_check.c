/* Validates the plan that a device's select() returns.
 *
 * The engine uses the indices in a plan without further checks: an invalid plan of a plug-in would cause reads out
 * of bounds, or a program whose results were never computed. So every plan is validated once, when a program is
 * compiled. The message names the device, the kernel and the error. A valid plan satisfies:
 *
 *   - every index of a buffer, node or read is in range, no list is longer than it can be, and no size overflows;
 *   - a buffer with a value has a value of the partition or of a leaf; if it is dense, it has the value's size, and
 *     no other dense buffer has the same value; leaves are dense;
 *   - a buffer is written by at most one kernel, a leaf's by none, and every buffer that is read is written;
 *   - every node of the partition is computed by a kernel, or by several (recomputing may be cheaper than storing);
 *     only views, broadcasts and fills need no kernel, if their readers handle them;
 *   - every export has a dense buffer;
 *   - the results of a kernel have one level.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "device/kit/plan_check.h"
#include "graph/graph.h"

enum {
    MAX_BYTES_LOG2 = 52
}; /* of a buffer or workspace: more than the largest tensor, and sums cannot overflow */

typedef struct checker {
    const char *device;
    const tu_partition *partition;
    const tu_plan *plan;
    bool *in_partition;        /* per node of the graph */
    bool *covered;             /* per node of the graph: a kernel computes it */
    uint32_t *slot;            /* node -> index of its first output */
    uint32_t *dense_buffer_of; /* per output: its dense buffer + 1; 0: none */
    uint32_t *writer;          /* per buffer: the kernel that writes it + 1; 0: none */
    uint64_t most_reads;       /* of a kernel: every buffer, and every input of every node */
} checker;

static tu_status fail_plan(const checker *c, const char *format, ...) TU_PRINTF(2, 3);
static tu_status fail_plan(const checker *c, const char *format, ...) {
    char detail[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    return tu_fail(TU_INTERNAL,
                   "device '%s' returned an invalid plan: %s; please report this to the device's authors",
                   c->device, detail);
}

static bool is_valid_size(size_t bytes) {
    return bytes >> MAX_BYTES_LOG2 == 0;
}

/* ---- Buffers ---- */

static bool is_leaf(const checker *c, uint32_t node) {
    const tu__op *op = c->partition->graph->nodes[node]->op;
    return (op->traits & (TU__LEAF | TU__COLLECTIVE)) || op->code == TU__OP_COPY;
}

static tu_status check_value(const checker *c, uint32_t buffer) {
    const tu_buffer *b = &c->plan->buffers[buffer];
    const tu_graph *g = c->partition->graph;
    if (b->value.node >= g->node_count || b->value.output >= g->nodes[b->value.node]->output_count)
        return fail_plan(c, "buffer %u is for output %u of node %u, which does not exist", buffer,
                         b->value.output, b->value.node);
    const tu__node *node = g->nodes[b->value.node];
    if (!c->in_partition[node->id] && !is_leaf(c, node->id))
        return fail_plan(c, "buffer %u is for '%s', which another device computes", buffer, node->name);
    if (!b->dense)
        return is_leaf(c, node->id)
                   ? fail_plan(c,
                               "buffer %u for '%s' is not dense: the engine writes it, so it must be dense",
                               buffer, node->name)
                   : TU_OK;
    size_t bytes = tu_type_bytes(node->outputs[b->value.output]);
    if (b->bytes != bytes)
        return fail_plan(c, "buffer %u for '%s' has %zu bytes: expected %zu", buffer, node->name, b->bytes,
                         bytes);
    uint32_t *dense_buffer_of = &c->dense_buffer_of[c->slot[node->id] + b->value.output];
    if (*dense_buffer_of)
        return fail_plan(c, "buffers %u and %u are both for '%s'", *dense_buffer_of - 1, buffer, node->name);
    *dense_buffer_of = buffer + 1;
    return TU_OK;
}

static tu_status check_buffers(const checker *c) {
    for (uint32_t i = 0; i < c->plan->buffer_count; i++) {
        const tu_buffer *b = &c->plan->buffers[i];
        if (!is_valid_size(b->bytes))
            return fail_plan(c, "buffer %u has %zu bytes: expected less than 2^%d", i, b->bytes,
                             MAX_BYTES_LOG2);
        if (b->value.node != TU_NO_NODE) TU_TRY(check_value(c, i));
    }
    return TU_OK;
}

/* ---- Kernels ---- */

static tu_status check_indices(const checker *c, const tu_kernel *k, const char *what, uint32_t count,
                               const uint32_t *indices, uint32_t bound, uint64_t most) {
    if (count && !indices)
        return fail_plan(c, "kernel '%s' has %u %s but no list of them", k->name, count, what);
    if (count > most)
        return fail_plan(c, "kernel '%s' has %u %s: expected at most %llu", k->name, count, what,
                         (unsigned long long)most);
    for (uint32_t i = 0; i < count; i++)
        if (indices[i] >= bound)
            return fail_plan(c, "kernel '%s' has index %u among its %s: expected less than %u", k->name,
                             indices[i], what, bound);
    return TU_OK;
}

static tu_status check_kernel(const checker *c, uint32_t kernel) {
    const tu_kernel *k = &c->plan->kernels[kernel];
    if (!k->name) return fail_plan(c, "kernel %u has no name", kernel);
    if (!k->node_count) return fail_plan(c, "kernel '%s' computes no node", k->name);
    TU_TRY(check_indices(c, k, "nodes", k->node_count, k->nodes, c->partition->graph->node_count,
                         c->partition->graph->node_count));
    TU_TRY(check_indices(c, k, "reads", k->read_count, k->reads, c->plan->buffer_count, c->most_reads));
    TU_TRY(check_indices(c, k, "writes", k->write_count, k->writes, c->plan->buffer_count,
                         c->plan->buffer_count));
    for (uint32_t w = 0; k->in_place && w < k->write_count; w++)
        if (k->in_place[w] < -1 || k->in_place[w] >= (int64_t)k->read_count)
            return fail_plan(c, "kernel '%s' writes in place of read %d, but it has %u reads", k->name,
                             k->in_place[w], k->read_count);
    if (!is_valid_size(k->workspace))
        return fail_plan(c, "kernel '%s' has a workspace of %zu bytes: expected less than 2^%d", k->name,
                         k->workspace, MAX_BYTES_LOG2);
    return TU_OK;
}

static tu_status check_nodes(const checker *c, const tu_kernel *k) {
    for (uint32_t i = 0; i < k->node_count; i++) {
        const tu__node *node = c->partition->graph->nodes[k->nodes[i]];
        if (!c->in_partition[node->id])
            return fail_plan(c, "kernel '%s' computes '%s', which is not in the device's partition", k->name,
                             node->name);
        c->covered[node->id] = true;
    }
    return TU_OK;
}

/* Every buffer has one writer, and the results of a kernel one level: another device may wait for the result of the
 * lower level before it sends a value that the higher one needs. */
static tu_status check_writes(const checker *c, uint32_t kernel) {
    const tu_kernel *k = &c->plan->kernels[kernel];
    uint32_t first = TU_NO_NODE;
    for (uint32_t w = 0; w < k->write_count; w++) {
        uint32_t *writer = &c->writer[k->writes[w]], node = c->plan->buffers[k->writes[w]].value.node;
        if (*writer)
            return fail_plan(c, "kernels '%s' and '%s' both write buffer %u",
                             c->plan->kernels[*writer - 1].name, k->name, k->writes[w]);
        *writer = kernel + 1;
        if (node == TU_NO_NODE) continue;
        const tu_graph *g = c->partition->graph;
        if (is_leaf(c, node))
            return fail_plan(c, "kernel '%s' writes '%s', which only the engine may write", k->name,
                             g->nodes[node]->name);
        if (first == TU_NO_NODE) first = node;
        if (c->partition->levels && c->partition->levels[node] != c->partition->levels[first])
            return fail_plan(c, "kernel '%s' writes '%s' of level %u and '%s' of level %u", k->name,
                             g->nodes[first]->name, c->partition->levels[first], g->nodes[node]->name,
                             c->partition->levels[node]);
    }
    return TU_OK;
}

static tu_status check_reads(const checker *c, const tu_kernel *k) {
    uint32_t own_index = (uint32_t)(k - c->plan->kernels) + 1;
    for (uint32_t r = 0; r < k->read_count; r++) {
        uint32_t node = c->plan->buffers[k->reads[r]].value.node;
        bool is_written_by_engine = node != TU_NO_NODE && is_leaf(c, node);
        if (!is_written_by_engine && !c->writer[k->reads[r]])
            return fail_plan(c, "kernel '%s' reads buffer %u (%s), which no kernel writes", k->name,
                             k->reads[r],
                             node == TU_NO_NODE ? "internal" : c->partition->graph->nodes[node]->name);
        if (!is_written_by_engine && c->writer[k->reads[r]] == own_index)
            return fail_plan(c, "kernel '%s' reads buffer %u, which it writes itself", k->name, k->reads[r]);
    }
    return TU_OK;
}

static tu_status check_kernels(const checker *c) {
    for (uint32_t k = 0; k < c->plan->kernel_count; k++) {
        TU_TRY(check_kernel(c, k));
        TU_TRY(check_nodes(c, &c->plan->kernels[k]));
        TU_TRY(check_writes(c, k));
    }
    for (uint32_t k = 0; k < c->plan->kernel_count; k++) TU_TRY(check_reads(c, &c->plan->kernels[k]));
    return TU_OK;
}

/* ---- The partition ---- */

static bool needs_no_kernel(const tu__node *node) {
    return (node->op->traits & TU__VIEW) || node->op->code == TU__OP_BROADCAST ||
           node->op->code == TU__OP_FILL;
}

static tu_status check_partition(const checker *c) {
    for (uint32_t i = 0; i < c->partition->node_count; i++) {
        const tu__node *node = c->partition->graph->nodes[c->partition->nodes[i]];
        if (!c->covered[node->id] && !needs_no_kernel(node))
            return fail_plan(c, "no kernel computes %s '%s'", node->op->name, node->name);
    }
    for (uint32_t i = 0; i < c->partition->export_count; i++) {
        tu_edge value = c->partition->exports[i];
        const tu__node *node = c->partition->graph->nodes[value.node];
        uint32_t dense_buffer_of = c->dense_buffer_of[c->slot[node->id] + value.output];
        if (!dense_buffer_of)
            return fail_plan(c, "no dense buffer contains '%s', which is exported", node->name);
        if (!is_leaf(c, node->id) && !c->writer[dense_buffer_of - 1])
            return fail_plan(c, "no kernel writes buffer %u for '%s', which is exported", dense_buffer_of - 1,
                             node->name);
    }
    return TU_OK;
}

/* ---- The interface ---- */

static tu_status check_all(checker *c) {
    const tu_graph *g = c->partition->graph;
    uint32_t outputs = 0;
    c->most_reads = c->plan->buffer_count;
    for (uint32_t i = 0; i < g->node_count; i++) {
        c->slot[i] = outputs;
        outputs += g->nodes[i]->output_count;
        c->most_reads += g->nodes[i]->input_count;
    }
    for (uint32_t i = 0; i < c->partition->node_count; i++) c->in_partition[c->partition->nodes[i]] = true;
    TU_TRY(check_buffers(c));
    TU_TRY(check_kernels(c));
    return check_partition(c);
}

static size_t outputs_of(const tu_graph *g) {
    size_t outputs = 0;
    for (uint32_t i = 0; i < g->node_count; i++) outputs += g->nodes[i]->output_count;
    return outputs;
}

tu_status tu__plan_check(const char *device, const tu_partition *partition, const tu_plan *plan) {
    checker c = {.device = device, .partition = partition, .plan = plan};
    if (!plan) return fail_plan(&c, "select succeeded but returned no plan");
    size_t least = offsetof(tu_plan, resident_bytes); /* later fields are optional */
    if (plan->struct_size < least)
        return fail_plan(&c, "its struct_size is %zu: expected %zu or more", plan->struct_size, least);
    if ((plan->buffer_count && !plan->buffers) || (plan->kernel_count && !plan->kernels))
        return fail_plan(&c, "it has %u buffers and %u kernels, but a list is NULL", plan->buffer_count,
                         plan->kernel_count);
    tu__arena arena = {.purpose = "the check of a plan"};
    size_t nodes = partition->graph->node_count;
    c.in_partition = tu__arena_alloc(&arena, nodes * sizeof *c.in_partition);
    c.covered = tu__arena_alloc(&arena, nodes * sizeof *c.covered);
    c.slot = tu__arena_alloc(&arena, nodes * sizeof *c.slot);
    c.dense_buffer_of = tu__arena_alloc(&arena, outputs_of(partition->graph) * sizeof *c.dense_buffer_of);
    c.writer = tu__arena_alloc(&arena, plan->buffer_count * sizeof *c.writer);
    bool is_allocated = c.in_partition && c.covered && c.slot && c.dense_buffer_of && c.writer;
    tu_status status = is_allocated ? check_all(&c) : TU_NO_MEMORY;
    tu__arena_free(&arena);
    return status;
}
