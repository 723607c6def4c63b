/* What one kernel of a program covers, moves and took: the rows of `tutti bench --kernels`.
 *
 * Operations are counted by the graph, not by the device, so that two devices, or a library and our own kernel, are
 * measured with one yardstick. A device that knows how many bytes it moves says so; for the others every buffer read
 * or written counts once, which is the least that a kernel can move. */
#include "base/alloc.h"
#include "base/sized.h"
#include "graph/summary.h"
#include "run/program.h"

static uint32_t most_inputs(const tu_graph *graph, const tu_kernel *kernel) {
    uint32_t most = 1;
    for (uint32_t i = 0; i < kernel->node_count; i++)
        if (graph->nodes[kernel->nodes[i]]->input_count > most)
            most = graph->nodes[kernel->nodes[i]]->input_count;
    return most;
}

static tu_status count_flops(const tu_graph *graph, const tu_kernel *kernel, int64_t *flops) {
    tu_type *in = tu__alloc_array(most_inputs(graph, kernel), sizeof *in, "a report on kernels");
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

/* Kernel `place` of a part's order. */
static tu_status report_kernel(const tu_program *program, const tu__partition *part, uint32_t place,
                               tu_kernel_report *report) {
    const tu_graph *graph = program->unit.graph;
    const tu_kernel *kernel = &part->plan->kernels[part->order[place]];
    const tu_device_api *api = part->device->api;
    *report = (tu_kernel_report){.device = part->device->name,
                                 .kernel = kernel->name,
                                 .node = kernel->node_count ? graph->nodes[kernel->nodes[0]]->name : "",
                                 .node_count = kernel->node_count,
                                 .bytes = count_bytes(part->plan, kernel),
                                 .workspace_bytes = kernel->workspace};
    TU_TRY(count_flops(graph, kernel, &report->flops));
    double start;
    if (program->bound && api->trace)
        TU_TRY(api->trace(part->device->instance, part->plan, place, &start, &report->seconds));
    return TU_OK;
}

size_t tu_program_kernel_count(const tu_program *program) {
    size_t count = 0;
    for (size_t i = 0; i < program->device_count; i++) count += program->parts[i].plan->kernel_count;
    return count;
}

tu_status tu_program_kernel(const tu_program *program, size_t index, tu_kernel_report *report) {
    size_t before = 0;
    tu_kernel_report full = TU_SIZED(tu_kernel_report);
    TU_TRY(TU__CHECK_SIZED(tu_kernel_report, report));
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *part = &program->parts[i];
        if (index - before < part->plan->kernel_count) {
            TU_TRY(report_kernel(program, part, (uint32_t)(index - before), &full));
            TU__GIVE_SIZED(report, full);
            return TU_OK;
        }
        before += part->plan->kernel_count;
    }
    return tu_fail(TU_NOT_FOUND, "there is no kernel number %zu: the program has %zu", index, before);
}
