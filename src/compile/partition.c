/* Builds one partition per device from a graph with placed nodes: which nodes it computes, which values it receives
 * and sends, in which order its kernels run, and where their buffers are.
 *
 * Everything here runs in time linear in nodes, edges and buffers, because networks of thousands of layers must
 * compile too: properties of values and buffers are collected into tables by one pass, never searched for. */
#include "compile/partition.h"

#include <string.h>

#include "base/alloc.h"
#include "compile/collectives.h"
#include "compile/schedule.h"
#include "compile/squared_norms.h"
#include "device/kit/plan_check.h"

uint32_t tu__partition_of(const tu__unit *unit, uint32_t node) {
    const char *device = unit->graph->nodes[node]->device;
    for (size_t i = 0; device && i < unit->device_count; i++)
        if (strcmp(device, unit->devices[i]) == 0) return (uint32_t)i;
    return 0;
}

uint32_t tu__partition_buffer(const tu__partition *partition, tu__edge value) {
    return partition->buffer_of[partition->first_output[value.node] + value.output];
}

bool tu__update_needs_staging(const tu__partition *partition, const tu__update *update) {
    return !update->in_place && partition->memory.storage[update->buffer] == TU__STORAGE_EXTERNAL;
}

static bool is_op(const tu__node *node, tu__opcode op) {
    return node->op->code == op;
}

/* True if the engine provides the value, not a kernel. */
static bool is_leaf(const tu__node *node) {
    return (node->op->traits & (TU__LEAF | TU__COLLECTIVE)) || is_op(node, TU__OP_COPY);
}

/* ---- Nodes and exports ---- */

/* In `buffer_of`, before the device has selected kernels: the value is an export already. */
enum { EXPORTED = 1 };

static void add_export(tu__partition *partition, tu__edge value) {
    uint32_t *mark = &partition->buffer_of[partition->first_output[value.node] + value.output];
    if (*mark != EXPORTED) partition->exports[partition->export_count++] = value;
    *mark = EXPORTED;
}

/* Allocates the lists and the table of values. */
static tu_status allocate_partition(const tu_graph *g, tu__partition *partition, size_t exports) {
    size_t nodes = g->node_count, outputs = 0;
    partition->nodes = tu__alloc_array(nodes, sizeof *partition->nodes, "a partition");
    partition->exports = tu__alloc_array(exports, sizeof *partition->exports, "a partition");
    partition->leaves = tu__alloc_array(nodes, sizeof *partition->leaves, "a partition");
    partition->receives = tu__alloc_array(nodes, sizeof *partition->receives, "a partition");
    partition->updates = tu__alloc_array(nodes, sizeof *partition->updates, "a partition");
    partition->first_output = tu__alloc_array(nodes, sizeof *partition->first_output, "a partition");
    if (!partition->nodes || !partition->exports || !partition->leaves || !partition->receives ||
        !partition->updates || !partition->first_output)
        return TU_NO_MEMORY;
    for (size_t i = 0; i < nodes; i++) {
        partition->first_output[i] = (uint32_t)outputs;
        outputs += g->nodes[i]->output_count;
    }
    partition->output_count = (uint32_t)outputs;
    partition->buffer_of = tu__alloc_array(outputs, sizeof *partition->buffer_of, "a partition");
    return partition->buffer_of ? TU_OK : TU_NO_MEMORY;
}

/* Marks the nodes of which something uses a value. */
static void mark_used(const tu__unit *unit, bool *used) {
    for (uint32_t id = 0; id < unit->graph->node_count; id++) {
        const tu__node *node = unit->graph->nodes[id];
        for (uint32_t i = 0; i < node->input_count; i++) used[node->inputs[i].node] = true;
        for (uint32_t i = 0; i < node->after_count; i++) used[node->after[i]] = true;
    }
    for (size_t i = 0; i < unit->fetch_count; i++) used[unit->fetch[i].node] = true;
    for (size_t i = 0; i < unit->kept_count; i++) used[unit->kept[i].node] = true;
}

/* Both the value and the result of a collective need a buffer, even if no kernel reads them. */
static void export_collective(const tu__unit *unit, const tu__node *node, bool is_used,
                              tu__partition *partition) {
    bool spans_processes = unit->replication.process_count > 0;
    if (tu__collective_needs_value(node, spans_processes)) add_export(partition, node->inputs[0]);
    if (tu__collective_needs_result(node, spans_processes, is_used))
        add_export(partition, (tu__edge){node->id, 0});
}

/* Assigns the graph's nodes and exports to the partitions. */
static tu_status assign_nodes(const tu__unit *unit, size_t count, tu__partition *partitions, bool *used) {
    const tu_graph *g = unit->graph;
    for (size_t i = 0; i < count; i++)
        TU_TRY(allocate_partition(g, &partitions[i],
                                  2 * (size_t)g->node_count + unit->fetch_count + unit->kept_count));
    mark_used(unit, used);
    for (uint32_t id = 0; id < g->node_count; id++) {
        const tu__node *node = g->nodes[id];
        tu__partition *partition = &partitions[tu__partition_of(unit, id)];
        if (is_op(node, TU__OP_ASSIGN)) {
            add_export(partition, node->inputs[1]);
        } else if (is_op(node, TU__OP_COPY)) {
            add_export(&partitions[tu__partition_of(unit, node->inputs[0].node)], node->inputs[0]);
        } else if (node->op->traits & TU__COLLECTIVE) {
            export_collective(unit, node, used[id], partition);
        } else if (!is_leaf(node)) {
            partition->nodes[partition->node_count++] = id;
        }
        /* A node with a control dependency on it needs its buffer. */
        for (uint32_t i = 0; i < node->after_count; i++)
            add_export(&partitions[tu__partition_of(unit, node->after[i])], (tu__edge){node->after[i], 0});
    }
    for (size_t i = 0; i < unit->fetch_count; i++) {
        const tu__node *node = g->nodes[unit->fetch[i].node];
        tu__edge value = is_op(node, TU__OP_ASSIGN) ? node->inputs[1] : unit->fetch[i];
        add_export(&partitions[tu__partition_of(unit, value.node)], value);
    }
    for (size_t i = 0; i < unit->kept_count; i++)
        add_export(&partitions[tu__partition_of(unit, unit->kept[i].node)], unit->kept[i]);
    return TU_OK;
}

/* Fills `buffer_of`. The plan is verified, so a value has at most one dense buffer. */
static void index_buffers(tu__partition *partition) {
    for (uint32_t i = 0; i < partition->output_count; i++) partition->buffer_of[i] = TU_NO_NODE;
    for (uint32_t b = 0; b < partition->plan->buffer_count; b++) {
        const tu_buffer *buffer = &partition->plan->buffers[b];
        if (buffer->dense && buffer->value.node != TU_NO_NODE)
            partition->buffer_of[partition->first_output[buffer->value.node] + buffer->value.output] = b;
    }
}

static tu_status select_kernels(const tu__unit *unit, const uint32_t *levels, tu__partition *partition) {
    tu_partition view = {.struct_size = sizeof view,
                         .graph = unit->graph,
                         .node_count = partition->node_count,
                         .nodes = partition->nodes,
                         .export_count = partition->export_count,
                         .exports = partition->exports,
                         .levels = levels,
                         .tf32 = unit->precision == TU__PRECISION_TF32};
    tu__arena arena = {.purpose = "a partition"};
    tu_status status = tu__find_squared_norms(&view, &arena);
    if (status == TU_OK)
        status = partition->device->api->lower(partition->device->instance, &view, &partition->plan);
    tu__arena_free(&arena);
    TU_TRY(status);
    TU_TRY(tu__plan_check(partition->device->name, &view, partition->plan));
    index_buffers(partition);
    return TU_OK;
}

/* ---- Leaves, receives, updates ---- */

/* Lists the buffers that contain a leaf's value. */
static void find_leaves(const tu__unit *unit, tu__partition *partition) {
    for (uint32_t b = 0; b < partition->plan->buffer_count; b++) {
        uint32_t node = partition->plan->buffers[b].value.node;
        if (node == TU_NO_NODE || !partition->plan->buffers[b].dense || !is_leaf(unit->graph->nodes[node]))
            continue;
        partition->leaves[partition->leaf_count++] = (tu__leaf){.node = node, .buffer = b};
    }
}

/* True if the value exists before a run, in memory that the program does not reuse. */
static bool is_persistent(const tu__node *node) {
    return is_op(node, TU__OP_VARIABLE) || is_op(node, TU__OP_CONSTANT);
}

/* Returns the partition whose thread performs a copy: the destination, except for copies from a GPU to the host. One
 * host thread would fetch from several GPUs one after another and wait for the slowest. So each GPU sends its own
 * values, all in parallel, in the order in which it produces them. */
static uint32_t choose_copying_partition(const tu__partition *partitions, uint32_t from, uint32_t to) {
    bool is_download = partitions[to].device->api->host_memory && !partitions[from].device->api->host_memory;
    return is_download ? from : to;
}

static tu_status find_receives(const tu__unit *unit, tu__partition *partitions, size_t index) {
    tu__partition *partition = &partitions[index];
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        const tu__node *node = unit->graph->nodes[partition->leaves[i].node];
        if (!is_op(node, TU__OP_COPY)) continue;
        tu__edge source = node->inputs[0];
        uint32_t from = tu__partition_of(unit, source.node);
        partition->receives[partition->receive_count++] =
            (tu__receive){.node = node->id,
                          .source = source,
                          .source_partition = from,
                          .partition = (uint32_t)index,
                          .copied_by = choose_copying_partition(partitions, from, (uint32_t)index),
                          .buffer = partition->leaves[i].buffer,
                          .source_buffer = tu__partition_buffer(&partitions[from], source),
                          .is_persistent = is_persistent(unit->graph->nodes[source.node])};
    }
    return TU_OK;
}

static void find_updates(const tu__unit *unit, tu__partition *partitions) {
    const tu_graph *g = unit->graph;
    for (uint32_t id = 0; id < g->node_count; id++) {
        const tu__node *node = g->nodes[id];
        if (!is_op(node, TU__OP_ASSIGN)) continue;
        tu__partition *partition = &partitions[tu__partition_of(unit, id)];
        partition->updates[partition->update_count++] =
            (tu__update){.variable = node->inputs[0].node,
                         .assign = id,
                         .buffer = tu__partition_buffer(partition, node->inputs[1])};
    }
}

/* ---- Order and memory ---- */

/* Properties of kernels and buffers, used while they are ordered and placed in memory. */
typedef struct marks {
    const uint32_t *node_level; /* per node of the graph */
    uint32_t *level;            /* per kernel */
    bool *runs_last;            /* per kernel: it runs after the barrier */
    bool *sends;                /* per kernel: another device waits for its output */
    /* Per buffer: */
    bool *read;     /* by a kernel */
    bool *assigned; /* is the next value of a variable */
    bool *sent;     /* another partition reads it during the run */
    bool *fetched;  /* the user reads it after the last kernel; or would, if it belongs to a mirror */
    uint32_t *collective_uses; /* number of uses as input or output of a collective */
    /* 1 + the id of the node that produces it, if it is received from another device; 0: it is not received. */
    uint32_t *producer_order;
    bool *is_external, *is_written_before_run, *is_read_after_run;
    uint32_t *assigned_to;
} marks;

static void mark_fetched(const tu__unit *unit, const tu__partition *partition, size_t index, size_t count,
                         const tu__edge *edges, marks *m) {
    for (size_t i = 0; i < count; i++) {
        if (tu__partition_of(unit, edges[i].node) != index) continue;
        uint32_t b = tu__partition_buffer(partition, edges[i]);
        if (b != TU_NO_NODE) m->fetched[b] = true; /* the value of an assignment has no buffer yet */
    }
}

/* Marks the buffers that are read, in one pass over kernels, updates, receives, collectives and fetches. */
static void mark_readers(const tu__unit *unit, const tu__partition *partitions, size_t count, size_t index,
                         marks *m) {
    const tu__partition *partition = &partitions[index];
    for (uint32_t k = 0; k < partition->plan->kernel_count; k++) {
        const tu_kernel *kernel = &partition->plan->kernels[k];
        for (uint32_t r = 0; r < kernel->read_count; r++) m->read[kernel->reads[r]] = true;
    }
    for (uint32_t i = 0; i < partition->update_count; i++) m->assigned[partition->updates[i].buffer] = true;
    for (size_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < partitions[p].receive_count; i++)
            if (partitions[p].receives[i].source_partition == index)
                m->sent[partitions[p].receives[i].source_buffer] = true;
    for (uint32_t i = 0; i < partition->collective_count; i++) {
        const tu__collective *collective = partition->collectives[i].collective;
        const tu__member *member = &collective->members[partition->collectives[i].rank];
        for (uint32_t v = 0; v < collective->value_count; v++)
            m->collective_uses[member->in[v]]++, m->collective_uses[member->out[v]]++;
    }
    /* A kernel that a control dependency names is not an update kernel, which run last. */
    for (uint32_t i = 0; i < partition->node_count; i++) {
        const tu__node *node = unit->graph->nodes[partition->nodes[i]];
        for (uint32_t k = 0; k < node->after_count; k++)
            m->read[tu__partition_buffer(partition, (tu__edge){node->after[k], 0})] = true;
    }
    mark_fetched(unit, partition, index, unit->fetch_count, unit->fetch, m);
    mark_fetched(unit, partition, index, unit->kept_count, unit->kept, m);
}

/* True if the kernel writes only next values of variables that nothing else reads, and perhaps values that the user
 * fetches. Such kernels run last, after the barrier, so that a run that fails leaves the state unchanged. */
static bool is_update_kernel(const tu_kernel *kernel, const marks *m) {
    bool updates = false;
    for (uint32_t w = 0; w < kernel->write_count; w++) {
        uint32_t b = kernel->writes[w];
        bool is_assigned_or_fetched = m->assigned[b] != m->fetched[b];
        if (m->read[b] || m->sent[b] || m->collective_uses[b] || !is_assigned_or_fetched) return false;
        updates = updates || m->assigned[b];
    }
    return updates;
}

static void mark_update_kernels(const tu_plan *plan, marks *m) {
    for (uint32_t k = 0; k < plan->kernel_count; k++)
        m->runs_last[k] = is_update_kernel(&plan->kernels[k], m);
}

/* Marks the kernels whose output another device waits for. */
static void mark_senders(const tu_plan *plan, const marks *m) {
    for (uint32_t k = 0; k < plan->kernel_count; k++)
        for (uint32_t w = 0; w < plan->kernels[k].write_count; w++) {
            uint32_t b = plan->kernels[k].writes[w];
            if (m->sent[b] || m->collective_uses[b]) m->sends[k] = true;
        }
}

/* Sets the producer order of the received buffers. Devices compute in the order of node ids as far as possible, so
 * this is the order in which they send. */
static void mark_receives(const tu__partition *partition, const marks *m) {
    for (uint32_t i = 0; i < partition->receive_count; i++)
        m->producer_order[partition->receives[i].buffer] = partition->receives[i].source.node + 1;
}

static void find_kernel_levels(const tu_plan *plan, const uint32_t *node_level, uint32_t *level) {
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
    return m->sent[buffer] ? !m->is_external[buffer] : !m->collective_uses[buffer];
}

static void mark_buffers(const tu__unit *unit, const tu__partition *partition, marks *m) {
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        const tu__node *node = unit->graph->nodes[partition->leaves[i].node];
        uint32_t b = partition->leaves[i].buffer;
        m->is_external[b] = is_persistent(node);
        m->is_written_before_run[b] = !m->is_external[b] && !(node->op->traits & TU__COLLECTIVE);
    }
    for (uint32_t b = 0; b < partition->plan->buffer_count; b++) m->assigned_to[b] = TU_NO_NODE;
    for (uint32_t i = 0; i < partition->export_count; i++) {
        uint32_t b = tu__partition_buffer(partition, partition->exports[i]);
        m->is_read_after_run[b] = is_read_at_end(m, b);
    }
    for (uint32_t i = 0; i < partition->update_count; i++) {
        const tu__update *u = &partition->updates[i];
        uint32_t target = tu__partition_buffer(partition, (tu__edge){u->variable, 0});
        /* If several variables get one value, the first shares the value's memory, as devices assume. */
        if (target != TU_NO_NODE && !m->fetched[target] && m->assigned_to[u->buffer] == TU_NO_NODE)
            m->assigned_to[u->buffer] = target;
    }
}

/* Returns the first position in the order whose kernel may compute a node of this level or one that depends on it. */
static uint32_t first_position_at_level(const tu__partition *partition, const uint32_t *kernel_level,
                                        uint32_t level) {
    uint32_t position = 0;
    while (position < partition->plan->kernel_count && kernel_level[partition->order[position]] < level)
        position++;
    return position;
}

/* Finds control dependencies on receives. A node may be computed inside the kernel of another one, or be a view, so
 * its level, not the node itself, decides which kernels come after the wait. */
static tu_status find_waits(const tu__unit *unit, tu__partition *partition, const marks *m) {
    size_t max_waits = 0;
    for (uint32_t i = 0; i < partition->node_count; i++)
        max_waits += unit->graph->nodes[partition->nodes[i]]->after_count;
    partition->waits = tu__alloc_array(max_waits, sizeof *partition->waits, "a partition");
    if (!partition->waits) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < partition->node_count; i++) {
        const tu__node *node = unit->graph->nodes[partition->nodes[i]];
        for (uint32_t k = 0; k < node->after_count; k++)
            if (is_op(unit->graph->nodes[node->after[k]], TU__OP_COPY))
                partition->waits[partition->wait_count++] = (tu__wait){
                    .buffer = tu__partition_buffer(partition, (tu__edge){node->after[k], 0}),
                    .position = first_position_at_level(partition, m->level, m->node_level[node->id])};
    }
    return TU_OK;
}

/* ---- Collectives ---- */

/* Returns the position in the order from which on a value is available: after the kernel that writes it, or, if the
 * engine provides it, at the first kernel of its level. */
static uint32_t available_position(const tu__unit *unit, const tu__partition *partition, const marks *m,
                                   const uint32_t *written, uint32_t buffer) {
    if (written[buffer]) return written[buffer];
    uint32_t node = partition->plan->buffers[buffer].value.node;
    return is_leaf(unit->graph->nodes[node])
               ? first_position_at_level(partition, m->level, m->node_level[node])
               : 0;
}

/* Sets the positions at which the partition posts its values, and at which its collectives run: before the first
 * kernel of their level, and before variables change. */
static void set_collective_positions(const tu__unit *unit, tu__partition *partition, const marks *m,
                                     const uint32_t *written) {
    uint32_t compute_kernel_count = partition->plan->kernel_count - partition->update_kernel_count;
    for (uint32_t i = 0; i < partition->collective_count; i++) {
        const tu__collective *collective = partition->collectives[i].collective;
        tu__member *member = &collective->members[partition->collectives[i].rank];
        member->wait_position = first_position_at_level(partition, m->level, collective->level);
        if (member->wait_position > compute_kernel_count) member->wait_position = compute_kernel_count;
        for (uint32_t v = 0; v < collective->value_count; v++) {
            if (!tu__collective_reads(collective, partition->collectives[i].rank, v)) continue;
            uint32_t available = available_position(unit, partition, m, written, member->in[v]);
            if (available > member->post_position)
                member->post_position = available < member->wait_position ? available : member->wait_position;
        }
    }
}

/* True if a result may overwrite its input: a kernel writes the input in every run, and nothing else reads it. The
 * input and the result of other collectives have different sizes, and ranks read rows that another rank has written. */
static bool can_compute_in_place(tu__collective_kind kind, const marks *m, const uint32_t *written,
                                 uint32_t in) {
    return tu__collective_may_be_in_place(kind) && written[in] && m->collective_uses[in] == 1 &&
           !m->read[in] && !m->sent[in] && !m->fetched[in] && !m->assigned[in];
}

static tu_status plan_collectives(const tu__unit *unit, tu__partition *partition, const marks *m,
                                  tu__arena *arena, tu__memory_request *request) {
    const tu_plan *plan = partition->plan;
    size_t values = 0;
    for (uint32_t i = 0; i < partition->collective_count; i++)
        values += partition->collectives[i].collective->value_count;
    if (!values) return TU_OK;
    tu__collective_value *exchanged = tu__arena_alloc(arena, values * sizeof *exchanged);
    uint32_t *written =
        tu__arena_alloc(arena, plan->buffer_count * sizeof *written); /* position + 1; 0: never */
    if (!exchanged || !written) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < plan->kernel_count; i++) {
        const tu_kernel *k = &plan->kernels[partition->order[i]];
        for (uint32_t w = 0; w < k->write_count; w++) written[k->writes[w]] = i + 1;
    }
    set_collective_positions(unit, partition, m, written);
    for (uint32_t i = 0; i < partition->collective_count; i++) {
        const tu__collective *collective = partition->collectives[i].collective;
        const tu__member *member = &collective->members[partition->collectives[i].rank];
        for (uint32_t v = 0; v < collective->value_count; v++)
            exchanged[request->collective_value_count++] = (tu__collective_value){
                .in = member->in[v],
                .out = member->out[v],
                .post_position = member->post_position,
                .wait_position = member->wait_position,
                .has_no_result = !tu__collective_writes(collective, partition->collectives[i].rank, v),
                .in_place = can_compute_in_place(collective->kind, m, written, member->in[v])};
    }
    request->collective_values = exchanged;
    return TU_OK;
}

/* True if the device may run kernels in parallel. With a memory limit, the memory is needed elsewhere. */
static bool may_run_kernels_in_parallel(const tu__partition *partition) {
    const tu__device *device = partition->device;
    return device->api->parallel && device->options.streams != 1 && !partition->memory_limit;
}

static tu_status order_and_plan_memory(const tu__unit *unit, tu__partition *partitions, size_t count,
                                       size_t index, tu__arena *arena, marks *m) {
    tu__partition *partition = &partitions[index];
    mark_readers(unit, partitions, count, index, m);
    mark_update_kernels(partition->plan, m);
    mark_senders(partition->plan, m);
    find_kernel_levels(partition->plan, m->node_level, m->level);
    mark_receives(partition, m);
    tu__schedule_request kernels = {.plan = partition->plan,
                                    .level = m->level,
                                    .sends = m->sends,
                                    .runs_last = m->runs_last,
                                    .producer_order = m->producer_order};
    TU_TRY(tu__schedule(&kernels, partition->order, &partition->update_kernel_count));
    TU_TRY(find_waits(unit, partition, m));
    mark_buffers(unit, partition, m);
    tu__memory_request request = {.plan = partition->plan,
                                  .order = partition->order,
                                  .is_external = m->is_external,
                                  .is_written_before_run = m->is_written_before_run,
                                  .is_read_after_run = m->is_read_after_run,
                                  .assigned_to = m->assigned_to,
                                  .update_kernel_count = partition->update_kernel_count,
                                  .separate_small = may_run_kernels_in_parallel(partition)};
    TU_TRY(plan_collectives(unit, partition, m, arena, &request));
    TU_TRY(tu__plan_memory(&request, &partition->memory));
    /* If several variables get one value, only one has it in place. */
    for (uint32_t i = 0; i < partition->update_count; i++) {
        tu__update *u = &partition->updates[i];
        uint32_t alias = partition->memory.alias_of[u->buffer];
        u->in_place =
            alias != TU_NO_NODE && alias == tu__partition_buffer(partition, (tu__edge){u->variable, 0});
    }
    return TU_OK;
}

static tu_status order_partition(const tu__unit *unit, const uint32_t *levels, tu__partition *partitions,
                                 size_t count, size_t index) {
    tu__partition *partition = &partitions[index];
    size_t buffers = partition->plan->buffer_count, kernels = partition->plan->kernel_count;
    partition->order = tu__alloc_array(kernels, sizeof *partition->order, "a partition");
    tu__arena arena = {.purpose = "a partition"};
    marks m = {.node_level = levels,
               .level = tu__arena_alloc(&arena, kernels * sizeof *m.level),
               .runs_last = tu__arena_alloc(&arena, kernels),
               .sends = tu__arena_alloc(&arena, kernels),
               .read = tu__arena_alloc(&arena, buffers),
               .assigned = tu__arena_alloc(&arena, buffers),
               .sent = tu__arena_alloc(&arena, buffers),
               .fetched = tu__arena_alloc(&arena, buffers),
               .collective_uses = tu__arena_alloc(&arena, buffers * sizeof *m.collective_uses),
               .producer_order = tu__arena_alloc(&arena, buffers * sizeof *m.producer_order),
               .is_external = tu__arena_alloc(&arena, buffers),
               .is_written_before_run = tu__arena_alloc(&arena, buffers),
               .is_read_after_run = tu__arena_alloc(&arena, buffers),
               .assigned_to = tu__arena_alloc(&arena, buffers * sizeof *m.assigned_to)};
    bool allocated = partition->order && m.level && m.runs_last && m.sends && m.read && m.assigned &&
                     m.sent && m.fetched && m.collective_uses && m.producer_order && m.is_external &&
                     m.is_written_before_run && m.is_read_after_run && m.assigned_to;
    tu_status status =
        allocated ? order_and_plan_memory(unit, partitions, count, index, &arena, &m) : TU_NO_MEMORY;
    tu__arena_free(&arena);
    return status;
}

/* ---- Building ---- */

static tu_status build_partitions(const tu__unit *unit, const uint32_t *levels, size_t count,
                                  tu__device **devices, tu__partition *partitions,
                                  tu__collectives *collectives) {
    for (size_t i = 0; i < count; i++) partitions[i].device = devices[i];
    bool *used = tu__alloc_array((size_t)unit->graph->node_count + 1, sizeof *used, "a partition");
    tu_status status = used ? assign_nodes(unit, count, partitions, used) : TU_NO_MEMORY;
    tu__free(used);
    TU_TRY(status);
    for (size_t i = 0; i < count; i++) TU_TRY(select_kernels(unit, levels, &partitions[i]));
    for (size_t i = 0; i < count; i++) find_leaves(unit, &partitions[i]);
    for (size_t i = 0; i < count; i++) TU_TRY(find_receives(unit, partitions, i));
    TU_TRY(tu__partitions_enable_peer_access(collectives, partitions, count));
    TU_TRY(tu__collectives_assign_buffers(collectives, unit->graph, partitions, count));
    find_updates(unit, partitions);
    for (size_t i = 0; i < count; i++) TU_TRY(order_partition(unit, levels, partitions, count, i));
    return TU_OK;
}

tu_status tu__partitions_build(const tu__unit *unit, size_t count, tu__device **devices,
                               tu__partition *partitions, tu__collectives *collectives) {
    uint32_t *levels = NULL;
    TU_TRY(tu__collectives_find(unit, collectives));
    tu_status status = tu__find_levels(unit->graph, collectives, &levels);
    if (status == TU_OK) status = build_partitions(unit, levels, count, devices, partitions, collectives);
    tu__free(levels);
    return status;
}

void tu__partitions_free(size_t count, tu__partition *partitions) {
    for (size_t i = 0; i < count; i++) {
        tu__partition *p = &partitions[i];
        if (p->plan) p->device->api->plan_free(p->device->instance, p->plan);
        tu__memory_plan_free(&p->memory);
        tu__free(p->nodes);
        tu__free(p->exports);
        tu__free(p->first_output);
        tu__free(p->buffer_of);
        tu__free(p->order);
        tu__free(p->leaves);
        tu__free(p->receives);
        tu__free(p->copies);
        tu__free(p->updates);
        tu__free(p->waits);
        tu__free(p->collectives);
    }
}
