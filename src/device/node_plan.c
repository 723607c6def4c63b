/* One kernel per node, one dense buffer per value. */
#include "device/node_plan.h"

#include <string.h>

#include "base/alloc.h"
#include "graph/graph.h"

typedef struct builder {
    tu__node_plan *plan;
    const tu_partition *partition;
    uint32_t *buffer_of; /* per output of the graph's nodes: its buffer + 1; 0: none yet */
    uint32_t *slot;      /* node -> first output */
    tu_buffer *buffers;
    uint32_t buffer_count;
} builder;

static uint32_t buffer_for(builder *b, tu_edge value) {
    uint32_t *buffer_number = &b->buffer_of[b->slot[value.node] + value.output];
    if (!*buffer_number) {
        b->buffers[b->buffer_count] = (tu_buffer){
            .bytes = tu_type_bytes(tu_edge_type(b->partition->graph, value)), .value = value, .dense = true};
        *buffer_number = ++b->buffer_count;
    }
    return *buffer_number - 1;
}

static tu_status fill_kernel(builder *b, const tu__node *node, tu_kernel *k) {
    tu__arena *arena = &b->plan->arena;
    uint32_t *reads = tu__arena_alloc(arena, node->input_count * sizeof *reads);
    uint32_t *writes = tu__arena_alloc(arena, node->output_count * sizeof *writes);
    uint32_t *nodes = tu__arena_alloc(arena, sizeof *nodes);
    if (!reads || !writes || !nodes) return TU_NO_MEMORY;
    *nodes = node->id;
    for (uint32_t i = 0; i < node->input_count; i++) reads[i] = buffer_for(b, node->inputs[i]);
    for (uint32_t i = 0; i < node->output_count; i++) writes[i] = buffer_for(b, (tu_edge){node->id, i});
    *k = (tu_kernel){.name = node->op->name,
                     .node_count = 1,
                     .nodes = nodes,
                     .read_count = node->input_count,
                     .write_count = node->output_count,
                     .reads = reads,
                     .writes = writes};
    return TU_OK;
}

static tu_status fill_plan(builder *b) {
    const tu_graph *graph = b->partition->graph;
    uint32_t outputs = 0;
    b->slot = tu__alloc_array(graph->node_count, sizeof *b->slot, "a plan");
    if (!b->slot) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        b->slot[i] = outputs;
        outputs += graph->nodes[i]->output_count;
    }
    b->buffer_of = tu__alloc_array(outputs, sizeof *b->buffer_of, "a plan");
    b->buffers = tu__arena_alloc(&b->plan->arena, outputs * sizeof *b->buffers);
    tu_kernel *kernels = tu__arena_alloc(&b->plan->arena, b->partition->node_count * sizeof *kernels);
    if (!b->buffer_of || !b->buffers || !kernels) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < b->partition->node_count; i++)
        TU_TRY(fill_kernel(b, graph->nodes[b->partition->nodes[i]], &kernels[i]));
    for (uint32_t i = 0; i < b->partition->export_count; i++) buffer_for(b, b->partition->exports[i]);
    b->plan->plan.buffers = b->buffers;
    b->plan->plan.buffer_count = b->buffer_count;
    b->plan->plan.kernels = kernels;
    b->plan->plan.kernel_count = b->partition->node_count;
    return TU_OK;
}

tu_status tu__node_plan_lower(tu_device_instance *device, const tu_partition *partition, tu_plan **plan) {
    tu__node_plan *p = tu__alloc(sizeof *p, "a plan");
    if (!p) return TU_NO_MEMORY;
    p->plan.struct_size = sizeof p->plan;
    p->arena.purpose = "a plan";
    p->graph = partition->graph;
    builder b = {.plan = p, .partition = partition};
    tu_status status = fill_plan(&b);
    tu__free(b.slot);
    tu__free(b.buffer_of);
    if (status != TU_OK) {
        tu__node_plan_free(device, &p->plan);
        return status;
    }
    *plan = &p->plan;
    return TU_OK;
}

tu_status tu__node_plan_build(tu_device_instance *device, tu_queue *queue, tu_plan *plan,
                              const tu_binding *binding, tu_executable **executable) {
    (void)device, (void)queue;
    *executable = tu__alloc(sizeof **executable, "an executable");
    if (!*executable) return TU_NO_MEMORY;
    **executable = (tu_executable){.plan = (const tu__node_plan *)plan, .binding = *binding};
    return TU_OK;
}

void tu__node_executable_free(tu_device_instance *device, tu_executable *executable) {
    (void)device;
    tu__free(executable);
}

void tu__node_plan_free(tu_device_instance *device, tu_plan *plan) {
    (void)device;
    if (!plan) return;
    tu__node_plan *p = (tu__node_plan *)plan;
    tu__arena_free(&p->arena);
    tu__free(p);
}
