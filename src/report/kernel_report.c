/* Reports the nodes, bytes, operations and time of one kernel: the rows of `tutti bench --kernels`.
 *
 * Operations are counted from the graph, not by the device, so that kernels of different devices and libraries are
 * comparable. A device may report the bytes that a kernel transfers. Otherwise every buffer that it reads or writes
 * counts once, which is the minimum. */
#include "base/alloc.h"
#include "base/sized.h"
#include "graph/summary.h"
#include "run/execution.h"

static uint32_t max_inputs(const tu_graph *graph, const tu_kernel *kernel) {
    uint32_t max = 1;
    for (uint32_t i = 0; i < kernel->node_count; i++)
        if (graph->nodes[kernel->nodes[i]]->input_count > max)
            max = graph->nodes[kernel->nodes[i]]->input_count;
    return max;
}

static tu_status count_flops(const tu_graph *graph, const tu_kernel *kernel, int64_t *flops) {
    tu_type *in = tu__alloc_array(max_inputs(graph, kernel), sizeof *in, "a report on kernels");
    if (!in) return TU_NO_MEMORY;
    *flops = 0;
    for (uint32_t i = 0; i < kernel->node_count; i++)
        if (__builtin_add_overflow(*flops, tu__node_flops(graph, graph->nodes[kernel->nodes[i]], in), flops))
            *flops = INT64_MAX;
    tu__free(in);
    return TU_OK;
}

static int64_t count_bytes(const tu_plan *plan, const tu_kernel *kernel) {
    if (kernel->bytes_moved) return kernel->bytes_moved;
    size_t bytes = 0;
    for (uint32_t i = 0; i < kernel->read_count; i++) bytes += plan->buffers[kernel->reads[i]].bytes;
    for (uint32_t i = 0; i < kernel->write_count; i++) bytes += plan->buffers[kernel->writes[i]].bytes;
    return (int64_t)bytes;
}

/* Reports the kernel at a position of a partition's order. */
static tu_status report_kernel(const tu_program *program, const tu__partition *partition, uint32_t position,
                               tu_kernel_report *report) {
    const tu_graph *graph = program->unit.graph;
    const tu_kernel *kernel = &partition->plan->kernels[partition->order[position]];
    const tu_device_api *api = partition->device->api;
    const tu__execution *e = tu__default_execution(program);
    *report = (tu_kernel_report){.device = partition->device->name,
                                 .kernel = kernel->name,
                                 .node = kernel->node_count ? graph->nodes[kernel->nodes[0]]->name : "",
                                 .node_count = kernel->node_count,
                                 .bytes = count_bytes(partition->plan, kernel),
                                 .workspace_bytes = kernel->workspace};
    TU_TRY(count_flops(graph, kernel, &report->flops));
    double start;
    if (e && e->bound_state && api->times)
        TU_TRY(api->times(partition->device->instance, e->parts[partition - program->partitions].executable,
                          position, &start, &report->seconds));
    return TU_OK;
}

size_t tu_program_kernel_count(const tu_program *program) {
    size_t count = 0;
    for (size_t i = 0; i < program->device_count; i++) count += program->partitions[i].plan->kernel_count;
    return count;
}

tu_status tu_program_kernel(const tu_program *program, size_t index, tu_kernel_report *report) {
    size_t kernels_before = 0;
    tu_kernel_report full = TU_SIZED(tu_kernel_report);
    TU_TRY(TU__CHECK_SIZED(tu_kernel_report, report));
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *partition = &program->partitions[i];
        if (index - kernels_before < partition->plan->kernel_count) {
            TU_TRY(report_kernel(program, partition, (uint32_t)(index - kernels_before), &full));
            TU__COPY_SIZED(report, full);
            return TU_OK;
        }
        kernels_before += partition->plan->kernel_count;
    }
    return tu_fail(TU_NOT_FOUND,
                   "kernel index %zu is out of range: the program has %zu kernels, counted from 0", index,
                   kernels_before);
}
