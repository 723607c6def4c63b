/* Gradient descent with momentum, as operations of the graph: v = momentum * v + g; w = w - rate * v.
 *
 * The velocity of a variable is a variable too, named after it under "sgd/" and frozen, so that it is saved with the
 * state but not trained. Without momentum there is none. The rate multiplies the velocity and not the gradient, as
 * in PyTorch, so that a change of rate takes effect at once. */
#include <math.h>

#include <tutti/model.h>
#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"

static void update(tu_value variable, tu_value gradient, double rate, double momentum) {
    tu_value direction = gradient;
    if (momentum != 0) {
        tu_type type = tu_value_type(variable);
        tu_value velocity =
            tu_variable(variable.graph, tu_value_name(variable), type.dtype, type.shape, .frozen = true);
        direction = tu_add(tu_scale(velocity, momentum), gradient);
        tu_assign(velocity, direction);
    }
    tu_assign(variable, tu_sub(variable, tu_scale(direction, rate)));
}

static tu_status add_updates(tu_value loss, double rate, double momentum, size_t count, tu_value *variables,
                             tu_value *gradients) {
    tu_graph *graph = loss.graph;
    tu_trainable(graph, count, variables);
    TU_TRY(tu_gradients(loss, count, variables, gradients));
    tu_scope(graph, "sgd") {
        for (size_t i = 0; i < count; i++) update(variables[i], gradients[i], rate, momentum);
        tu_value step = tu_step(graph);
        tu_assign(step, tu_add(step, tu_number(step, 1)));
    }
    return tu_graph_status(graph);
}

tu_status tu_add_sgd(tu_value loss, double rate, double momentum) {
    if (!loss.graph) return tu_fail(TU_INVALID, "sgd: the loss was never set");
    TU_TRY(tu_graph_status(loss.graph));
    if (!isfinite(rate) || rate < 0)
        return tu_fail(TU_INVALID, "sgd: rate %g: expected a number of at least 0", rate);
    if (!(momentum >= 0 && momentum < 1))
        return tu_fail(TU_INVALID, "sgd: momentum %g: expected a number in [0, 1)", momentum);
    size_t count = tu_trainable(loss.graph, 0, NULL);
    if (count == 0)
        return tu_fail(TU_INVALID, "sgd of '%s': the graph has no trainable variable", tu_value_name(loss));
    tu_value *values = tu__alloc_array(2 * count, sizeof *values, "the gradients of all variables");
    if (!values) return TU_NO_MEMORY;
    tu_status status = add_updates(loss, rate, momentum, count, values, values + count);
    tu__free(values);
    return status;
}
