/* Runs the graph of a task's metrics. See metrics_graph.h. */
#include "train/metrics_graph.h"

#include <string.h>

#include "graph/graph.h"

enum { MAX_INPUTS = TU_MAX_METRICS * 4 + 2 };

static tu_status find_inputs(tu__metrics_program *p) {
    for (uint32_t i = 0; i < p->graph->node_count; i++) {
        const tu__node *node = p->graph->nodes[i];
        if (node->op->code != TU__OP_INPUT) continue;
        if (p->input_count == MAX_INPUTS)
            return tu_fail(TU_INVALID, "the task has more than %d totals", MAX_INPUTS);
        if (node->outputs[0].dtype != TU_F64)
            return tu_fail(TU_CORRUPT, "graph 'metrics': input '%s' has dtype %s: expected f64", node->name,
                           tu_dtype_name(node->outputs[0].dtype));
        p->names[p->input_count] = node->name;
        p->inputs[p->input_count++] = tu__value(p->graph, node->id, 0);
    }
    return TU_OK;
}

tu_status tu__metrics_program_open(tu_graph *graph, const tu__run_config *config, tu__metrics_program *p) {
    *p = (tu__metrics_program){.graph = graph, .metric_count = config->metric_count};
    TU_TRY(find_inputs(p));
    tu_value fetch[TU_MAX_METRICS];
    for (size_t i = 0; i < p->metric_count; i++) {
        fetch[i] = tu_find_output(graph, config->metrics[i].name);
        TU_TRY(tu_graph_status(graph));
        tu_type type = tu_value_type(fetch[i]);
        if (type.dtype != TU_F64 || type.shape.rank != 0)
            return tu_fail(TU_CORRUPT, "graph 'metrics': '%s' has type %s: expected f64[]",
                           config->metrics[i].name, tu__type_string(type));
    }
    TU_TRY(tu_compile(graph, &p->program, .devices = "ref", .fetch = fetch, .fetch_count = p->metric_count));
    return tu_state_new(graph, &p->state);
}

void tu__metrics_program_close(tu__metrics_program *p) {
    tu_program_free(p->program);
    tu_state_free(p->state);
    *p = (tu__metrics_program){0};
}

tu_status tu__metrics_program_run(const tu__metrics_program *p,
                                  const double *(*find)(void *context, const char *name, int64_t elements),
                                  void *context, double metrics[TU_MAX_METRICS]) {
    tu_feed feeds[MAX_INPUTS];
    void *fetches[TU_MAX_METRICS];
    for (size_t i = 0; i < p->input_count; i++) {
        const double *sums = find(context, p->names[i], tu_shape_elements(tu_value_shape(p->inputs[i])));
        if (!sums)
            return tu_fail(TU_CORRUPT,
                           "graph 'metrics' needs '%s', which the evaluation graph does not compute",
                           p->names[i]);
        feeds[i] = (tu_feed){p->inputs[i], sums};
    }
    for (size_t i = 0; i < p->metric_count; i++) fetches[i] = &metrics[i];
    return tu_run(p->program, p->state, p->input_count, feeds, fetches);
}
