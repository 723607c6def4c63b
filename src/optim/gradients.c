/* The list of trained variables, and the global norm of the gradients.
 *
 * Each gradient is summed on its device, in its type (bf16 and f16 in f32); only these scalars are copied
 * between devices and added in f64. */
#include "optim/gradients.h"

#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/pattern.h"
#include "graph/graph.h"

tu_status tu__gradients_new(size_t count, tu__gradients *list) {
    *list = (tu__gradients){.count = count};
    if (count <= SIZE_MAX / 2)
        list->variables =
            tu__alloc_array(2 * count, sizeof *list->variables, "the gradients of all variables");
    list->gradients = list->variables + count;
    return list->variables ? TU_OK : TU_NO_MEMORY;
}

void tu__gradients_free(tu__gradients *list) {
    tu__free(list->variables);
    *list = (tu__gradients){0};
}

/* ---- Selecting variables ---- */

bool tu__is_network_variable(const tu_graph *graph, uint32_t id) {
    static const char *const reserved_prefixes[] = {"optimizer/", "average/", "gradient/"};
    const tu__node *node = graph->nodes[id];
    if (node->op->code != TU__OP_VARIABLE || strcmp(node->name, "step") == 0) return false;
    for (size_t i = 0; i < sizeof reserved_prefixes / sizeof *reserved_prefixes; i++)
        if (strncmp(node->name, reserved_prefixes[i], strlen(reserved_prefixes[i])) == 0) return false;
    return true;
}

static tu_status check_freeze(const tu_graph *graph, const char *freeze) {
    if (!freeze || !*freeze) return TU_OK;
    const char *example = NULL;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (!tu__is_network_variable(graph, i)) continue;
        if (tu__pattern_matches(freeze, graph->nodes[i]->name)) return TU_OK;
        if (!example) example = graph->nodes[i]->name;
    }
    return tu_fail(
        TU_NOT_FOUND,
        "freeze '%.200s' matches no variable of the network: expected names like '%s'; * matches any "
        "characters, commas separate patterns",
        freeze, example ? example : "conv1/weights");
}

/* Removes the variables that match `freeze` from the list. */
static void remove_frozen(tu__gradients *list, const char *freeze) {
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (!tu__pattern_matches(freeze, tu_value_name(list->variables[i])))
            list->variables[kept++] = list->variables[i];
    list->count = kept;
}

tu_status tu__gradients_of(tu_value loss, const char *freeze, tu__gradients *list) {
    *list = (tu__gradients){0};
    if (!loss.graph) return tu_fail(TU_INVALID, "optimizer: the loss is an uninitialised tu_value");
    TU_TRY(tu_graph_status(loss.graph));
    TU_TRY(check_freeze(loss.graph, freeze));
    size_t count = tu_trainable(loss.graph, 0, NULL);
    if (count == 0)
        return tu_fail(TU_INVALID, "optimizer of '%s': the graph has no trainable variable",
                       tu_value_name(loss));
    TU_TRY(tu__gradients_new(count, list));
    tu_trainable(loss.graph, count, list->variables);
    remove_frozen(list, freeze);
    tu_status status = TU_OK;
    if (list->count == 0)
        status = tu_fail(TU_INVALID, "optimizer of '%s': freeze '%.200s' leaves no variable to train",
                         tu_value_name(loss), freeze);
    if (status == TU_OK) status = tu_gradients(loss, list->count, list->variables, list->gradients);
    if (status != TU_OK) tu__gradients_free(list);
    return status;
}

/* ---- The norm ---- */

/* Sums each row and then the row sums, so that a device can fuse squaring and summing of a row. */
static tu_value sum_of_squares(tu_value x) {
    if (tu_value_dtype(x) != TU_F64) x = tu_cast(x, TU_F32);
    tu_value squares = tu_square(x);
    tu_shape s = tu_value_shape(x);
    if (s.rank > 1) {
        tu_axes row_axes = {.count = 0};
        for (int32_t axis = 1; axis < s.rank; axis++) row_axes.axis[row_axes.count++] = axis;
        squares = tu_sum(squares, .axes = row_axes);
    }
    return tu_cast(tu_sum(squares), TU_F64);
}

tu_value tu__squared_norm(const tu__gradients *list) {
    tu_value total = {0};
    for (size_t i = 0; i < list->count; i++) {
        tu_value gradient = list->gradients[i];
        tu_with_device(gradient.graph, tu_value_device(list->variables[i])) {
            tu_value squares = sum_of_squares(gradient);
            total = i == 0 ? squares : tu_add(total, squares);
        }
    }
    return total;
}

/* ---- Scope ---- */

tu_status tu__leave_scopes(tu_graph *graph, char **saved_scope) {
    return tu__scope_replace(graph, "", saved_scope);
}

tu_status tu__restore_scopes(tu_graph *graph, char *saved_scope) {
    tu_status status = tu__scope_replace(graph, saved_scope, NULL);
    tu__free(saved_scope);
    return status;
}
