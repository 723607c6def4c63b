/* Selection: turns a partition of a graph into kernels and buffers.
 *
 * The nodes are visited in order. Pointwise nodes are deferred: they stay pending until a node that is not
 * pointwise, or an export, needs their value; then fusion.c computes them together with all pending nodes they
 * depend on. A value that only fused nodes read, such as a mask inside a gradient, is never stored. Views have no
 * kernel: tu__root_of() returns the value whose buffer a view shares.
 *
 * A lowering rule may fuse nodes after its own and then reads values that come later, so kernels are not created in
 * execution order: sort_kernels() sorts them at the end.
 *
 * Levels. A value may be sent to another device, which computes a value that is sent back. A kernel that produced
 * the first and needed the second would wait for itself. Therefore a kernel with several results contains only nodes
 * of one level (<tutti/device.h>), and kernels are sorted by level.
 *
 * Exports are dense, and no two exports share a buffer with each other or with a leaf: views are copied if
 * necessary. */
#include "device/kit/fusion.h"

#include <string.h>

#include "base/alloc.h"

static tu__kernel_plan *plan_of(const tu__selection *s) {
    return s->plan;
}

tu__plan_value *tu__plan_value_of(tu__selection *s, tu__edge value) {
    tu__kernel_plan *p = plan_of(s);
    return &p->values[p->slot[value.node] + value.output];
}

const tu_type *tu__type_of(const tu__selection *s, tu__edge value) {
    return &s->graph->nodes[value.node]->outputs[value.output];
}

static bool is_view(const tu__selection *s, tu__edge value) {
    return plan_of(s)->state[value.node] != TU__OUTSIDE &&
           (s->graph->nodes[value.node]->op->traits & TU__VIEW);
}

tu__edge tu__root_of(const tu__selection *s, tu__edge value) {
    while (is_view(s, value)) value = s->graph->nodes[value.node]->inputs[0];
    return value;
}

/* ---- Growing lists: separate allocations, which may move, freed with the plan ---- */

/* Returns the list with room for one more entry; NULL if out of memory, and then the old list is still valid. */
static void *grow_list(void *list, uint32_t *capacity, uint32_t count, size_t size) {
    if (count < *capacity) return list;
    uint32_t new_capacity = *capacity ? 2 * *capacity : 64;
    void *grown = tu__realloc(list, new_capacity * size, "a plan");
    if (grown) *capacity = new_capacity;
    return grown;
}

static tu_status add_buffer(tu__kernel_plan *p, tu_buffer buffer, uint32_t *index) {
    tu_buffer *list = grow_list(p->buffers, &p->buffer_capacity, p->buffer_count, sizeof *list);
    if (!list) return TU_NO_MEMORY;
    p->buffers = list;
    *index = p->buffer_count;
    p->buffers[p->buffer_count++] = buffer;
    return TU_OK;
}

/* Appends to a short list: its capacity is the next power of two of the count. */
static tu_status append(tu__arena *arena, uint32_t **list, uint32_t *count, uint32_t entry) {
    if ((*count & (*count - 1)) == 0) {
        uint32_t *grown = tu__arena_alloc(arena, (*count ? 2 * (size_t)*count : 1) * sizeof *grown);
        if (!grown) return TU_NO_MEMORY;
        if (*count) memcpy(grown, *list, *count * sizeof *grown);
        *list = grown;
    }
    (*list)[(*count)++] = entry;
    return TU_OK;
}

/* ---- Functions for lowering rules ---- */

tu__kernel *tu__kernel_new(tu__selection *s, const tu__node *node, const char *name,
                           tu_status (*run)(const tu__kernel *k)) {
    tu__kernel_plan *p = plan_of(s);
    tu__kernel *k = tu__arena_alloc(&s->arena, sizeof *k);
    tu__kernel **list = grow_list(p->kernels, &p->kernel_capacity, p->kernel_count, sizeof(tu__kernel *));
    if (list) p->kernels = list;
    if (!k || !list) return NULL;
    k->name = name;
    k->run = run;
    k->device = s->device;
    k->owner = s;
    if (tu__kernel_add_node(k, node) != TU_OK) return NULL;
    p->kernels[p->kernel_count++] = k;
    return k;
}

void *tu__kernel_data(tu__kernel *k, size_t bytes) {
    return k->data = tu__arena_alloc(&k->owner->arena, bytes);
}

tu_status tu__kernel_add_node(tu__kernel *k, const tu__node *node) {
    return append(&k->owner->arena, &k->nodes, &k->node_count, node->id);
}

tu_status tu__kernel_read(tu__kernel *k, tu__edge value) {
    uint32_t buffer = TU__NONE;
    TU_TRY(tu__dense_buffer(k->owner, value, &buffer));
    return append(&k->owner->arena, &k->reads, &k->read_count, buffer);
}

static tu_status add_write(tu__kernel *k, uint32_t buffer, int in_place) {
    uint32_t count = k->write_count, *in_place_list = (uint32_t *)k->in_place;
    TU_TRY(append(&k->owner->arena, &in_place_list, &count, (uint32_t)in_place));
    k->in_place = (int32_t *)in_place_list;
    return append(&k->owner->arena, &k->writes, &k->write_count, buffer);
}

tu_status tu__kernel_write(tu__kernel *k, tu__edge value, int in_place) {
    tu__plan_value *v = tu__plan_value_of(k->owner, value);
    if (v->dense == TU__NONE) {
        tu_buffer buffer = {tu_type_bytes(*tu__type_of(k->owner, value)), value, true};
        TU_TRY(add_buffer(plan_of(k->owner), buffer, &v->dense));
    }
    return add_write(k, v->dense, in_place);
}

tu_status tu__kernel_read_buffer(tu__kernel *k, uint32_t buffer) {
    return append(&k->owner->arena, &k->reads, &k->read_count, buffer);
}

tu_status tu__kernel_write_buffer(tu__kernel *k, uint32_t buffer) {
    return add_write(k, buffer, -1);
}

tu_status tu__kernel_save(tu__kernel *k, const tu__node *node, size_t bytes) {
    tu__kernel_plan *p = plan_of(k->owner);
    tu_buffer buffer = {bytes, {TU_NO_NODE, 0}, false};
    TU_TRY(add_buffer(p, buffer, &p->saved[node->id]));
    return add_write(k, p->saved[node->id], -1);
}

tu_status tu__kernel_read_saved(tu__kernel *k, const tu__node *node) {
    return append(&k->owner->arena, &k->reads, &k->read_count, plan_of(k->owner)->saved[node->id]);
}

const tu__node *tu__only_reader(tu__selection *s, tu__edge value) {
    const tu__kernel_plan *p = plan_of(s);
    const tu__plan_value *v = tu__plan_value_of(s, value);
    if (v->reader_count != 1 || v->exported) return NULL;
    const tu__node *reader = s->graph->nodes[p->readers[v->first_reader]];
    return reader->after_count ? NULL : reader; /* a node with control dependencies is never fused */
}

bool tu__can_fuse(const tu__selection *s, const tu__node *node) {
    tu__node_state state = s->plan->state[node->id];
    return state != TU__OUTSIDE && state != TU__DONE;
}

const tu__node *tu__fusible_reader(tu__selection *s, tu__edge value) {
    const tu__node *reader = tu__only_reader(s, value);
    return reader && tu__can_fuse(s, reader) ? reader : NULL;
}

const tu_squared_norm *tu__squared_norm_of(const tu__selection *s, const tu__node *node) {
    uint32_t norm = s->plan->norm[node->id];
    return norm == TU__NONE ? NULL : &s->plan->partition->norms[norm];
}

void tu__mark_done(tu__selection *s, const tu__node *node) {
    plan_of(s)->state[node->id] = TU__DONE;
}

/* ---- Visiting nodes ---- */

/* Removes the kernels that a lowering rule added before it failed, so that the fallback rule can lower the node. */
static void drop_kernels_of(tu__kernel_plan *p, const tu__node *node, uint32_t from) {
    uint32_t kept = from;
    for (uint32_t i = from; i < p->kernel_count; i++) {
        tu__kernel *k = p->kernels[i];
        if (k->nodes[0] != node->id)
            p->kernels[kept++] = k;
        else if (k->release)
            k->release(k->data);
    }
    p->kernel_count = kept;
}

static tu__edge input_after_fusion(tu__selection *s, const tu__node *node, uint32_t index) {
    const tu__selector *selector = s->selector;
    return selector->input_after_fusion ? selector->input_after_fusion(s, node, index) : node->inputs[index];
}

static tu_status lower_node(tu__selection *s, const tu__node *node) {
    tu__kernel_plan *p = plan_of(s);
    p->state[node->id] = TU__BUSY;
    for (uint32_t i = 0; i < node->input_count; i++) {
        p->required_by = node;
        TU_TRY(tu__require(s, input_after_fusion(s, node, i)));
    }
    p->required_by = NULL;
    if (p->state[node->id] == TU__DONE) return TU_OK; /* a sum that was fused into its input's kernel */
    tu__lowering_rule rule = s->selector->rules[node->op->code];
    uint32_t kernels = p->kernel_count;
    tu_status status = rule ? rule(s, node) : TU_UNSUPPORTED;
    if (status == TU_UNSUPPORTED) {
        drop_kernels_of(p, node, kernels);
        status = s->selector->fallback(s, node);
    }
    p->state[node->id] = TU__DONE;
    return status;
}

static bool is_deferred(const tu__node *node) {
    return (node->op->traits & TU__POINTWISE) || node->op->code == TU__OP_BROADCAST ||
           node->op->code == TU__OP_FILL;
}

static tu_status visit_node(tu__selection *s, const tu__node *node) {
    tu__kernel_plan *p = plan_of(s);
    if (p->state[node->id] != TU__WAITING) return TU_OK;
    p->state[node->id] = TU__BUSY; /* the graph has no cycles, so it is not visited again */
    for (uint32_t i = 0; i < node->input_count; i++)
        TU_TRY(visit_node(s, s->graph->nodes[node->inputs[i].node]));
    if (p->state[node->id] == TU__DONE) return TU_OK; /* it was fused into an input's kernel */
    if (node->op->traits & TU__VIEW)
        p->state[node->id] = TU__DONE;
    else if (is_deferred(node))
        p->state[node->id] = TU__PENDING;
    else
        return lower_node(s, node);
    return TU_OK;
}

tu_status tu__require(tu__selection *s, tu__edge value) {
    tu__edge root = tu__root_of(s, value);
    const tu__node *node = s->graph->nodes[root.node];
    tu__kernel_plan *p = plan_of(s);
    const tu__node *required_by = p->required_by;
    p->required_by = NULL; /* the nodes visited on the way are not inputs of that node */
    TU_TRY(visit_node(s, node));
    p->required_by = required_by;
    switch (p->state[node->id]) {
    case TU__PENDING: return node->op->traits & TU__POINTWISE ? tu__fuse(s, node) : lower_node(s, node);
    case TU__BUSY:
        return tu_fail(TU_INTERNAL, "the kernel of %s '%s' depends on itself", node->op->name, node->name);
    default: return TU_OK;
    }
}

tu_status tu__dense_buffer(tu__selection *s, tu__edge value, uint32_t *buffer) {
    tu__kernel_plan *p = plan_of(s);
    tu__edge root = tu__root_of(s, value);
    tu__plan_value *v = tu__plan_value_of(s, root);
    if (v->dense == TU__NONE && p->state[root.node] == TU__OUTSIDE) {
        tu_buffer leaf = {tu_type_bytes(*tu__type_of(s, root)), root, true};
        TU_TRY(add_buffer(p, leaf, &v->dense));
    }
    if (v->dense == TU__NONE) TU_TRY(tu__require(s, root));
    if (v->dense == TU__NONE) {
        const tu__node *node = s->graph->nodes[root.node];
        return tu_fail(TU_INTERNAL, "%s '%s' is read, but no kernel stores its value", node->op->name,
                       node->name);
    }
    *buffer = v->dense;
    return TU_OK;
}

/* ---- Exports ---- */

static tu_status make_export(tu__selection *s, tu__edge value) {
    tu__kernel_plan *p = plan_of(s);
    tu__edge root = tu__root_of(s, value);
    tu__plan_value *exported = tu__plan_value_of(s, value), *v = tu__plan_value_of(s, root);
    if (exported->exported_buffer) return TU_OK; /* listed twice */
    if (p->state[value.node] == TU__OUTSIDE) {   /* the engine writes it, but it must have a buffer */
        uint32_t leaf = 0;
        exported->exported_buffer = true;
        return tu__dense_buffer(s, value, &leaf);
    }
    if (p->state[root.node] == TU__OUTSIDE || v->exported_buffer) {
        exported->exported_buffer = true;
        return s->selector->make_copy(s, root, value);
    }
    uint32_t buffer = TU__NONE;
    TU_TRY(tu__dense_buffer(s, root, &buffer));
    p->buffers[buffer].value = value; /* a view's export uses its root's buffer, with the view's edge */
    exported->exported_buffer = v->exported_buffer = true;
    return TU_OK;
}

/* Makes the exports of roots first: a view of one then gets a copy, since the buffer is in use. */
static tu_status make_exports(tu__selection *s) {
    const tu_partition *partition = plan_of(s)->partition;
    for (uint32_t i = 0; i < partition->export_count; i++)
        if (!is_view(s, partition->exports[i])) TU_TRY(make_export(s, partition->exports[i]));
    for (uint32_t i = 0; i < partition->export_count; i++)
        if (is_view(s, partition->exports[i])) TU_TRY(make_export(s, partition->exports[i]));
    return TU_OK;
}

/* ---- Sorting the kernels ---- */

typedef struct kernel_sort {
    tu__kernel_plan *plan;
    uint32_t *writer; /* buffer -> kernel, TU__NONE */
    uint32_t *kernel_level;
    bool *is_emitted;
    tu__kernel **sorted;
    uint32_t count;
} kernel_sort;

static void emit_kernel(kernel_sort *a, uint32_t kernel) {
    if (a->is_emitted[kernel]) return;
    a->is_emitted[kernel] = true;
    const tu__kernel *k = a->plan->kernels[kernel];
    for (uint32_t i = 0; i < k->read_count; i++)
        if (a->writer[k->reads[i]] != TU__NONE) emit_kernel(a, a->writer[k->reads[i]]);
    a->sorted[a->count++] = a->plan->kernels[kernel];
}

/* Emits the kernels by level, then in order of creation, each after the kernels whose results it reads. */
static void emit_kernels(kernel_sort *a) {
    tu__kernel_plan *p = a->plan;
    uint32_t max_level = 0;
    for (uint32_t i = 0; i < p->buffer_count; i++) a->writer[i] = TU__NONE;
    for (uint32_t i = 0; i < p->kernel_count; i++) {
        const tu__kernel *k = p->kernels[i];
        for (uint32_t w = 0; w < k->write_count; w++) a->writer[k->writes[w]] = i;
        for (uint32_t n = 0; n < k->node_count; n++)
            if (p->level[k->nodes[n]] > a->kernel_level[i]) a->kernel_level[i] = p->level[k->nodes[n]];
        if (a->kernel_level[i] > max_level) max_level = a->kernel_level[i];
    }
    for (uint32_t level = 0; level <= max_level; level++)
        for (uint32_t i = 0; i < p->kernel_count; i++)
            if (a->kernel_level[i] == level) emit_kernel(a, i);
}

static tu_status sort_kernels(tu__kernel_plan *p) {
    if (p->kernel_count == 0) return TU_OK;
    kernel_sort a = {.plan = p,
                     .writer = tu__alloc_array(p->buffer_count + 1, sizeof *a.writer, "a plan"),
                     .kernel_level = tu__alloc_array(p->kernel_count, sizeof *a.kernel_level, "a plan"),
                     .is_emitted = tu__alloc_array(p->kernel_count, sizeof *a.is_emitted, "a plan"),
                     .sorted = tu__alloc_array(p->kernel_count, sizeof(tu__kernel *), "a plan")};
    bool is_allocated = a.writer && a.kernel_level && a.is_emitted && a.sorted;
    if (is_allocated) {
        emit_kernels(&a);
        memcpy(p->kernels, a.sorted, p->kernel_count * sizeof(tu__kernel *));
    }
    tu__free(a.writer);
    tu__free(a.kernel_level);
    tu__free(a.is_emitted);
    tu__free(a.sorted);
    return is_allocated ? TU_OK : TU_NO_MEMORY;
}

/* ---- The engine's view of the plan ---- */

/* A result cannot reuse memory that the kernel reads twice. */
static void disable_unsafe_in_place(tu__kernel *k) {
    for (uint32_t w = 0; w < k->write_count; w++)
        for (uint32_t r = 0; r < k->read_count && k->in_place[w] >= 0; r++)
            if ((int32_t)r != k->in_place[w] && k->reads[r] == k->reads[k->in_place[w]]) k->in_place[w] = -1;
}

static void fill_engine_kernel(tu__kernel *k, tu_kernel *result) {
    disable_unsafe_in_place(k);
    *result = (tu_kernel){.name = k->name,
                          .node_count = k->node_count,
                          .nodes = k->nodes,
                          .read_count = k->read_count,
                          .write_count = k->write_count,
                          .reads = k->reads,
                          .writes = k->writes,
                          .in_place = k->in_place,
                          .workspace = k->workspace_bytes,
                          .flops = k->flops,
                          .bytes_moved = k->bytes_moved};
}

static tu_status fill_engine_plan(tu__kernel_plan *p) {
    tu_kernel *kernels = tu__arena_alloc(&p->selection.arena, (p->kernel_count + 1) * sizeof *kernels);
    if (!kernels) return TU_NO_MEMORY;
    size_t resident_bytes = 0;
    for (uint32_t i = 0; i < p->kernel_count; i++) {
        fill_engine_kernel(p->kernels[i], &kernels[i]);
        resident_bytes += p->kernels[i]->resident_bytes;
    }
    p->plan = (tu_plan){.struct_size = sizeof(tu_plan),
                        .buffer_count = p->buffer_count,
                        .kernel_count = p->kernel_count,
                        .buffers = p->buffers,
                        .kernels = kernels,
                        .resident_bytes = resident_bytes};
    return TU_OK;
}

/* ---- Tables over the whole graph ---- */

/* If a value is assigned to several variables, the first is recorded. */
static void record_assignments(tu__kernel_plan *p, const tu_graph *g) {
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tu__node *node = g->nodes[i];
        p->assigned[i] = TU__NONE;
        if (node->op->code == TU__OP_ASSIGN && p->assigned[node->inputs[1].node] == TU__NONE)
            p->assigned[node->inputs[1].node] = node->inputs[0].node;
    }
}

static void record_norms(tu__kernel_plan *p, const tu_partition *partition) {
    for (uint32_t i = 0; i < partition->graph->node_count; i++) p->norm[i] = TU__NONE;
    for (uint32_t i = 0; i < partition->norm_count; i++)
        for (uint32_t k = 0; k < partition->norms[i].node_count; k++)
            p->norm[partition->norms[i].nodes[k]] = i;
}

static tu_status init_tables(tu__kernel_plan *p, const tu_partition *partition) {
    const tu_graph *g = partition->graph;
    p->state = tu__alloc_array(g->node_count, sizeof *p->state, "a plan");
    p->slot = tu__alloc_array(g->node_count, sizeof *p->slot, "a plan");
    p->level = tu__alloc_array(g->node_count, sizeof *p->level, "a plan");
    p->mark = tu__alloc_array(g->node_count, sizeof *p->mark, "a plan");
    p->assigned = tu__alloc_array(g->node_count, sizeof *p->assigned, "a plan");
    p->norm = tu__alloc_array(g->node_count, sizeof *p->norm, "a plan");
    p->saved = tu__alloc_array(g->node_count, sizeof *p->saved, "a plan");
    if (!p->state || !p->slot || !p->level || !p->mark || !p->assigned || !p->norm || !p->saved)
        return TU_NO_MEMORY;
    record_assignments(p, g);
    record_norms(p, partition);
    uint32_t outputs = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        p->saved[i] = TU__NONE;
        p->slot[i] = outputs;
        outputs += g->nodes[i]->output_count;
    }
    p->values = tu__alloc_array(outputs, sizeof *p->values, "a plan");
    if (!p->values) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < outputs; i++) p->values[i].dense = TU__NONE;
    for (uint32_t i = 0; i < partition->node_count; i++) p->state[partition->nodes[i]] = TU__WAITING;
    for (uint32_t i = 0; i < partition->export_count; i++)
        tu__plan_value_of(&p->selection, partition->exports[i])->exported = true;
    return TU_OK;
}

static tu_status list_readers(tu__kernel_plan *p, const tu_partition *partition) {
    const tu_graph *g = partition->graph;
    tu__selection *s = &p->selection;
    uint32_t total = 0;
    for (uint32_t i = 0; i < partition->node_count; i++) {
        const tu__node *node = g->nodes[partition->nodes[i]];
        for (uint32_t k = 0; k < node->input_count; k++)
            tu__plan_value_of(s, node->inputs[k])->reader_count++;
        total += node->input_count;
    }
    p->readers = tu__alloc_array(total + 1, sizeof *p->readers, "a plan");
    if (!p->readers) return TU_NO_MEMORY;
    uint32_t next = 0;
    for (uint32_t i = 0; i < g->node_count; i++)
        for (uint32_t k = 0; k < g->nodes[i]->output_count; k++) {
            tu__plan_value *v = tu__plan_value_of(s, (tu__edge){i, k});
            v->first_reader = next;
            next += v->reader_count;
            v->reader_count = 0;
        }
    for (uint32_t i = 0; i < partition->node_count; i++) {
        const tu__node *node = g->nodes[partition->nodes[i]];
        for (uint32_t k = 0; k < node->input_count; k++) {
            tu__plan_value *v = tu__plan_value_of(s, node->inputs[k]);
            p->readers[v->first_reader + v->reader_count++] = node->id;
        }
    }
    return TU_OK;
}

/* Frees the tables that only selection needs. */
static void free_tables(tu__kernel_plan *p) {
    tu__free(p->state);
    tu__free(p->slot);
    tu__free(p->level);
    tu__free(p->mark);
    tu__free(p->norm);
    tu__free(p->saved);
    tu__free(p->assigned);
    tu__free(p->values);
    tu__free(p->readers);
    p->state = NULL;
    p->slot = p->level = p->mark = p->assigned = p->norm = p->saved = p->readers = NULL;
    p->values = NULL;
}

/* ---- The interface ---- */

static tu_status fill_plan(tu__kernel_plan *p, const tu_partition *partition) {
    tu__selection *s = &p->selection;
    TU_TRY(init_tables(p, partition));
    if (partition->levels)
        memcpy(p->level, partition->levels, partition->graph->node_count * sizeof *p->level);
    TU_TRY(list_readers(p, partition));
    for (uint32_t i = 0; i < partition->node_count; i++)
        TU_TRY(visit_node(s, s->graph->nodes[partition->nodes[i]]));
    TU_TRY(tu__fuse_exports(s));
    TU_TRY(make_exports(s));
    TU_TRY(sort_kernels(p));
    if (s->selector->finish) TU_TRY(s->selector->finish(s));
    return fill_engine_plan(p);
}

tu_status tu__select(const void *device, const tu__selector *selector, const tu_partition *partition,
                     tu_plan **plan) {
    tu__kernel_plan *p = tu__alloc(sizeof *p, "a plan");
    if (!p) return TU_NO_MEMORY;
    p->partition = partition;
    p->selection =
        (tu__selection){.device = device, .selector = selector, .graph = partition->graph, .plan = p};
    p->selection.arena.purpose = "a plan";
    tu_status status = fill_plan(p, partition);
    free_tables(p);
    p->partition = NULL;
    if (status != TU_OK) {
        tu__kernel_plan_free(p);
        return status;
    }
    *plan = &p->plan;
    return TU_OK;
}

static size_t count_addresses(const tu__kernel_plan *p) {
    size_t count = 0;
    for (uint32_t i = 0; i < p->kernel_count; i++)
        count += p->kernels[i]->read_count + p->kernels[i]->write_count;
    return count;
}

tu_status tu__kernels_bind(const tu__kernel_plan *p, const tu_binding *binding, void *queue,
                           tu__bound_kernels *bound) {
    *bound = (tu__bound_kernels){.plan = p, .count = p->kernel_count, .seed = binding->seed};
    bound->kernels = tu__alloc_array(p->kernel_count, sizeof *bound->kernels, "an executable");
    bound->times = tu__alloc_array(p->kernel_count, sizeof *bound->times, "an executable");
    bound->addresses = tu__alloc_array(count_addresses(p), sizeof *bound->addresses, "an executable");
    if (!bound->kernels || !bound->times || !bound->addresses) {
        tu__kernels_unbind(bound);
        return TU_NO_MEMORY;
    }
    void **next = bound->addresses;
    for (uint32_t i = 0; i < p->kernel_count; i++) {
        tu__kernel *k = &bound->kernels[i];
        *k = *p->kernels[binding->order[i]];
        k->in = next;
        k->out = next + k->read_count;
        next += k->read_count + k->write_count;
        for (uint32_t r = 0; r < k->read_count; r++) k->in[r] = binding->buffers[k->reads[r]];
        for (uint32_t w = 0; w < k->write_count; w++) k->out[w] = binding->buffers[k->writes[w]];
        k->workspace = binding->workspaces[binding->order[i]];
        k->seed = binding->seed;
        k->queue = queue;
    }
    return TU_OK;
}

void tu__kernels_unbind(tu__bound_kernels *bound) {
    tu__free(bound->kernels);
    tu__free(bound->times);
    tu__free(bound->addresses);
    *bound = (tu__bound_kernels){0};
}

void tu__kernel_plan_free(tu__kernel_plan *p) {
    if (!p) return;
    for (uint32_t i = 0; i < p->kernel_count; i++)
        if (p->kernels[i]->release) p->kernels[i]->release(p->kernels[i]->data);
    free_tables(p);
    tu__arena_free(&p->selection.arena);
    tu__free(p->buffers);
    tu__free(p->kernels);
    tu__free(p);
}
