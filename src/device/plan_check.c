/* What a device answers to select is checked before anything is built on it.
 *
 * The engine indexes its tables by the numbers in a plan: a plug-in that counts wrong would make it read where nothing
 * is, or run a program whose results were never computed. So a plan is looked through once, when a program is
 * compiled, and one that cannot be is refused with the device, the kernel and what is wrong. What holds afterwards:
 *
 *   - every number of a buffer, node or read lies within its list, and every size adds up;
 *   - every buffer that holds a value holds one of the part's or of the engine's leaves; where it is dense, it has the
 *     value's size, and no other dense buffer holds the same value; leaves are dense;
 *   - every buffer is written by one kernel at most, a leaf's by none, and nothing is read that nobody wrote;
 *   - every node of the part is computed by a kernel, perhaps by several (it may be cheaper to compute than to keep);
 *     only a view, broadcast or fill by none, where kernels look through it;
 *   - every export has its buffer;
 *   - the results of a kernel are of one level.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "device/device.h"

enum {
    MAX_BYTES_LOG2 = 52
}; /* of a buffer or workspace: more than the largest tensor, and no sum overflows */

typedef struct checker {
    const char *device;
    const tu_partition *part;
    const tu_plan *plan;
    bool *in_part;    /* per node of the graph */
    bool *covered;    /* per node of the graph: a kernel computes it */
    uint32_t *slot;   /* node -> its first output */
    uint32_t *holder; /* per output: its dense buffer + 1; 0: none */
    uint32_t *writer; /* per buffer: the kernel that writes it + 1; 0: none */
} checker;

static tu_status wrong(const checker *c, const char *format, ...) TU_PRINTF(2, 3);
static tu_status wrong(const checker *c, const char *format, ...) {
    char detail[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    return tu_fail(TU_INTERNAL, "device '%s' made a wrong plan: %s; please tell those who made the device",
                   c->device, detail);
}

static bool is_sane(size_t bytes) {
    return bytes >> MAX_BYTES_LOG2 == 0;
}

/* ---- Buffers ---- */

static bool is_leaf(const checker *c, uint32_t node) {
    const tu__op *op = c->part->graph->nodes[node]->op;
    return (op->traits & TU__LEAF) || op->code == TU__OP_COPY || op->code == TU__OP_ALL_REDUCE;
}

static tu_status check_held_value(const checker *c, uint32_t buffer) {
    const tu_buffer *b = &c->plan->buffers[buffer];
    const tu_graph *g = c->part->graph;
    if (b->value.node >= g->node_count || b->value.output >= g->nodes[b->value.node]->output_count)
        return wrong(c, "buffer %u holds output %u of node %u, which does not exist", buffer, b->value.output,
                     b->value.node);
    const tu__node *node = g->nodes[b->value.node];
    if (!c->in_part[node->id] && !is_leaf(c, node->id))
        return wrong(c, "buffer %u holds '%s', which another device computes", buffer, node->name);
    if (!b->dense)
        return is_leaf(c, node->id)
                   ? wrong(c, "buffer %u for '%s' is not dense: the engine fills it, so it must be", buffer,
                           node->name)
                   : TU_OK;
    size_t bytes = tu_type_bytes(node->outputs[b->value.output]);
    if (b->bytes != bytes)
        return wrong(c, "buffer %u for '%s' has %zu bytes, the value %zu", buffer, node->name, b->bytes,
                     bytes);
    uint32_t *holder = &c->holder[c->slot[node->id] + b->value.output];
    if (*holder) return wrong(c, "buffers %u and %u are both for '%s'", *holder - 1, buffer, node->name);
    *holder = buffer + 1;
    return TU_OK;
}

static tu_status check_buffers(const checker *c) {
    for (uint32_t i = 0; i < c->plan->buffer_count; i++) {
        const tu_buffer *b = &c->plan->buffers[i];
        if (!is_sane(b->bytes)) return wrong(c, "buffer %u has %zu bytes", i, b->bytes);
        if (b->value.node != TU_NO_NODE) TU_TRY(check_held_value(c, i));
    }
    return TU_OK;
}

/* ---- Kernels ---- */

static tu_status check_numbers(const checker *c, const tu_kernel *k, const char *what, uint32_t count,
                               const uint32_t *numbers, uint32_t bound) {
    if (count && !numbers) return wrong(c, "kernel '%s' has %u %s and no list of them", k->name, count, what);
    for (uint32_t i = 0; i < count; i++)
        if (numbers[i] >= bound)
            return wrong(c, "kernel '%s' has number %u among its %s, there are %u", k->name, numbers[i], what,
                         bound);
    return TU_OK;
}

static tu_status check_shape(const checker *c, uint32_t kernel) {
    const tu_kernel *k = &c->plan->kernels[kernel];
    if (!k->name) return wrong(c, "kernel %u has no name", kernel);
    if (!k->node_count) return wrong(c, "kernel '%s' computes no node", k->name);
    TU_TRY(check_numbers(c, k, "nodes", k->node_count, k->nodes, c->part->graph->node_count));
    TU_TRY(check_numbers(c, k, "reads", k->read_count, k->reads, c->plan->buffer_count));
    TU_TRY(check_numbers(c, k, "writes", k->write_count, k->writes, c->plan->buffer_count));
    for (uint32_t w = 0; k->in_place && w < k->write_count; w++)
        if (k->in_place[w] < -1 || k->in_place[w] >= (int64_t)k->read_count)
            return wrong(c, "kernel '%s' writes in place of its read %d, it has %u", k->name, k->in_place[w],
                         k->read_count);
    if (!is_sane(k->workspace))
        return wrong(c, "kernel '%s' wants %zu bytes to work in", k->name, k->workspace);
    return TU_OK;
}

static tu_status check_nodes(const checker *c, const tu_kernel *k) {
    for (uint32_t i = 0; i < k->node_count; i++) {
        const tu__node *node = c->part->graph->nodes[k->nodes[i]];
        if (!c->in_part[node->id])
            return wrong(c, "kernel '%s' computes '%s', which is not for this device", k->name, node->name);
        c->covered[node->id] = true;
    }
    return TU_OK;
}

/* Single assignment; and results of one level, since another device may wait for the lower one before it sends what
 * the higher one needs. */
static tu_status check_writes(const checker *c, uint32_t kernel) {
    const tu_kernel *k = &c->plan->kernels[kernel];
    uint32_t first = TU_NO_NODE;
    for (uint32_t w = 0; w < k->write_count; w++) {
        uint32_t *writer = &c->writer[k->writes[w]], node = c->plan->buffers[k->writes[w]].value.node;
        if (*writer)
            return wrong(c, "kernels '%s' and '%s' both write buffer %u", c->plan->kernels[*writer - 1].name,
                         k->name, k->writes[w]);
        *writer = kernel + 1;
        if (node == TU_NO_NODE) continue;
        const tu_graph *g = c->part->graph;
        if (is_leaf(c, node))
            return wrong(c, "kernel '%s' writes '%s', which is the engine's to fill", k->name,
                         g->nodes[node]->name);
        if (first == TU_NO_NODE) first = node;
        if (c->part->levels && c->part->levels[node] != c->part->levels[first])
            return wrong(c, "kernel '%s' writes '%s' of level %u and '%s' of level %u", k->name,
                         g->nodes[first]->name, c->part->levels[first], g->nodes[node]->name,
                         c->part->levels[node]);
    }
    return TU_OK;
}

static tu_status check_reads(const checker *c, const tu_kernel *k) {
    uint32_t self = (uint32_t)(k - c->plan->kernels) + 1;
    for (uint32_t r = 0; r < k->read_count; r++) {
        uint32_t node = c->plan->buffers[k->reads[r]].value.node;
        bool filled = node != TU_NO_NODE && is_leaf(c, node);
        if (!filled && !c->writer[k->reads[r]])
            return wrong(c, "kernel '%s' reads buffer %u (%s), which no kernel writes", k->name, k->reads[r],
                         node == TU_NO_NODE ? "of the device's own" : c->part->graph->nodes[node]->name);
        if (!filled && c->writer[k->reads[r]] == self)
            return wrong(c, "kernel '%s' reads buffer %u, which it writes itself", k->name, k->reads[r]);
    }
    return TU_OK;
}

static tu_status check_kernels(const checker *c) {
    for (uint32_t k = 0; k < c->plan->kernel_count; k++) {
        TU_TRY(check_shape(c, k));
        TU_TRY(check_nodes(c, &c->plan->kernels[k]));
        TU_TRY(check_writes(c, k));
    }
    for (uint32_t k = 0; k < c->plan->kernel_count; k++) TU_TRY(check_reads(c, &c->plan->kernels[k]));
    return TU_OK;
}

/* ---- The part ---- */

static bool may_be_looked_through(const tu__node *node) {
    return (node->op->traits & TU__VIEW) || node->op->code == TU__OP_BROADCAST ||
           node->op->code == TU__OP_FILL;
}

static tu_status check_part(const checker *c) {
    for (uint32_t i = 0; i < c->part->node_count; i++) {
        const tu__node *node = c->part->graph->nodes[c->part->nodes[i]];
        if (!c->covered[node->id] && !may_be_looked_through(node))
            return wrong(c, "no kernel computes %s '%s'", node->op->name, node->name);
    }
    for (uint32_t i = 0; i < c->part->export_count; i++) {
        tu_edge value = c->part->exports[i];
        const tu__node *node = c->part->graph->nodes[value.node];
        uint32_t holder = c->holder[c->slot[node->id] + value.output];
        if (!holder) return wrong(c, "no dense buffer holds '%s', which leaves the device", node->name);
        if (!is_leaf(c, node->id) && !c->writer[holder - 1])
            return wrong(c, "no kernel writes buffer %u for '%s', which leaves the device", holder - 1,
                         node->name);
    }
    return TU_OK;
}

/* ---- All of it ---- */

static tu_status check_all(checker *c) {
    const tu_graph *g = c->part->graph;
    uint32_t outputs = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        c->slot[i] = outputs;
        outputs += g->nodes[i]->output_count;
    }
    for (uint32_t i = 0; i < c->part->node_count; i++) c->in_part[c->part->nodes[i]] = true;
    TU_TRY(check_buffers(c));
    TU_TRY(check_kernels(c));
    return check_part(c);
}

static size_t outputs_of(const tu_graph *g) {
    size_t outputs = 0;
    for (uint32_t i = 0; i < g->node_count; i++) outputs += g->nodes[i]->output_count;
    return outputs;
}

tu_status tu__plan_check(const char *device, const tu_partition *part, const tu_plan *plan) {
    checker c = {.device = device, .part = part, .plan = plan};
    if (!plan) return wrong(&c, "select succeeded and gave none");
    if (plan->struct_size < sizeof *plan)
        return wrong(&c, "its structure has %zu bytes, %zu expected", plan->struct_size, sizeof *plan);
    if ((plan->buffer_count && !plan->buffers) || (plan->kernel_count && !plan->kernels))
        return wrong(&c, "it announces %u buffers and %u kernels, but a list is missing", plan->buffer_count,
                     plan->kernel_count);
    tu__arena arena = {.purpose = "the check of a plan"};
    size_t nodes = part->graph->node_count;
    c.in_part = tu__arena_alloc(&arena, nodes * sizeof *c.in_part);
    c.covered = tu__arena_alloc(&arena, nodes * sizeof *c.covered);
    c.slot = tu__arena_alloc(&arena, nodes * sizeof *c.slot);
    c.holder = tu__arena_alloc(&arena, outputs_of(part->graph) * sizeof *c.holder);
    c.writer = tu__arena_alloc(&arena, plan->buffer_count * sizeof *c.writer);
    bool ready = c.in_part && c.covered && c.slot && c.holder && c.writer;
    tu_status status = ready ? check_all(&c) : TU_NO_MEMORY;
    tu__arena_free(&arena);
    return status;
}
