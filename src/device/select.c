/* Selection: a part of a graph becomes kernels and buffers.
 *
 * The walk goes through the nodes in order and is lazy about pointwise ones: they stay pending until a node that is
 * not pointwise, or the outside, asks for their value; then fusion.c computes them together with all pending nodes
 * they stand on. What is never asked for by name, a mask in the middle of a gradient, is never stored. Views get no
 * kernel: tu__root_of() leads from a view to the value whose buffer it shares.
 *
 * Order. A lowering rule may fuse what follows its node and then reads values that come later, so a kernel's place in the
 * list is not its place in time: arrange() sorts at the end.
 *
 * Other devices. A value may leave the part and come back as a leaf computed from it elsewhere. A kernel that both
 * gave the first and took the second would wait for itself. Only nodes of one level (<tutti/device.h>) are therefore
 * fused into a kernel with several results, and kernels are sorted by level.
 *
 * Exports are dense, and no two of them share a buffer with each other or a leaf: copies are added where views would. */
#include "device/fusion.h"

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

/* ---- Growing lists. They move, but live in blocks of their own, freed with the plan ---- */

/* The list with room for one more entry; NULL when memory runs out, and the old one is still there. */
static void *with_room(void *list, uint32_t *capacity, uint32_t count, size_t size) {
    if (count < *capacity) return list;
    uint32_t wanted = *capacity ? 2 * *capacity : 64;
    void *grown = tu__realloc(list, wanted * size, "a plan");
    if (grown) *capacity = wanted;
    return grown;
}

static tu_status add_buffer(tu__kernel_plan *p, tu_buffer buffer, uint32_t *index) {
    tu_buffer *list = with_room(p->buffers, &p->buffer_capacity, p->buffer_count, sizeof *list);
    if (!list) return TU_NO_MEMORY;
    p->buffers = list;
    *index = p->buffer_count;
    p->buffers[p->buffer_count++] = buffer;
    return TU_OK;
}

/* Entries of a kernel's lists are few and added one by one: capacity is the next power of two of the count. */
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

/* ---- What lowering rules call ---- */

tu__kernel *tu__kernel_new(tu__selection *s, const tu__node *node, const char *name,
                           tu_status (*run)(const tu__kernel *k)) {
    tu__kernel_plan *p = plan_of(s);
    tu__kernel *k = tu__arena_alloc(&s->arena, sizeof *k);
    tu__kernel **list = with_room(p->kernels, &p->kernel_capacity, p->kernel_count, sizeof(tu__kernel *));
    if (list) p->kernels = list;
    if (!k || !list) return NULL;
    k->name = name;
    k->run = run;
    k->device = s->device;
    k->owner = s;
    if (tu__kernel_cover(k, node) != TU_OK) return NULL;
    p->kernels[p->kernel_count++] = k;
    return k;
}

void *tu__kernel_data(tu__kernel *k, size_t bytes) {
    return k->data = tu__arena_alloc(&k->owner->arena, bytes);
}

tu_status tu__kernel_cover(tu__kernel *k, const tu__node *node) {
    return append(&k->owner->arena, &k->nodes, &k->node_count, node->id);
}

tu_status tu__kernel_read(tu__kernel *k, tu__edge value) {
    uint32_t buffer = TU__NONE;
    TU_TRY(tu__dense_buffer(k->owner, value, &buffer));
    return append(&k->owner->arena, &k->reads, &k->read_count, buffer);
}

static tu_status add_write(tu__kernel *k, uint32_t buffer, int in_place) {
    uint32_t count = k->write_count, *places = (uint32_t *)k->in_place;
    TU_TRY(append(&k->owner->arena, &places, &count, (uint32_t)in_place));
    k->in_place = (int32_t *)places;
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

tu_status tu__kernel_leave(tu__kernel *k, const tu__node *node, size_t bytes) {
    tu__kernel_plan *p = plan_of(k->owner);
    tu_buffer buffer = {bytes, {TU_NO_NODE, 0}, false};
    TU_TRY(add_buffer(p, buffer, &p->beside[node->id]));
    return add_write(k, p->beside[node->id], -1);
}

tu_status tu__kernel_find(tu__kernel *k, const tu__node *node) {
    return append(&k->owner->arena, &k->reads, &k->read_count, plan_of(k->owner)->beside[node->id]);
}

const tu__node *tu__only_reader(tu__selection *s, tu__edge value) {
    const tu__kernel_plan *p = plan_of(s);
    const tu__plan_value *v = tu__plan_value_of(s, value);
    if (v->reader_count != 1 || v->exported) return NULL;
    const tu__node *reader = s->graph->nodes[p->readers[v->first_reader]];
    return reader->after_count ? NULL : reader; /* what must wait for others has a kernel of its own */
}

bool tu__is_free(const tu__selection *s, const tu__node *node) {
    tu__node_state state = s->plan->state[node->id];
    return state != TU__OUTSIDE && state != TU__DONE;
}

const tu__node *tu__free_reader(tu__selection *s, tu__edge value) {
    const tu__node *reader = tu__only_reader(s, value);
    return reader && tu__is_free(s, reader) ? reader : NULL;
}

bool tu__is_zero(const tu__selection *s, tu__edge value) {
    const tu__node *node = s->graph->nodes[value.node];
    while (node->op->code == TU__OP_BROADCAST || (node->op->traits & TU__VIEW))
        node = s->graph->nodes[node->inputs[0].node];
    return node->op->code == TU__OP_FILL && tu__attrs(node, fill)->number == 0;
}

void tu__mark_done(tu__selection *s, const tu__node *node) {
    plan_of(s)->state[node->id] = TU__DONE;
}

/* ---- The walk ---- */

/* A lowering rule that gave up half way: its kernels go, so that the lowering rule of last resort can take the node. */
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

static tu__edge read_by_rule(tu__selection *s, const tu__node *node, uint32_t index) {
    const tu__selector *selector = s->selector;
    return selector->read_by_rule ? selector->read_by_rule(s, node, index) : node->inputs[index];
}

static tu_status make(tu__selection *s, const tu__node *node) {
    tu__kernel_plan *p = plan_of(s);
    p->state[node->id] = TU__BUSY;
    for (uint32_t i = 0; i < node->input_count; i++) {
        p->asking = node;
        TU_TRY(tu__require(s, read_by_rule(s, node, i)));
    }
    p->asking = NULL;
    if (p->state[node->id] == TU__DONE) return TU_OK; /* a sum: its input's kernel took it in */
    tu__lowering_rule rule = s->selector->rules[node->op->code];
    uint32_t kernels = p->kernel_count;
    tu_status status = rule ? rule(s, node) : TU_UNSUPPORTED;
    if (status == TU_UNSUPPORTED) {
        drop_kernels_of(p, node, kernels);
        status = s->selector->otherwise(s, node);
    }
    p->state[node->id] = TU__DONE;
    return status;
}

static bool is_lazy(const tu__node *node) {
    return (node->op->traits & TU__POINTWISE) || node->op->code == TU__OP_BROADCAST ||
           node->op->code == TU__OP_FILL;
}

static tu_status visit(tu__selection *s, const tu__node *node) {
    tu__kernel_plan *p = plan_of(s);
    if (p->state[node->id] != TU__WAITING) return TU_OK;
    p->state[node->id] = TU__BUSY; /* a chain of inputs never leads back */
    for (uint32_t i = 0; i < node->input_count; i++) TU_TRY(visit(s, s->graph->nodes[node->inputs[i].node]));
    if (p->state[node->id] == TU__DONE) return TU_OK; /* fused into an input meanwhile */
    if (node->op->traits & TU__VIEW)
        p->state[node->id] = TU__DONE;
    else if (is_lazy(node))
        p->state[node->id] = TU__PENDING;
    else
        return make(s, node);
    return TU_OK;
}

tu_status tu__require(tu__selection *s, tu__edge value) {
    tu__edge root = tu__root_of(s, value);
    const tu__node *node = s->graph->nodes[root.node];
    tu__kernel_plan *p = plan_of(s);
    const tu__node *asking = p->asking;
    p->asking = NULL; /* what is required on the way is asked for by others */
    TU_TRY(visit(s, node));
    p->asking = asking;
    switch (p->state[node->id]) {
    case TU__PENDING: return node->op->traits & TU__POINTWISE ? tu__fuse(s, node) : make(s, node);
    case TU__BUSY:
        return tu_fail(TU_INTERNAL, "the kernel of %s '%s' would wait for itself", node->op->name,
                       node->name);
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
        return tu_fail(TU_INTERNAL, "%s '%s' is read but no kernel keeps its value", node->op->name,
                       node->name);
    }
    *buffer = v->dense;
    return TU_OK;
}

/* ---- Exports ---- */

static tu_status give_export(tu__selection *s, tu__edge value) {
    tu__kernel_plan *p = plan_of(s);
    tu__edge root = tu__root_of(s, value);
    tu__plan_value *own = tu__plan_value_of(s, value), *v = tu__plan_value_of(s, root);
    if (own->exported_buffer) return TU_OK; /* listed twice */
    if (p->state[value.node] ==
        TU__OUTSIDE) { /* the engine fills it, but it must have a buffer to be found by */
        uint32_t leaf = 0;
        own->exported_buffer = true;
        return tu__dense_buffer(s, value, &leaf);
    }
    if (p->state[root.node] == TU__OUTSIDE || v->exported_buffer) {
        own->exported_buffer = true;
        return s->selector->make_copy(s, root, value);
    }
    uint32_t buffer = TU__NONE;
    TU_TRY(tu__dense_buffer(s, root, &buffer));
    p->buffers[buffer].value = value; /* a view's export lies in its root's buffer, under the view's name */
    own->exported_buffer = v->exported_buffer = true;
    return TU_OK;
}

/* Roots first: a view then finds the buffer taken and is copied. */
static tu_status give_exports(tu__selection *s) {
    const tu_partition *part = plan_of(s)->part;
    for (uint32_t i = 0; i < part->export_count; i++)
        if (!is_view(s, part->exports[i])) TU_TRY(give_export(s, part->exports[i]));
    for (uint32_t i = 0; i < part->export_count; i++)
        if (is_view(s, part->exports[i])) TU_TRY(give_export(s, part->exports[i]));
    return TU_OK;
}

/* ---- Kernels in an order that can be run ---- */

typedef struct arrangement {
    tu__kernel_plan *plan;
    uint32_t *writer; /* buffer -> kernel, TU__NONE */
    uint32_t *kernel_level;
    bool *placed;
    tu__kernel **sorted;
    uint32_t count;
} arrangement;

static void place_kernel(arrangement *a, uint32_t kernel) {
    if (a->placed[kernel]) return;
    a->placed[kernel] = true;
    const tu__kernel *k = a->plan->kernels[kernel];
    for (uint32_t i = 0; i < k->read_count; i++)
        if (a->writer[k->reads[i]] != TU__NONE) place_kernel(a, a->writer[k->reads[i]]);
    a->sorted[a->count++] = a->plan->kernels[kernel];
}

/* Kernel numbers grow with the order made, levels with the order in time: both together give the order. */
static void place_all(arrangement *a) {
    tu__kernel_plan *p = a->plan;
    uint32_t highest = 0;
    for (uint32_t i = 0; i < p->buffer_count; i++) a->writer[i] = TU__NONE;
    for (uint32_t i = 0; i < p->kernel_count; i++) {
        const tu__kernel *k = p->kernels[i];
        for (uint32_t w = 0; w < k->write_count; w++) a->writer[k->writes[w]] = i;
        for (uint32_t n = 0; n < k->node_count; n++)
            if (p->level[k->nodes[n]] > a->kernel_level[i]) a->kernel_level[i] = p->level[k->nodes[n]];
        if (a->kernel_level[i] > highest) highest = a->kernel_level[i];
    }
    for (uint32_t level = 0; level <= highest; level++)
        for (uint32_t i = 0; i < p->kernel_count; i++)
            if (a->kernel_level[i] == level) place_kernel(a, i);
}

static tu_status arrange(tu__kernel_plan *p) {
    if (p->kernel_count == 0) return TU_OK;
    arrangement a = {.plan = p,
                     .writer = tu__alloc_array(p->buffer_count + 1, sizeof *a.writer, "a plan"),
                     .kernel_level = tu__alloc_array(p->kernel_count, sizeof *a.kernel_level, "a plan"),
                     .placed = tu__alloc_array(p->kernel_count, sizeof *a.placed, "a plan"),
                     .sorted = tu__alloc_array(p->kernel_count, sizeof(tu__kernel *), "a plan")};
    bool ready = a.writer && a.kernel_level && a.placed && a.sorted;
    if (ready) {
        place_all(&a);
        memcpy(p->kernels, a.sorted, p->kernel_count * sizeof(tu__kernel *));
    }
    tu__free(a.writer);
    tu__free(a.kernel_level);
    tu__free(a.placed);
    tu__free(a.sorted);
    return ready ? TU_OK : TU_NO_MEMORY;
}

/* ---- What the engine sees ---- */

/* Memory that a kernel reads twice cannot be taken over by one of its results. */
static void drop_shared_places(tu__kernel *k) {
    for (uint32_t w = 0; w < k->write_count; w++)
        for (uint32_t r = 0; r < k->read_count && k->in_place[w] >= 0; r++)
            if ((int32_t)r != k->in_place[w] && k->reads[r] == k->reads[k->in_place[w]]) k->in_place[w] = -1;
}

static tu_status publish_kernel(tu__kernel_plan *p, tu__kernel *k, tu_kernel *seen) {
    k->in = tu__arena_alloc(&p->selection.arena, (k->read_count + 1) * sizeof *k->in);
    k->out = tu__arena_alloc(&p->selection.arena, (k->write_count + 1) * sizeof *k->out);
    if (!k->in || !k->out) return TU_NO_MEMORY;
    drop_shared_places(k);
    *seen = (tu_kernel){.name = k->name,
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
    return TU_OK;
}

static tu_status publish(tu__kernel_plan *p) {
    tu_kernel *kernels = tu__arena_alloc(&p->selection.arena, (p->kernel_count + 1) * sizeof *kernels);
    p->times = tu__arena_alloc(&p->selection.arena, (p->kernel_count + 1) * sizeof *p->times);
    if (!kernels || !p->times) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < p->kernel_count; i++) TU_TRY(publish_kernel(p, p->kernels[i], &kernels[i]));
    p->plan = (tu_plan){.struct_size = sizeof(tu_plan),
                        .buffer_count = p->buffer_count,
                        .kernel_count = p->kernel_count,
                        .buffers = p->buffers,
                        .kernels = kernels};
    return TU_OK;
}

/* ---- Beginning: tables over the whole graph ---- */

/* A value that several variables take is noted for the first of them. */
static void note_assignments(tu__kernel_plan *p, const tu_graph *g) {
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tu__node *node = g->nodes[i];
        p->assigned[i] = TU__NONE;
        if (node->op->code == TU__OP_ASSIGN && p->assigned[node->inputs[1].node] == TU__NONE)
            p->assigned[node->inputs[1].node] = node->inputs[0].node;
    }
}

static tu_status begin_tables(tu__kernel_plan *p, const tu_partition *part) {
    const tu_graph *g = part->graph;
    p->state = tu__alloc_array(g->node_count, sizeof *p->state, "a plan");
    p->slot = tu__alloc_array(g->node_count, sizeof *p->slot, "a plan");
    p->level = tu__alloc_array(g->node_count, sizeof *p->level, "a plan");
    p->mark = tu__alloc_array(g->node_count, sizeof *p->mark, "a plan");
    p->assigned = tu__alloc_array(g->node_count, sizeof *p->assigned, "a plan");
    p->beside = tu__alloc_array(g->node_count, sizeof *p->beside, "a plan");
    if (!p->state || !p->slot || !p->level || !p->mark || !p->assigned || !p->beside) return TU_NO_MEMORY;
    note_assignments(p, g);
    uint32_t outputs = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        p->beside[i] = TU__NONE;
        p->slot[i] = outputs;
        outputs += g->nodes[i]->output_count;
    }
    p->values = tu__alloc_array(outputs, sizeof *p->values, "a plan");
    if (!p->values) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < outputs; i++) p->values[i].dense = TU__NONE;
    for (uint32_t i = 0; i < part->node_count; i++) p->state[part->nodes[i]] = TU__WAITING;
    for (uint32_t i = 0; i < part->export_count; i++)
        tu__plan_value_of(&p->selection, part->exports[i])->exported = true;
    return TU_OK;
}

static tu_status list_readers(tu__kernel_plan *p, const tu_partition *part) {
    const tu_graph *g = part->graph;
    tu__selection *s = &p->selection;
    uint32_t total = 0;
    for (uint32_t i = 0; i < part->node_count; i++) {
        const tu__node *node = g->nodes[part->nodes[i]];
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
    for (uint32_t i = 0; i < part->node_count; i++) {
        const tu__node *node = g->nodes[part->nodes[i]];
        for (uint32_t k = 0; k < node->input_count; k++) {
            tu__plan_value *v = tu__plan_value_of(s, node->inputs[k]);
            p->readers[v->first_reader + v->reader_count++] = node->id;
        }
    }
    return TU_OK;
}

/* What only selecting needs. */
static void free_tables(tu__kernel_plan *p) {
    tu__free(p->state);
    tu__free(p->slot);
    tu__free(p->level);
    tu__free(p->mark);
    tu__free(p->beside);
    tu__free(p->assigned);
    tu__free(p->values);
    tu__free(p->readers);
    p->state = NULL;
    p->slot = p->level = p->mark = p->assigned = p->beside = p->readers = NULL;
    p->values = NULL;
}

/* ---- All of it ---- */

static tu_status fill_plan(tu__kernel_plan *p, const tu_partition *part) {
    tu__selection *s = &p->selection;
    TU_TRY(begin_tables(p, part));
    if (part->levels) memcpy(p->level, part->levels, part->graph->node_count * sizeof *p->level);
    TU_TRY(list_readers(p, part));
    for (uint32_t i = 0; i < part->node_count; i++) TU_TRY(visit(s, s->graph->nodes[part->nodes[i]]));
    TU_TRY(tu__fuse_exports(s));
    TU_TRY(give_exports(s));
    TU_TRY(arrange(p));
    return publish(p);
}

tu_status tu__select(const void *device, const tu__selector *selector, const tu_partition *part,
                     tu_plan **plan) {
    tu__kernel_plan *p = tu__alloc(sizeof *p, "a plan");
    if (!p) return TU_NO_MEMORY;
    p->part = part;
    p->selection = (tu__selection){.device = device, .selector = selector, .graph = part->graph, .plan = p};
    p->selection.arena.purpose = "a plan";
    tu_status status = fill_plan(p, part);
    free_tables(p);
    p->part = NULL;
    if (status != TU_OK) {
        tu__kernel_plan_free(p);
        return status;
    }
    *plan = &p->plan;
    return TU_OK;
}

void tu__kernel_plan_bind(tu__kernel_plan *p, const tu_binding *binding) {
    p->order = binding->order;
    for (uint32_t i = 0; i < p->kernel_count; i++) {
        tu__kernel *k = p->kernels[i];
        for (uint32_t r = 0; r < k->read_count; r++) k->in[r] = binding->buffers[k->reads[r]];
        for (uint32_t w = 0; w < k->write_count; w++) k->out[w] = binding->buffers[k->writes[w]];
        k->workspace = binding->workspaces[i];
        k->seed = binding->seed;
    }
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
