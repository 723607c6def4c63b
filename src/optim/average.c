/* Moving averages of the network's variables, trained ones and running statistics alike: what evaluation reads, since
 * they jitter less than the variables themselves (Polyak & Juditsky 1992).
 *
 *     average = average + (1 - d) * (variable - average),   d = min(decay, (1 + step) / (10 + step))
 *
 * The small d of the first steps is TensorFlow's: an average over thousands of steps would otherwise remember the
 * network's first values for as long. An average begins as its variable: at step 0 the variable's value before the
 * step stands in for it, so neither initialisers nor loading weights have to know of averages. */
#include "optim/optimizer.h"

#include <tutti/ops.h>

#include "base/alloc.h"
#include "graph/graph.h"

/* 1 - d, an f64 scalar. */
static tu_value share_of_new(tu_value step, double decay) {
    tu_value n = tu_cast(step, TU_F64);
    tu_value warm = tu_div(tu_shift(n, 1), tu_shift(n, 10));
    return tu_sub(tu_number(n, 1), tu_minimum(tu_number(n, decay), warm));
}

typedef struct averaging {
    const tu__guard *guard;
    tu_value share, first; /* first: whether this is step 0 */
} averaging;

static void average_one(const averaging *a, tu_value variable, tu_value next) {
    tu_graph *graph = variable.graph;
    tu_type type = tu_value_type(variable);
    tu_value average = tu_variable(graph, tu_value_name(variable), type.dtype, type.shape, .frozen = true);
    tu_value before = tu_select(a->first, variable, average);
    tu_value change = tu_mul(tu_sub(next, before), tu_cast(a->share, type.dtype));
    tu__guarded_assign(a->guard, average, tu_add(before, change));
}

/* For each node that is a variable: the node and output of its next value. */
static void list_next(const tu_graph *graph, uint32_t count, tu_edge *next) {
    for (uint32_t i = 0; i < count; i++) next[i] = (tu_edge){i, 0};
    for (uint32_t i = 0; i < count; i++)
        if (graph->nodes[i]->op->code == TU__OP_ASSIGN)
            next[graph->nodes[i]->inputs[0].node] = graph->nodes[i]->inputs[1];
}

tu_status tu__average_variables(tu_graph *graph, const tu__guard *guard, double decay) {
    uint32_t count = graph->node_count; /* what averaging adds is not averaged */
    tu_edge *next = tu__alloc_array((size_t)count + 1, sizeof *next, "the averages of all variables");
    if (!next) return TU_NO_MEMORY;
    list_next(graph, count, next);
    tu_scope(graph, "average") {
        tu_value step = tu_step(graph);
        averaging a = {guard, share_of_new(step, decay), tu_equal(step, tu_number(step, 0))};
        for (uint32_t i = 0; i < count; i++) {
            tu_value variable = tu__value(graph, i, 0);
            if (!tu__is_network_variable(graph, i) || !tu_dtype_is_float(tu_value_dtype(variable))) continue;
            tu_with_device(graph, tu_value_device(variable))
                average_one(&a, variable, tu__value(graph, next[i].node, next[i].output));
        }
    }
    tu__free(next);
    return tu_graph_status(graph);
}
