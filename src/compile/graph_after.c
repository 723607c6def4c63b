/* tu_graph_after: returns a graph as the passes transform it, for inspection. */
#include <tutti/run.h>

#include "base/alloc.h"
#include "compile/placement.h"
#include "device/device.h"
#include "pass/pass.h"

/* Starts a unit for a program that computes all named results and assignments. */
static tu_status init_unit(tu__unit *unit, tu_graph *graph) {
    bool assigns = false;
    for (uint32_t i = 0; i < graph->node_count; i++)
        assigns = assigns || graph->nodes[i]->op->code == TU__OP_ASSIGN;
    if (graph->result_count == 0 && !assigns)
        return tu_fail(TU_INVALID,
                       "the graph has neither results nor assignments, so there is nothing to compute: "
                       "name results with tu_output");
    tu_value *fetch = tu__alloc_array((size_t)graph->result_count + 1, sizeof *fetch, "a graph's results");
    if (!fetch) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->result_count; i++)
        fetch[i] = tu__value(graph, graph->results[i].value.node, graph->results[i].value.output);
    tu_status status = tu__unit_begin(unit, graph, graph->result_count, fetch, true);
    tu__free(fetch);
    return status;
}

static tu_status run_passes(tu__unit *unit, const tu_graph_after_options *o) {
    tu__device *devices[TU__MAX_DEVICES];
    const char *names[TU__MAX_DEVICES];
    size_t count = 0;
    tu__device_list list = {.devices = devices, .names = names, .count = &count};
    tu_compile_options compile_options = {.place = o->place,
                                          .strict_placement = o->strict_placement,
                                          .strategy = o->strategy,
                                          .central = o->central,
                                          .invariant = o->invariant,
                                          .bf16_gradients = o->bf16_gradients};
    tu__placement_options placement;
    TU_TRY(tu__precision_parse(o->precision, &unit->precision));
    tu_status status = tu__placement_init(&list, &placement, unit, o->devices, NULL, &compile_options);
    if (status == TU_OK) status = tu__run_passes(unit, o->pass);
    unit->devices = NULL;
    unit->placement = NULL;
    unit->replication = (tu__replication){0};
    tu__devices_close(count, devices);
    return status;
}

tu_status tu_graph_after_with(tu_graph *graph, tu_graph **result, const tu_graph_after_options *options) {
    TU__OPTIONS(tu_graph_after_options, o, options);
    *result = NULL;
    TU_TRY(tu_graph_status(graph));
    tu__unit unit;
    TU_TRY(init_unit(&unit, graph));
    tu_status status = run_passes(&unit, &o);
    if (status == TU_OK) {
        *result = unit.graph;
        unit.graph = NULL;
    }
    tu__unit_end(&unit);
    return status;
}
