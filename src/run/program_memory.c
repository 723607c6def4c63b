/* Reports a program's memory: totals, the contents at the peak, and the table of kernels.
 *
 * The totals are those of the memory plan. The items of the peak add up to them: the tensors and workspaces alive at
 * the peak, the gaps between them, variables and constants, and the device's overhead. memory_limit.c uses the same
 * numbers. */
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "run/execution.h"
#include "run/program_memory.h"

static bool is_read_as_leaf(const tu__partition *partition, uint32_t node) {
    for (uint32_t i = 0; i < partition->leaf_count; i++)
        if (partition->leaves[i].node == node) return true;
    return false;
}

static tu_status check_device(const tu_program *program, size_t index) {
    if (index < program->device_count) return TU_OK;
    return tu_fail(TU_NOT_FOUND,
                   "device index %zu is out of range: the program has %zu devices, counted from 0", index,
                   program->device_count);
}

/* ---- The items of the peak ---- */

/* The largest items so far, at most as many as the caller has room for. */
typedef struct peak_items {
    size_t capacity, count; /* count: number of all items */
    tu_memory_item *items;
} peak_items;

static void add_item(peak_items *list, tu_memory_item item) {
    size_t stored = list->count < list->capacity ? list->count : list->capacity, position = stored;
    list->count++;
    while (position > 0 && list->items[position - 1].bytes < item.bytes) {
        if (position < list->capacity) list->items[position] = list->items[position - 1];
        position--;
    }
    if (position < list->capacity) list->items[position] = item;
}

static void add_node(peak_items *list, tu_memory_kind kind, const tu__node *node, uint64_t bytes) {
    add_item(list, (tu_memory_item){0, kind, node->name, node->outputs[0], bytes});
}

/* Adds what is alive in scratch memory, and the gaps. */
static void add_scratch(peak_items *list, const tu_graph *g, const tu__partition *partition) {
    uint64_t gap_bytes = partition->memory.scratch_bytes;
    for (uint32_t i = 0; i < partition->memory.live_at_peak_count; i++) {
        const tu__live_block *r = &partition->memory.live_at_peak[i];
        tu_memory_item item = {0, TU_MEMORY_WORKSPACE, "", {0}, r->bytes};
        tu_edge value = {TU_NO_NODE, 0};
        if (r->buffer != TU_NO_NODE) value = partition->plan->buffers[r->buffer].value;
        if (r->buffer == TU_NO_NODE)
            item.name = partition->plan->kernels[r->kernel].name;
        else if (value.node != TU_NO_NODE)
            item = (tu_memory_item){0, TU_MEMORY_TENSOR, g->nodes[value.node]->name, tu_edge_type(g, value),
                                    r->bytes};
        add_item(list, item);
        gap_bytes -= r->bytes;
    }
    if (gap_bytes) add_item(list, (tu_memory_item){0, TU_MEMORY_GAP, "", {0}, gap_bytes});
}

/* Adds the variables that the partition reads or assigns, and the constants. */
static void add_leaves(peak_items *list, const tu_graph *g, const tu__partition *partition) {
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        const tu__node *node = g->nodes[partition->leaves[i].node];
        size_t bytes = partition->plan->buffers[partition->leaves[i].buffer].bytes;
        if (node->op->code == TU__OP_VARIABLE)
            add_node(list, TU_MEMORY_VARIABLE, node, tu_type_bytes(node->outputs[0]));
        else if (node->op->code == TU__OP_CONSTANT)
            add_node(list, TU_MEMORY_CONSTANT, node, (bytes + 63) & ~(size_t)63);
    }
    for (uint32_t i = 0; i < partition->update_count; i++) {
        const tu__node *node = g->nodes[partition->updates[i].variable];
        if (!is_read_as_leaf(partition, node->id))
            add_node(list, TU_MEMORY_VARIABLE, node, tu_type_bytes(node->outputs[0]));
        if (tu__update_needs_staging(partition, &partition->updates[i]))
            add_node(list, TU_MEMORY_WORKSPACE, node,
                     partition->plan->buffers[partition->updates[i].buffer].bytes);
    }
}

/* Returns the bytes of what the plan keeps, such as packed weights. Plans of older devices have no such field. */
static size_t resident_bytes(const tu__partition *partition) {
    const tu_plan *plan = partition->plan;
    size_t end = offsetof(tu_plan, resident_bytes) + sizeof plan->resident_bytes;
    return plan->struct_size >= end ? plan->resident_bytes : 0;
}

static uint64_t overhead_of(const tu__device *device) {
    tu_device_info info = TU_SIZED(tu_device_info);
    bool described =
        tu__device_describe(device->api, device->instance, device->options.index, &info) == TU_OK;
    return described ? info.overhead_bytes : 0;
}

static void add_all_items(peak_items *list, const tu_program *program, size_t index) {
    add_scratch(list, program->unit.graph, &program->partitions[index]);
    add_leaves(list, program->unit.graph, &program->partitions[index]);
    size_t resident = resident_bytes(&program->partitions[index]);
    if (resident) add_item(list, (tu_memory_item){0, TU_MEMORY_CONSTANT, "packed weights", {0}, resident});
    uint64_t overhead = overhead_of(program->devices[index]);
    if (overhead)
        add_item(list, (tu_memory_item){0, TU_MEMORY_OVERHEAD, "context and libraries", {0}, overhead});
}

size_t tu_program_peak_count(const tu_program *program, size_t index) {
    peak_items list = {0};
    if (index < program->device_count) add_all_items(&list, program, index);
    return list.count;
}

/* The distance between two of the caller's items is the struct_size of the first. */
tu_status tu_program_peak(const tu_program *program, size_t index, size_t capacity, tu_memory_item *items,
                          size_t *count) {
    *count = 0;
    TU_TRY(check_device(program, index));
    if (!capacity) return TU_OK;
    TU_TRY(TU__CHECK_SIZED(tu_memory_item, items));
    size_t stride = items->struct_size;
    peak_items list = {.capacity = capacity,
                       .items = tu__alloc_array(capacity, sizeof *items, "a memory report")};
    if (!list.items) return TU_NO_MEMORY;
    add_all_items(&list, program, index);
    *count = list.count < capacity ? list.count : capacity;
    for (size_t i = 0; i < *count; i++) {
        void *target = (char *)items + i * stride;
        memcpy(target, &stride, sizeof stride);
        TU__COPY_SIZED(target, list.items[i]);
    }
    tu__free(list.items);
    return TU_OK;
}

/* ---- Totals ---- */

/* Returns the bytes of the variables that the partition reads or assigns. */
static size_t variable_bytes(const tu_program *p, const tu__partition *partition) {
    const tu_graph *g = p->unit.graph;
    size_t bytes = 0;
    for (uint32_t i = 0; i < partition->leaf_count; i++)
        if (g->nodes[partition->leaves[i].node]->op->code == TU__OP_VARIABLE)
            bytes += tu_type_bytes(g->nodes[partition->leaves[i].node]->outputs[0]);
    for (uint32_t i = 0; i < partition->update_count; i++)
        if (!is_read_as_leaf(partition, partition->updates[i].variable))
            bytes += tu_type_bytes(g->nodes[partition->updates[i].variable]->outputs[0]);
    return bytes;
}

/* Returns the bytes of the constants that have shared data, or of those that do not. */
static size_t constant_leaf_bytes(const tu_program *p, const tu__partition *partition, bool is_shared) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        const tu__node *node = p->unit.graph->nodes[partition->leaves[i].node];
        if (node->op->code == TU__OP_CONSTANT && (node->shared != NULL) == is_shared)
            bytes += (partition->plan->buffers[partition->leaves[i].buffer].bytes + 63) & ~(size_t)63;
    }
    return bytes;
}

tu__program_bytes tu__program_bytes_of(const tu_program *program) {
    tu__program_bytes sum = {0, 0, 0};
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *partition = &program->partitions[i];
        sum.scratch += partition->memory.scratch_bytes;
        sum.own_constants += constant_leaf_bytes(program, partition, false);
        sum.shared_constants += constant_leaf_bytes(program, partition, true) + resident_bytes(partition);
    }
    return sum;
}

/* Returns the bytes of the constants, also as the plan keeps them, and of the staging buffers of updates. */
static size_t constant_bytes(const tu_program *p, const tu__partition *partition) {
    size_t bytes = constant_leaf_bytes(p, partition, false) + constant_leaf_bytes(p, partition, true) +
                   resident_bytes(partition);
    for (uint32_t i = 0; i < partition->update_count; i++)
        if (tu__update_needs_staging(partition, &partition->updates[i]))
            bytes += partition->plan->buffers[partition->updates[i].buffer].bytes;
    return bytes;
}

/* Returns the maximum bytes for the partition. Logical devices of a GPU get equal fractions of its memory; logical
 * CPU devices share host memory freely. */
static uint64_t limit_of(const tu__partition *partition) {
    if (partition->memory_limit) return partition->memory_limit;
    const tu__device *device = partition->device;
    tu_device_info info = TU_SIZED(tu_device_info);
    if (tu__device_describe(device->api, NULL, device->options.index, &info) != TU_OK) return 0;
    int divisor =
        device->api->host_memory || device->options.logical_count < 1 ? 1 : device->options.logical_count;
    return info.memory_bytes / (uint64_t)divisor;
}

tu_status tu_program_memory(const tu_program *program, size_t index, tu_memory_report *report) {
    TU_TRY(TU__CHECK_SIZED(tu_memory_report, report));
    TU_TRY(check_device(program, index));
    const tu__partition *partition = &program->partitions[index];
    const tu__execution *e = tu__default_execution(program);
    bool ran = e && e->bound_state;
    uint64_t scratch = partition->memory.scratch_bytes, constants = constant_bytes(program, partition),
             variables = variable_bytes(program, partition), overhead = overhead_of(partition->device);
    tu_memory_report full = {.device = partition->device->name,
                             .scratch_bytes = scratch,
                             .constant_bytes = constants,
                             .variable_bytes = variables,
                             .overhead_bytes = overhead,
                             .need_bytes = scratch + constants + variables + overhead,
                             .table_bytes = atomic_load(&partition->device->table_bytes),
                             .allocated_bytes = ran ? e->parts[index].on->scratch_bytes + constants : 0,
                             .limit_bytes = limit_of(partition)};
    TU__COPY_SIZED(report, full);
    return TU_OK;
}

/* ---- The table of kernels ---- */

static double mib(double bytes) {
    return bytes / 1048576;
}

tu_status tu_program_print(const tu_program *program, FILE *out) {
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *partition = &program->partitions[i];
        for (uint32_t k = 0; k < partition->plan->kernel_count; k++) {
            const tu_kernel *kernel = &partition->plan->kernels[partition->order[k]];
            size_t bytes = 0;
            for (uint32_t r = 0; r < kernel->read_count; r++)
                bytes += partition->plan->buffers[kernel->reads[r]].bytes;
            for (uint32_t w = 0; w < kernel->write_count; w++)
                bytes += partition->plan->buffers[kernel->writes[w]].bytes;
            fprintf(out, "%-8s %-28s %3u nodes %9.2f MiB  %s\n", partition->device->name, kernel->name,
                    kernel->node_count, mib((double)bytes),
                    program->unit.graph->nodes[kernel->nodes[0]]->name);
        }
        fprintf(out, "%-8s scratch %.2f MiB, constants %.2f MiB, variables %.2f MiB\n",
                partition->device->name, mib((double)partition->memory.scratch_bytes),
                mib((double)constant_bytes(program, partition)),
                mib((double)variable_bytes(program, partition)));
    }
    return ferror(out) ? tu_fail(TU_IO, "the table of kernels could not be written") : TU_OK;
}
