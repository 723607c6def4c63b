/* Exponential moving averages (EMA) of the network's variables, including running statistics, for evaluation: they
 * vary less than the variables (Polyak & Juditsky 1992).
 *
 *     average = average + (1 - d) * (variable - average),   d = min(decay, (1 + step) / (10 + step))
 *
 * d is smaller in the first steps, as in TensorFlow; otherwise the average would contain the initial values for
 * thousands of steps. At step 0 the variable's value is used instead of the average, so averages need no
 * initialisation when weights are initialised or loaded. */
#include "optim/optimizer.h"

#include <tutti/ops.h>

#include "base/alloc.h"
#include "graph/graph.h"

/* Builds 1 - d, an f64 scalar. */
static tu_value new_value_weight(tu_value step, double decay) {
    tu_value n = tu_cast(step, TU_F64);
    tu_value early_decay = tu_div(tu_shift(n, 1), tu_shift(n, 10));
    return tu_sub(tu_number(n, 1), tu_minimum(tu_number(n, decay), early_decay));
}

typedef struct averaging {
    const tu__guard *guard;
    tu_value new_weight;    /* 1 - d */
    tu_value is_first_step; /* bool */
} averaging;

static void average_one(const averaging *a, tu_value variable, tu_value next) {
    tu_graph *graph = variable.graph;
    tu_type type = tu_value_type(variable);
    tu_value average = tu_variable(graph, tu_value_name(variable), type.dtype, type.shape, .frozen = true);
    tu_value before = tu_select(a->is_first_step, variable, average);
    tu_value change = tu_mul(tu_sub(next, before), tu_cast(a->new_weight, type.dtype));
    tu__guarded_assign(a->guard, average, tu_add(before, change));
}

/* Sets next[i] to the value that is assigned to node i, or to node i itself. */
static void find_next_values(const tu_graph *graph, uint32_t count, tu_edge *next) {
    for (uint32_t i = 0; i < count; i++) next[i] = (tu_edge){i, 0};
    for (uint32_t i = 0; i < count; i++)
        if (graph->nodes[i]->op->code == TU__OP_ASSIGN)
            next[graph->nodes[i]->inputs[0].node] = graph->nodes[i]->inputs[1];
}

tu_status tu__average_variables(tu_graph *graph, const tu__guard *guard, double decay) {
    uint32_t count = graph->node_count; /* nodes added below are not averaged */
    tu_edge *next = tu__alloc_array((size_t)count + 1, sizeof *next, "the averages of all variables");
    if (!next) return TU_NO_MEMORY;
    find_next_values(graph, count, next);
    tu_scope(graph, "average") {
        tu_value step = tu_step(graph);
        averaging a = {guard, new_value_weight(step, decay), tu_equal(step, tu_number(step, 0))};
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
