/* Expands batch-norm of global scope into smaller operations, for the pass `replicate`.
 *
 * The statistics are means over samples on different devices. As separate operations they are ordinary sums, which
 * the shard rules handle: the mean, and the mean squared deviation from it, are each summed over the replicas. The
 * forward operation is expanded by ops/norm.c. Its expansion of the gradient recomputes the statistics from x, so
 * that it can be differentiated again; the expansion here uses the saved statistics, which saves two sums over the
 * devices:
 *
 *     x^ = (x - mean) r        r = 1 / sqrt(variance + epsilon), n rows
 *     dx = gamma r (dy - (dbeta + x^ dgamma) / n)        dgamma = sum(dy x^)        dbeta = sum(dy)
 *
 * If the pass `precision` will choose half precision, the expansion is surrounded by casts to the type of the
 * statistics even though they change nothing yet. That pass does not change the type of a cast, so no mean is
 * computed in half precision. */
#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "pass/replicate.h"

static bool is_global(const tu__node *node) {
    if (node->op->code == TU__OP_BATCH_NORM) return tu__attrs(node, batch_norm)->scope == TU_SCOPE_GLOBAL;
    return node->op->code == TU__OP_BATCH_NORM_GRAD &&
           tu__attrs(node, batch_norm_grad)->scope == TU_SCOPE_GLOBAL;
}

/* Casts x. With `keep_cast` the cast stays in the graph even if it changes nothing. */
static tu_value cast(tu_value x, tu_dtype dtype, bool keep_cast) {
    struct tu__cast_attrs a = {.dtype = dtype};
    return keep_cast ? tu__apply(CAST, &a, x) : tu_cast(x, dtype);
}

static tu_value sum_rows(tu_value x) {
    tu_axes axes = {.count = (uint32_t)tu_value_shape(x).rank - 1};
    for (uint32_t i = 0; i < axes.count; i++) axes.axis[i] = (int32_t)i;
    return tu_sum(x, .axes = axes);
}

static void expand_forward(const tu__node *node, const tu_value *in, bool keep_cast, tu_value *out) {
    tu_value wide[] = {cast(in[0], tu_value_dtype(in[1]), keep_cast), in[1], in[2]};
    node->op->expand(in[0].graph, node, wide, out);
    out[0] = cast(out[0], tu_value_dtype(in[0]), keep_cast);
}

static void expand_gradient(const tu__node *node, const tu_value *in, bool keep_cast, tu_value *out) {
    tu_value gamma = in[1], mean = in[2], variance = in[3];
    tu_dtype dtype = tu_value_dtype(gamma);
    if (dtype == TU_BF16 || dtype == TU_F16) { /* rounded statistics are too inaccurate to use */
        node->op->expand(in[0].graph, node, in, out);
        return;
    }
    tu_value x = cast(in[0], dtype, keep_cast), dy = cast(in[4], dtype, keep_cast);
    double rows =
        (double)tu_shape_elements(tu_value_shape(x)) / (double)tu_shape_elements(tu_value_shape(gamma));
    tu_value r = tu_rsqrt(tu_shift(variance, tu__attrs(node, batch_norm_grad)->epsilon));
    tu_value normal = tu_mul(tu_sub(x, mean), r);
    out[1] = sum_rows(tu_mul(dy, normal));
    out[2] = sum_rows(dy);
    tu_value inner = tu_scale(tu_add(out[2], tu_mul(normal, out[1])), 1 / rows);
    out[0] = cast(tu_mul(tu_mul(gamma, r), tu_sub(dy, inner)), tu_value_dtype(in[0]), keep_cast);
}

/* Gives the new nodes, from `first` on, the control dependencies of the expanded node. */
static tu_status copy_control_deps(const tu__rewrite *r, const tu__node *node, uint32_t first) {
    for (uint32_t i = 0; i < node->after_count; i++) {
        tu_value dependency = tu__rewrite_value(r, (tu__edge){node->after[i], 0});
        if (!tu_ok(dependency) || !tu__node_is_computed(tu__node_of(dependency))) continue;
        for (uint32_t id = first; id < r->to->node_count; id++)
            if (tu__node_is_computed(r->to->nodes[id]))
                TU_TRY(tu__node_add_dependency(r->to, id, dependency.node));
    }
    return TU_OK;
}

/* Puts the new nodes into a scope named after the expanded node. */
static tu_status expand_node(tu__rewrite *r, const tu__node *node, bool keep_cast) {
    tu_value in[5], out[3];
    uint32_t first = r->to->node_count;
    tu__text scope = {0};
    tu__text_printf(&scope, "%s/global", node->name);
    tu_status status = scope.failed ? TU_NO_MEMORY : tu__scope_replace(r->to, tu__text_string(&scope), NULL);
    tu__text_free(&scope);
    TU_TRY(status);
    tu__rewrite_request(r, node, in);
    if (node->op->code == TU__OP_BATCH_NORM)
        expand_forward(node, in, keep_cast, out);
    else
        expand_gradient(node, in, keep_cast, out);
    TU_TRY(tu_graph_status(r->to));
    for (uint32_t i = 0; i < node->output_count; i++) tu__rewrite_map(r, (tu__edge){node->id, i}, out[i]);
    return copy_control_deps(r, node, first);
}

tu_status tu__expand_global_norm(tu__unit *unit) {
    const tu_graph *graph = unit->graph;
    bool any = false,
         keep_cast = unit->precision == TU__PRECISION_BF16 || unit->precision == TU__PRECISION_F16;
    for (uint32_t i = 0; i < graph->node_count; i++) any = any || is_global(graph->nodes[i]);
    if (!any) return TU_OK;
    tu__rewrite r;
    TU_TRY(tu__rewrite_begin(&r, graph));
    tu_status status = TU_OK;
    for (uint32_t i = 0; i < graph->node_count && status == TU_OK; i++)
        status = is_global(graph->nodes[i]) ? expand_node(&r, graph->nodes[i], keep_cast)
                                            : tu__rewrite_copy(&r, graph->nodes[i]);
    if (status != TU_OK) {
        tu__rewrite_abandon(&r);
        return status;
    }
    TU_TRY(tu__rewrite_finish(&r, unit));
    return tu__unit_drop_dead(unit);
}
