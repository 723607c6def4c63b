/* What a program weighs: totals, what lies in memory when most does, and the table of kernels.
 *
 * The totals are those of the plan, and the items of the peak add up to them: the tensors and workspaces alive at the
 * moment when most are, the gaps between them, what outlives a run, and what the device takes for itself. memory_refusal.c speaks of the same numbers. */
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "run/program.h"

static bool is_read_as_leaf(const tu__partition *part, uint32_t node) {
    for (uint32_t i = 0; i < part->leaf_count; i++)
        if (part->leaves[i].node == node) return true;
    return false;
}

static tu_status check_device(const tu_program *program, size_t index) {
    if (index < program->device_count) return TU_OK;
    return tu_fail(TU_NOT_FOUND, "the program has %zu devices: there is no number %zu", program->device_count,
                   index);
}

/* ---- The items of the peak ---- */

/* The heaviest items so far, at most as many as the caller has room for. */
typedef struct listing {
    size_t capacity, count; /* count: of all items that came by */
    tu_memory_item *items;
} listing;

static void add_item(listing *list, tu_memory_item item) {
    size_t kept = list->count < list->capacity ? list->count : list->capacity, at = kept;
    list->count++;
    while (at > 0 && list->items[at - 1].bytes < item.bytes) {
        if (at < list->capacity) list->items[at] = list->items[at - 1];
        at--;
    }
    if (at < list->capacity) list->items[at] = item;
}

static void add_node(listing *list, tu_memory_kind kind, const tu__node *node, uint64_t bytes) {
    add_item(list, (tu_memory_item){0, kind, node->name, node->outputs[0], bytes});
}

/* What is alive in scratch, and the gaps between. */
static void add_scratch(listing *list, const tu_graph *g, const tu__partition *part) {
    uint64_t left = part->memory.scratch_bytes;
    for (uint32_t i = 0; i < part->memory.resident_count; i++) {
        const tu__resident *r = &part->memory.residents[i];
        tu_memory_item item = {0, TU_MEMORY_WORKSPACE, "", {0}, r->bytes};
        tu_edge value = {TU_NO_NODE, 0};
        if (r->buffer != TU_NO_NODE) value = part->plan->buffers[r->buffer].value;
        if (r->buffer == TU_NO_NODE)
            item.name = part->plan->kernels[r->kernel].name;
        else if (value.node != TU_NO_NODE)
            item = (tu_memory_item){0, TU_MEMORY_TENSOR, g->nodes[value.node]->name, tu_edge_type(g, value),
                                    r->bytes};
        add_item(list, item);
        left -= r->bytes;
    }
    if (left) add_item(list, (tu_memory_item){0, TU_MEMORY_GAP, "", {0}, left});
}

/* Variables that the part reads or assigns, and constants. */
static void add_leaves(listing *list, const tu_graph *g, const tu__partition *part) {
    for (uint32_t i = 0; i < part->leaf_count; i++) {
        const tu__node *node = g->nodes[part->leaves[i].node];
        size_t bytes = part->plan->buffers[part->leaves[i].buffer].bytes;
        if (node->op->code == TU__OP_VARIABLE)
            add_node(list, TU_MEMORY_VARIABLE, node, tu_type_bytes(node->outputs[0]));
        else if (node->op->code == TU__OP_CONSTANT)
            add_node(list, TU_MEMORY_CONSTANT, node, (bytes + 63) & ~(size_t)63);
    }
    for (uint32_t i = 0; i < part->update_count; i++) {
        const tu__node *node = g->nodes[part->updates[i].variable];
        if (!is_read_as_leaf(part, node->id))
            add_node(list, TU_MEMORY_VARIABLE, node, tu_type_bytes(node->outputs[0]));
        if (tu__update_waits(part, &part->updates[i]))
            add_node(list, TU_MEMORY_WORKSPACE, node, part->plan->buffers[part->updates[i].buffer].bytes);
    }
}

static uint64_t overhead_of(const tu__device *device) {
    return device->api->overhead ? device->api->overhead(device->instance) : 0;
}

static void add_all(listing *list, const tu_program *program, size_t index) {
    add_scratch(list, program->unit.graph, &program->parts[index]);
    add_leaves(list, program->unit.graph, &program->parts[index]);
    uint64_t overhead = overhead_of(program->devices[index]);
    if (overhead)
        add_item(list, (tu_memory_item){0, TU_MEMORY_OVERHEAD, "context and libraries", {0}, overhead});
}

size_t tu_program_peak_count(const tu_program *program, size_t index) {
    listing list = {0};
    if (index < program->device_count) add_all(&list, program, index);
    return list.count;
}

/* The caller's items lie as far apart as the first of them says it is long. */
tu_status tu_program_peak(const tu_program *program, size_t index, size_t capacity, tu_memory_item *items,
                          size_t *count) {
    *count = 0;
    TU_TRY(check_device(program, index));
    if (!capacity) return TU_OK;
    TU_TRY(TU__CHECK_SIZED(tu_memory_item, items));
    size_t stride = items->struct_size;
    listing list = {.capacity = capacity,
                    .items = tu__alloc_array(capacity, sizeof *items, "a memory report")};
    if (!list.items) return TU_NO_MEMORY;
    add_all(&list, program, index);
    *count = list.count < capacity ? list.count : capacity;
    for (size_t i = 0; i < *count; i++) {
        void *target = (char *)items + i * stride;
        memcpy(target, &stride, sizeof stride);
        TU__GIVE_SIZED(target, list.items[i]);
    }
    tu__free(list.items);
    return TU_OK;
}

/* ---- Totals ---- */

/* Of the variables that the part reads or assigns. */
static size_t variable_bytes(const tu_program *p, const tu__partition *part) {
    const tu_graph *g = p->unit.graph;
    size_t bytes = 0;
    for (uint32_t i = 0; i < part->leaf_count; i++)
        if (g->nodes[part->leaves[i].node]->op->code == TU__OP_VARIABLE)
            bytes += tu_type_bytes(g->nodes[part->leaves[i].node]->outputs[0]);
    for (uint32_t i = 0; i < part->update_count; i++)
        if (!is_read_as_leaf(part, part->updates[i].variable))
            bytes += tu_type_bytes(g->nodes[part->updates[i].variable]->outputs[0]);
    return bytes;
}

/* Constants, and the room where values wait that are exchanged between variables. */
static size_t constant_bytes(const tu_program *p, const tu__partition *part) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < part->leaf_count; i++)
        if (p->unit.graph->nodes[part->leaves[i].node]->op->code == TU__OP_CONSTANT)
            bytes += (part->plan->buffers[part->leaves[i].buffer].bytes + 63) & ~(size_t)63;
    for (uint32_t i = 0; i < part->update_count; i++)
        if (tu__update_waits(part, &part->updates[i]))
            bytes += part->plan->buffers[part->updates[i].buffer].bytes;
    return bytes;
}

/* What the device may take: logical devices share a card's memory evenly, and the host's as they come. */
static uint64_t limit_of(const tu__partition *part) {
    if (part->memory_limit) return part->memory_limit;
    const tu__device *device = part->device;
    tu_device_info info = TU_SIZED(tu_device_info);
    if (tu__device_describe(device->api, device->options.index, &info) != TU_OK) return 0;
    int parts = device->api->host_memory || device->options.parts < 1 ? 1 : device->options.parts;
    return info.memory_bytes / (uint64_t)parts;
}

tu_status tu_program_memory(const tu_program *program, size_t index, tu_memory_report *report) {
    TU_TRY(TU__CHECK_SIZED(tu_memory_report, report));
    TU_TRY(check_device(program, index));
    const tu__partition *part = &program->parts[index];
    bool ran = program->bound != 0;
    uint64_t scratch = part->memory.scratch_bytes, constants = constant_bytes(program, part),
             variables = variable_bytes(program, part), overhead = overhead_of(part->device);
    tu_memory_report full = {.device = part->device->name,
                             .scratch_bytes = scratch,
                             .constant_bytes = constants,
                             .variable_bytes = variables,
                             .overhead_bytes = overhead,
                             .need_bytes = scratch + constants + variables + overhead,
                             .table_bytes = atomic_load(&part->device->table_bytes),
                             .taken_bytes = ran ? part->device->scratch_bytes + part->constant_bytes : 0,
                             .limit_bytes = limit_of(part)};
    TU__GIVE_SIZED(report, full);
    return TU_OK;
}

/* ---- The table of kernels ---- */

static double mib(double bytes) {
    return bytes / 1048576;
}

tu_status tu_program_print(const tu_program *program, FILE *out) {
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *part = &program->parts[i];
        for (uint32_t k = 0; k < part->plan->kernel_count; k++) {
            const tu_kernel *kernel = &part->plan->kernels[part->order[k]];
            size_t bytes = 0;
            for (uint32_t r = 0; r < kernel->read_count; r++)
                bytes += part->plan->buffers[kernel->reads[r]].bytes;
            for (uint32_t w = 0; w < kernel->write_count; w++)
                bytes += part->plan->buffers[kernel->writes[w]].bytes;
            fprintf(out, "%-8s %-28s %3u nodes %9.2f MiB  %s\n", part->device->name, kernel->name,
                    kernel->node_count, mib((double)bytes),
                    program->unit.graph->nodes[kernel->nodes[0]]->name);
        }
        fprintf(out, "%-8s scratch %.2f MiB, constants %.2f MiB, variables %.2f MiB\n", part->device->name,
                mib((double)part->memory.scratch_bytes), mib((double)constant_bytes(program, part)),
                mib((double)variable_bytes(program, part)));
    }
    return ferror(out) ? tu_fail(TU_IO, "the table of kernels could not be written") : TU_OK;
}
