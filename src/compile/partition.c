/* Builds one partition per device from a graph with placed nodes: which nodes it computes, which values it receives
 * and sends, in which order its kernels run, and where their buffers are. steps.c then writes the steps.
 *
 * Everything here runs in time linear in nodes, edges and buffers, because networks of thousands of layers must
 * compile too: properties of values and buffers are collected into tables by one pass, never searched for. */
#include "compile/partition.h"

#include <string.h>

#include "base/alloc.h"
#include "compile/collectives.h"
#include "compile/schedule.h"

uint32_t tu__partition_of(const tu__unit *unit, uint32_t node) {
    const char *device = unit->graph->nodes[node]->device;
    for (size_t i = 0; device && i < unit->device_count; i++)
        if (strcmp(device, unit->devices[i]) == 0) return (uint32_t)i;
    return 0;
}

uint32_t tu__partition_buffer(const tu__partition *part, tu__edge value) {
    return part->buffer_of[part->slot[value.node] + value.output];
}

bool tu__update_waits(const tu__partition *part, const tu__update *update) {
    return !update->in_place && part->memory.storage[update->buffer] == TU__STORAGE_OUTSIDE;
}

static bool is_op(const tu__node *node, tu__opcode op) {
    return node->op->code == op;
}

/* True if the engine provides the value, not a kernel. */
static bool is_leaf(const tu__node *node) {
    return (node->op->traits & TU__LEAF) || is_op(node, TU__OP_COPY) || is_op(node, TU__OP_ALL_REDUCE);
}

/* ---- Nodes and exports ---- */

/* In `buffer_of`, before the device has selected kernels: the value is an export already. */
enum { EXPORTED = 1 };

static void add_export(tu__partition *part, tu__edge value) {
    uint32_t *mark = &part->buffer_of[part->slot[value.node] + value.output];
    if (*mark != EXPORTED) part->exports[part->export_count++] = value;
    *mark = EXPORTED;
}

/* Allocates the lists and the table of values. */
static tu_status reserve_part(const tu_graph *g, tu__partition *part, size_t exports) {
    size_t nodes = g->node_count, outputs = 0;
    part->nodes = tu__alloc_array(nodes, sizeof *part->nodes, "a part");
    part->exports = tu__alloc_array(exports, sizeof *part->exports, "a part");
    part->leaves = tu__alloc_array(nodes, sizeof *part->leaves, "a part");
    part->receives = tu__alloc_array(nodes, sizeof *part->receives, "a part");
    part->updates = tu__alloc_array(nodes, sizeof *part->updates, "a part");
    part->slot = tu__alloc_array(nodes, sizeof *part->slot, "a part");
    if (!part->nodes || !part->exports || !part->leaves || !part->receives || !part->updates || !part->slot)
        return TU_NO_MEMORY;
    for (size_t i = 0; i < nodes; i++) {
        part->slot[i] = (uint32_t)outputs;
        outputs += g->nodes[i]->output_count;
    }
    part->output_count = (uint32_t)outputs;
    part->buffer_of = tu__alloc_array(outputs, sizeof *part->buffer_of, "a part");
    return part->buffer_of ? TU_OK : TU_NO_MEMORY;
}

/* Assigns the graph's nodes and exports to the partitions. */
static tu_status deal(const tu__unit *unit, size_t count, tu__partition *parts) {
    const tu_graph *g = unit->graph;
    for (size_t i = 0; i < count; i++)
        TU_TRY(reserve_part(g, &parts[i], 2 * (size_t)g->node_count + unit->fetch_count + unit->kept_count));
    for (uint32_t id = 0; id < g->node_count; id++) {
        const tu__node *node = g->nodes[id];
        tu__partition *part = &parts[tu__partition_of(unit, id)];
        if (is_op(node, TU__OP_ASSIGN)) {
            add_export(part, node->inputs[1]);
        } else if (is_op(node, TU__OP_COPY)) {
            add_export(&parts[tu__partition_of(unit, node->inputs[0].node)], node->inputs[0]);
        } else if (is_op(node, TU__OP_ALL_REDUCE)) { /* both need a buffer, even if no kernel reads them */
            add_export(part, node->inputs[0]);
            add_export(part, (tu__edge){id, 0});
        } else if (!is_leaf(node)) {
            part->nodes[part->node_count++] = id;
        }
        /* A node with a control dependency on it needs its buffer. */
        for (uint32_t i = 0; i < node->after_count; i++)
            add_export(&parts[tu__partition_of(unit, node->after[i])], (tu__edge){node->after[i], 0});
    }
    for (size_t i = 0; i < unit->fetch_count; i++) {
        const tu__node *node = g->nodes[unit->fetch[i].node];
        tu__edge value = is_op(node, TU__OP_ASSIGN) ? node->inputs[1] : unit->fetch[i];
        add_export(&parts[tu__partition_of(unit, value.node)], value);
    }
    for (size_t i = 0; i < unit->kept_count; i++)
        add_export(&parts[tu__partition_of(unit, unit->kept[i].node)], unit->kept[i]);
    return TU_OK;
}

/* Fills `buffer_of`. The plan is verified, so a value has at most one dense buffer. */
static void index_buffers(tu__partition *part) {
    for (uint32_t i = 0; i < part->output_count; i++) part->buffer_of[i] = TU_NO_NODE;
    for (uint32_t b = 0; b < part->plan->buffer_count; b++) {
        const tu_buffer *buffer = &part->plan->buffers[b];
        if (buffer->dense && buffer->value.node != TU_NO_NODE)
            part->buffer_of[part->slot[buffer->value.node] + buffer->value.output] = b;
    }
}

static tu_status select_part(const tu__unit *unit, const uint32_t *levels, tu__partition *part) {
    tu_partition view = {.struct_size = sizeof view,
                         .graph = unit->graph,
                         .node_count = part->node_count,
                         .nodes = part->nodes,
                         .export_count = part->export_count,
                         .exports = part->exports,
                         .levels = levels,
                         .tf32 = unit->precision == TU__PRECISION_TF32};
    TU_TRY(part->device->api->select(part->device->instance, &view, &part->plan));
    TU_TRY(tu__plan_check(part->device->name, &view, part->plan));
    index_buffers(part);
    return TU_OK;
}

/* ---- Leaves, receives, updates ---- */

/* Lists the buffers that contain a leaf's value. */
static void find_leaves(const tu__unit *unit, tu__partition *part) {
    for (uint32_t b = 0; b < part->plan->buffer_count; b++) {
        uint32_t node = part->plan->buffers[b].value.node;
        if (node == TU_NO_NODE || !part->plan->buffers[b].dense || !is_leaf(unit->graph->nodes[node]))
            continue;
        part->leaves[part->leaf_count++] = (tu__leaf){.node = node, .buffer = b};
    }
}

/* True if the value exists before a run, in memory that the program does not reuse. */
static bool is_lasting(const tu__node *node) {
    return is_op(node, TU__OP_VARIABLE) || is_op(node, TU__OP_CONSTANT);
}

/* Returns the partition whose thread performs a copy: the destination, except for copies from a GPU to the host. One
 * host thread would fetch from several GPUs one after another and wait for the slowest. So each GPU sends its own
 * values, all in parallel, in the order in which it produces them. */
static uint32_t mover_of(const tu__partition *parts, uint32_t from, uint32_t to) {
    bool brings = parts[to].device->api->host_memory && !parts[from].device->api->host_memory;
    return brings ? from : to;
}

static tu_status find_receives(const tu__unit *unit, tu__partition *parts, size_t index, uint32_t *events) {
    tu__partition *part = &parts[index];
    for (uint32_t i = 0; i < part->leaf_count; i++) {
        const tu__node *node = unit->graph->nodes[part->leaves[i].node];
        if (!is_op(node, TU__OP_COPY)) continue;
        tu__edge source = node->inputs[0];
        uint32_t from = tu__partition_of(unit, source.node);
        part->receives[part->receive_count++] =
            (tu__receive){.node = node->id,
                          .source = source,
                          .source_part = from,
                          .part = (uint32_t)index,
                          .mover = mover_of(parts, from, (uint32_t)index),
                          .buffer = part->leaves[i].buffer,
                          .source_buffer = tu__partition_buffer(&parts[from], source),
                          .at_hand = is_lasting(unit->graph->nodes[source.node]),
                          .made = (*events)++,
                          .arrived = (*events)++};
    }
    return TU_OK;
}

static void find_updates(const tu__unit *unit, tu__partition *parts) {
    const tu_graph *g = unit->graph;
    for (uint32_t id = 0; id < g->node_count; id++) {
        const tu__node *node = g->nodes[id];
        if (!is_op(node, TU__OP_ASSIGN)) continue;
        tu__partition *part = &parts[tu__partition_of(unit, id)];
        part->updates[part->update_count++] =
            (tu__update){.variable = node->inputs[0].node,
                         .assign = id,
                         .buffer = tu__partition_buffer(part, node->inputs[1])};
    }
}

/* ---- Order and memory ---- */

/* Properties of kernels and buffers, used while they are ordered and placed in memory. */
typedef struct marks {
    const uint32_t *node_level; /* per node of the graph */
    uint32_t *level;            /* per kernel */
    bool *last;                 /* per kernel: it runs after the barrier */
    bool *sends;                /* per kernel: another device waits for its output */
    /* Per buffer: */
    bool *read;     /* by a kernel */
    bool *assigned; /* is the next value of a variable */
    bool *leaves;   /* another partition reads it during the run */
    bool *fetched;  /* the user reads it after the last kernel; or would, if it belongs to a mirror */
    uint32_t *met;  /* number of uses as input or output of a collective */
    uint32_t *made; /* if it is received: rank by the time at which it is produced; 0: it is not received */
    bool *outside, *from_start, *to_end;
    uint32_t *becomes;
} marks;

static void mark_fetched(const tu__unit *unit, const tu__partition *part, size_t index, size_t count,
                         const tu__edge *edges, marks *m) {
    for (size_t i = 0; i < count; i++) {
        if (tu__partition_of(unit, edges[i].node) != index) continue;
        uint32_t b = tu__partition_buffer(part, edges[i]);
        if (b != TU_NO_NODE) m->fetched[b] = true; /* the value of an assignment has no buffer yet */
    }
}

/* Marks the buffers that are read, in one pass over kernels, updates, receives, collectives and fetches. */
static void mark_readers(const tu__unit *unit, const tu__partition *parts, size_t count, size_t index,
                         marks *m) {
    const tu__partition *part = &parts[index];
    for (uint32_t k = 0; k < part->plan->kernel_count; k++) {
        const tu_kernel *kernel = &part->plan->kernels[k];
        for (uint32_t r = 0; r < kernel->read_count; r++) m->read[kernel->reads[r]] = true;
    }
    for (uint32_t i = 0; i < part->update_count; i++) m->assigned[part->updates[i].buffer] = true;
    for (size_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < parts[p].receive_count; i++)
            if (parts[p].receives[i].source_part == index)
                m->leaves[parts[p].receives[i].source_buffer] = true;
    for (uint32_t i = 0; i < part->collective_count; i++) {
        const tu__collective *collective = part->collectives[i].collective;
        const tu__member *a = &collective->members[part->collectives[i].rank];
        for (uint32_t v = 0; v < collective->value_count; v++) m->met[a->in[v]]++, m->met[a->out[v]]++;
    }
    /* A kernel that a control dependency names is not an update kernel, which run last. */
    for (uint32_t i = 0; i < part->node_count; i++) {
        const tu__node *node = unit->graph->nodes[part->nodes[i]];
        for (uint32_t k = 0; k < node->after_count; k++)
            m->read[tu__partition_buffer(part, (tu__edge){node->after[k], 0})] = true;
    }
    mark_fetched(unit, part, index, unit->fetch_count, unit->fetch, m);
    mark_fetched(unit, part, index, unit->kept_count, unit->kept, m);
}

/* True if the kernel writes only next values of variables that nothing else reads, and perhaps values that the user
 * fetches. Such kernels run last, after the barrier, so that a run that fails leaves the state unchanged. */
static bool is_update_kernel(const tu_kernel *kernel, const marks *m) {
    bool updates = false;
    for (uint32_t w = 0; w < kernel->write_count; w++) {
        uint32_t b = kernel->writes[w];
        bool one_of_both = m->assigned[b] != m->fetched[b];
        if (m->read[b] || m->leaves[b] || m->met[b] || !one_of_both) return false;
        updates = updates || m->assigned[b];
    }
    return updates;
}

static void mark_update_kernels(const tu_plan *plan, marks *m) {
    for (uint32_t k = 0; k < plan->kernel_count; k++) m->last[k] = is_update_kernel(&plan->kernels[k], m);
}

/* Marks the kernels whose output another device waits for. */
static void mark_senders(const tu_plan *plan, const marks *m) {
    for (uint32_t k = 0; k < plan->kernel_count; k++)
        for (uint32_t w = 0; w < plan->kernels[k].write_count; w++) {
            uint32_t b = plan->kernels[k].writes[w];
            if (m->leaves[b] || m->met[b]) m->sends[k] = true;
        }
}

/* Ranks the received values by node id. Devices compute in the graph's order as far as possible, so this is the order
 * in which they send. */
static void mark_receives(const tu__partition *part, const marks *m) {
    for (uint32_t i = 0; i < part->receive_count; i++)
        m->made[part->receives[i].buffer] = part->receives[i].source.node + 1;
}

static void kernel_levels(const tu_plan *plan, const uint32_t *node_level, uint32_t *level) {
    for (uint32_t k = 0; k < plan->kernel_count; k++)
        for (uint32_t i = 0; i < plan->kernels[k].node_count; i++)
            if (node_level[plan->kernels[k].nodes[i]] > level[k])
                level[k] = node_level[plan->kernels[k].nodes[i]];
}

/* True if an export may be read after the last kernel. Values sent to another partition may be read at any time, but
 * the old value of a variable only until the barrier, since it may be overwritten later. For values that only a
 * collective uses, plan_collectives sets the lifetime. */
static bool is_read_at_end(const marks *m, uint32_t buffer) {
    if (m->fetched[buffer] || m->assigned[buffer]) return true;
    return m->leaves[buffer] ? !m->outside[buffer] : !m->met[buffer];
}

static void mark_buffers(const tu__unit *unit, const tu__partition *part, marks *m) {
    for (uint32_t i = 0; i < part->leaf_count; i++) {
        const tu__node *node = unit->graph->nodes[part->leaves[i].node];
        uint32_t b = part->leaves[i].buffer;
        m->outside[b] = is_lasting(node);
        m->from_start[b] = !m->outside[b] && !is_op(node, TU__OP_ALL_REDUCE);
    }
    for (uint32_t b = 0; b < part->plan->buffer_count; b++) m->becomes[b] = TU_NO_NODE;
    for (uint32_t i = 0; i < part->export_count; i++) {
        uint32_t b = tu__partition_buffer(part, part->exports[i]);
        m->to_end[b] = is_read_at_end(m, b);
    }
    for (uint32_t i = 0; i < part->update_count; i++) {
        const tu__update *u = &part->updates[i];
        uint32_t target = tu__partition_buffer(part, (tu__edge){u->variable, 0});
        /* If several variables get one value, the first shares the value's memory, as devices assume. */
        if (target != TU_NO_NODE && !m->fetched[target] && !m->met[target] &&
            m->becomes[u->buffer] == TU_NO_NODE)
            m->becomes[u->buffer] = target;
    }
}

/* Returns the first position in the order whose kernel may compute a node of this level or one that depends on it. */
static uint32_t first_at_level(const tu__partition *part, const uint32_t *kernel_level, uint32_t level) {
    uint32_t at = 0;
    while (at < part->plan->kernel_count && kernel_level[part->order[at]] < level) at++;
    return at;
}

/* Finds control dependencies on receives. A node may be computed inside the kernel of another one, or be a view, so
 * its level, not the node itself, decides which kernels come after the wait. */
static tu_status find_waits(const tu__unit *unit, tu__partition *part, const marks *m) {
    size_t most = 0;
    for (uint32_t i = 0; i < part->node_count; i++) most += unit->graph->nodes[part->nodes[i]]->after_count;
    part->waits = tu__alloc_array(most, sizeof *part->waits, "a part");
    if (!part->waits) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < part->node_count; i++) {
        const tu__node *node = unit->graph->nodes[part->nodes[i]];
        for (uint32_t k = 0; k < node->after_count; k++)
            if (is_op(unit->graph->nodes[node->after[k]], TU__OP_COPY))
                part->waits[part->wait_count++] =
                    (tu__wait){.buffer = tu__partition_buffer(part, (tu__edge){node->after[k], 0}),
                               .before = first_at_level(part, m->level, m->node_level[node->id])};
    }
    return TU_OK;
}

/* ---- Collectives ---- */

/* Returns the position in the order from which on a value is available: after the kernel that writes it, or, if the
 * engine provides it, at the first kernel of its level. */
static uint32_t made_at(const tu__unit *unit, const tu__partition *part, const marks *m,
                        const uint32_t *written, uint32_t buffer) {
    if (written[buffer]) return written[buffer];
    uint32_t node = part->plan->buffers[buffer].value.node;
    return is_leaf(unit->graph->nodes[node]) ? first_at_level(part, m->level, m->node_level[node]) : 0;
}

/* Sets the positions at which the partition posts its values, and at which its collectives run: before the first
 * kernel of their level, and before variables change. */
static void time_collectives(const tu__unit *unit, tu__partition *part, const marks *m,
                             const uint32_t *written) {
    uint32_t computing = part->plan->kernel_count - part->update_kernels;
    for (uint32_t i = 0; i < part->collective_count; i++) {
        const tu__collective *collective = part->collectives[i].collective;
        tu__member *a = &collective->members[part->collectives[i].rank];
        a->held = first_at_level(part, m->level, collective->level);
        if (a->held > computing) a->held = computing;
        for (uint32_t v = 0; v < collective->value_count; v++) {
            uint32_t made = made_at(unit, part, m, written, a->in[v]);
            if (made > a->ready) a->ready = made < a->held ? made : a->held;
        }
    }
}

/* True if a sum may overwrite its input: a kernel writes the input in every run, and nothing else reads it. */
static bool may_take_over(const marks *m, const uint32_t *written, uint32_t in) {
    return written[in] && m->met[in] == 1 && !m->read[in] && !m->leaves[in] && !m->fetched[in] &&
           !m->assigned[in];
}

static tu_status plan_collectives(const tu__unit *unit, tu__partition *part, const marks *m, tu__arena *arena,
                                  tu__memory_request *request) {
    const tu_plan *plan = part->plan;
    size_t values = 0;
    for (uint32_t i = 0; i < part->collective_count; i++)
        values += part->collectives[i].collective->value_count;
    if (!values) return TU_OK;
    tu__sum *sums = tu__arena_alloc(arena, values * sizeof *sums);
    uint32_t *written =
        tu__arena_alloc(arena, plan->buffer_count * sizeof *written); /* position + 1; 0: never */
    if (!sums || !written) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < plan->kernel_count; i++) {
        const tu_kernel *k = &plan->kernels[part->order[i]];
        for (uint32_t w = 0; w < k->write_count; w++) written[k->writes[w]] = i + 1;
    }
    time_collectives(unit, part, m, written);
    for (uint32_t i = 0; i < part->collective_count; i++) {
        const tu__collective *collective = part->collectives[i].collective;
        const tu__member *a = &collective->members[part->collectives[i].rank];
        for (uint32_t v = 0; v < collective->value_count; v++)
            sums[request->sum_count++] = (tu__sum){.in = a->in[v],
                                                   .out = a->out[v],
                                                   .ready = a->ready,
                                                   .held = a->held,
                                                   .in_place = may_take_over(m, written, a->in[v])};
    }
    request->sums = sums;
    return TU_OK;
}

/* True if the device may run kernels in parallel. With a memory limit, the memory is needed elsewhere. */
static bool runs_kernels_together(const tu__partition *part) {
    const tu__device *device = part->device;
    return device->api->event_synchronize && device->options.streams != 1 && !part->memory_limit;
}

static tu_status order_and_place(const tu__unit *unit, tu__partition *parts, size_t count, size_t index,
                                 tu__arena *arena, marks *m) {
    tu__partition *part = &parts[index];
    mark_readers(unit, parts, count, index, m);
    mark_update_kernels(part->plan, m);
    mark_senders(part->plan, m);
    kernel_levels(part->plan, m->node_level, m->level);
    mark_receives(part, m);
    tu__schedule_request kernels = {
        .plan = part->plan, .level = m->level, .sends = m->sends, .last = m->last, .made = m->made};
    TU_TRY(tu__schedule(&kernels, part->order, &part->update_kernels));
    TU_TRY(find_waits(unit, part, m));
    mark_buffers(unit, part, m);
    tu__memory_request request = {.plan = part->plan,
                                  .order = part->order,
                                  .outside = m->outside,
                                  .from_start = m->from_start,
                                  .to_end = m->to_end,
                                  .becomes = m->becomes,
                                  .update_kernels = part->update_kernels,
                                  .keep_apart = runs_kernels_together(part)};
    TU_TRY(plan_collectives(unit, part, m, arena, &request));
    TU_TRY(tu__plan_memory(&request, &part->memory));
    /* If several variables get one value, only one has it in place. */
    for (uint32_t i = 0; i < part->update_count; i++) {
        tu__update *u = &part->updates[i];
        uint32_t at = part->memory.same_as[u->buffer];
        u->in_place = at != TU_NO_NODE && at == tu__partition_buffer(part, (tu__edge){u->variable, 0});
    }
    return TU_OK;
}

static tu_status order_part(const tu__unit *unit, const uint32_t *levels, tu__partition *parts, size_t count,
                            size_t index) {
    tu__partition *part = &parts[index];
    size_t buffers = part->plan->buffer_count, kernels = part->plan->kernel_count;
    part->order = tu__alloc_array(kernels, sizeof *part->order, "a part");
    part->addresses = tu__alloc_array(buffers, sizeof *part->addresses, "a part");
    part->workspaces = tu__alloc_array(kernels, sizeof *part->workspaces, "a part");
    tu__arena arena = {.purpose = "a part"};
    marks m = {.node_level = levels,
               .level = tu__arena_alloc(&arena, kernels * sizeof *m.level),
               .last = tu__arena_alloc(&arena, kernels),
               .sends = tu__arena_alloc(&arena, kernels),
               .read = tu__arena_alloc(&arena, buffers),
               .assigned = tu__arena_alloc(&arena, buffers),
               .leaves = tu__arena_alloc(&arena, buffers),
               .fetched = tu__arena_alloc(&arena, buffers),
               .met = tu__arena_alloc(&arena, buffers * sizeof *m.met),
               .made = tu__arena_alloc(&arena, buffers * sizeof *m.made),
               .outside = tu__arena_alloc(&arena, buffers),
               .from_start = tu__arena_alloc(&arena, buffers),
               .to_end = tu__arena_alloc(&arena, buffers),
               .becomes = tu__arena_alloc(&arena, buffers * sizeof *m.becomes)};
    bool ready = part->order && part->addresses && part->workspaces && m.level && m.last && m.sends &&
                 m.read && m.assigned && m.leaves && m.fetched && m.met && m.made && m.outside &&
                 m.from_start && m.to_end && m.becomes;
    tu_status status = ready ? order_and_place(unit, parts, count, index, &arena, &m) : TU_NO_MEMORY;
    tu__arena_free(&arena);
    return status;
}

/* ---- Building ---- */

static tu_status build_parts(const tu__unit *unit, const uint32_t *levels, size_t count, tu__device **devices,
                             tu__partition *parts, tu__collectives *collectives, uint32_t *event_count) {
    for (size_t i = 0; i < count; i++) parts[i].device = devices[i];
    TU_TRY(deal(unit, count, parts));
    for (size_t i = 0; i < count; i++) TU_TRY(select_part(unit, levels, &parts[i]));
    for (size_t i = 0; i < count; i++) find_leaves(unit, &parts[i]);
    for (size_t i = 0; i < count; i++) TU_TRY(find_receives(unit, parts, i, event_count));
    TU_TRY(tu__partitions_enable_peer_access(collectives, parts, count));
    TU_TRY(tu__collectives_locate(collectives, unit->graph, parts, count, event_count));
    find_updates(unit, parts);
    for (size_t i = 0; i < count; i++) TU_TRY(order_part(unit, levels, parts, count, i));
    tu__find_idle_partitions(parts, count);
    for (size_t i = 0; i < count; i++) TU_TRY(tu__write_steps(parts, count, i));
    for (size_t i = 0; i < count; i++) TU_TRY(tu__list_moves(parts, (uint32_t)i));
    tu__find_early_receives(parts, count);
    return TU_OK;
}

tu_status tu__partitions_build(const tu__unit *unit, size_t count, tu__device **devices, tu__partition *parts,
                               tu__collectives *collectives, uint32_t *event_count) {
    *event_count = 0;
    uint32_t *levels = NULL;
    TU_TRY(tu__collectives_find(unit, collectives));
    tu_status status = tu__find_levels(unit->graph, collectives, &levels);
    if (status == TU_OK) status = build_parts(unit, levels, count, devices, parts, collectives, event_count);
    tu__free(levels);
    return status;
}

void tu__partitions_free(size_t count, tu__partition *parts) {
    for (size_t i = 0; i < count; i++) {
        tu__partition *p = &parts[i];
        if (p->plan) p->device->api->plan_free(p->device->instance, p->plan);
        for (uint32_t k = 0; k < p->receive_count; k++) {
            const tu__receive *a = &p->receives[k];
            const tu__device *from = parts[a->source_part].device, *mover = parts[a->mover].device;
            if (a->ready) from->api->event_free(from->instance, a->ready);
            if (a->landed) mover->api->event_free(mover->instance, a->landed);
        }
        if (p->constants) p->device->api->release(p->device->instance, p->constants);
        for (uint32_t k = 0; k < p->update_count; k++)
            if (p->updates[k].staging) p->device->api->release(p->device->instance, p->updates[k].staging);
        tu__memory_plan_free(&p->memory);
        tu__free(p->nodes);
        tu__free(p->exports);
        tu__free(p->slot);
        tu__free(p->buffer_of);
        tu__free(p->order);
        tu__free(p->leaves);
        tu__free(p->receives);
        tu__free(p->moves);
        tu__free(p->updates);
        tu__free(p->waits);
        tu__free(p->collectives);
        tu__free(p->steps);
        tu__free(p->addresses);
        tu__free(p->workspaces);
    }
}
