/* Gives the graph of a decoder another number of positions, and keeps what earlier positions have computed.
 *
 * Resizes the axis that has the positions (resize.h). A value that depends on no token but has a row per position, such as
 * learned positions, is read at the rows of the new ones. A causal attention adds the new keys and values to variables
 * [heads, context, width] and reads all of them; positions that have not come yet are masked. All other operations compute
 * each position by itself, or are refused by name. */
#include "infer/incremental.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/attrs.h"
#include "infer/resize.h"
#include "pass/shard_rules.h"

enum { TIME_AXIS = 1 };

/* Of all nodes that the old graph does not have, so that names do not collide. */
static const char SCOPE[] = "cache";

typedef struct incremental {
    tu__resize z;       /* from a context to some positions */
    tu_value positions; /* i32 [z.after] */
} incremental;

static int *axis_of(const incremental *p, tu__edge edge) {
    return tu__resize_axis(&p->z, edge);
}

static tu_status find_context(const tu_graph *graph, int64_t *context) {
    *context = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tu__node *node = graph->nodes[i];
        if (node->op->code != TU__OP_INPUT) continue;
        tu_type type = node->outputs[0];
        bool are_tokens = type.dtype == TU_I32 && type.shape.rank == 2 && type.shape.dim[0] == 1;
        if (!are_tokens || *context)
            return tu_fail(TU_UNSUPPORTED, "input '%s' %s: expected one input, tokens i32[1,context]",
                           node->name, tu__type_string(type));
        *context = type.shape.dim[1];
    }
    return *context ? TU_OK
                    : tu_fail(TU_UNSUPPORTED, "the graph has no input: expected tokens i32[1,context]");
}

/* ---- Ordinary operations ---- */

static tu_status fail_mixed(const tu__node *node) {
    return tu_fail(
        TU_UNSUPPORTED,
        "this network cannot generate: %s '%s' combines positions: expected operations on single positions and "
        "causal attention",
        node->op->name, node->name);
}

static tu_status make_positioned(incremental *p, const tu__node *node, tu_value *inputs) {
    int *layouts = tu__arena_alloc(&p->z.arena, 2 * ((size_t)node->input_count + 1) * sizeof *layouts);
    if (!layouts) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < node->input_count; i++) layouts[i] = *axis_of(p, node->inputs[i]);
    tu__sharding s = {.graph = p->z.r.from,
                      .node = node,
                      .samples = p->z.before,
                      .in = layouts,
                      .read = layouts + node->input_count + 1};
    if (tu__apply_shard_rule(&s) != TU_OK) return fail_mixed(node);
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (s.out[i] < 0) return fail_mixed(node);
        *axis_of(p, (tu__edge){node->id, i}) = s.out[i];
    }
    tu__node_request request = tu__rewrite_request(&p->z.r, node, inputs);
    for (uint32_t i = 0; i < node->input_count; i++)
        if (layouts[i] < 0 && s.read[i] >= 0)
            tu_scope(p->z.r.to, SCOPE) inputs[i] = tu_gather(inputs[i], p->positions, s.read[i]);
    return tu__resize_make(&p->z, node, s.out[0], &request);
}

/* ---- Attention ---- */

/* Adds the keys or values of the new positions [heads, count, width] to a variable and returns all of them. */
static tu_value remember(incremental *p, const tu__node *node, const char *what, tu_value rows) {
    tu_type type = tu_value_type(rows);
    tu__text name = {0};
    tu__text_printf(&name, "%s/%s", node->name, what);
    type.shape.dim[1] = p->z.before;
    tu_value before =
        name.failed ? tu__graph_fail(p->z.r.to, TU_NO_MEMORY, "%s", tu_message())
                    : tu_variable(p->z.r.to, tu__text_string(&name), type.dtype, type.shape, .frozen = true);
    tu__text_free(&name);
    tu_value after = tu_scatter_add(before, p->positions, rows, 1);
    tu_assign(before, after);
    return after;
}

/* Returns queries, keys or values as [heads, count, width]. */
static tu_value part_of(tu_value x, int part) {
    tu_shape s = tu_value_shape(x);
    tu_value rows = tu_reshape(tu_slice(x, 2, part, part + 1, 1), TU_SHAPE(s.dim[1], s.dim[3], s.dim[4]));
    return tu_transpose(rows, 1, 0, 2);
}

/* x [1, count, 3, heads, width] -> y [1, count, heads, width] */
static tu_value attend(incremental *p, const tu__node *node, tu_value x) {
    const struct tu__attention_attrs *a = node->attrs;
    tu_shape s = tu_value_shape(x);
    double scale = a->scale != 0 ? a->scale : 1 / sqrt((double)s.dim[4]);
    tu_value keys = remember(p, node, "keys", part_of(x, 1)),
             values = remember(p, node, "values", part_of(x, 2));
    tu_value scores = tu_scale(tu_matmul(part_of(x, 0), keys, .transpose_b = true), scale);
    tu_value key =
        tu_reshape(tu_cumsum(tu_fill(p->z.r.to, TU_I32, TU_SHAPE(p->z.before), 1), 0, .exclusive = true),
                   TU_SHAPE(1, p->z.before));
    tu_value visible = tu_less_equal(key, tu_reshape(p->positions, TU_SHAPE(p->z.after, 1)));
    scores = tu_select(visible, scores, tu_number(scores, -1e30));
    tu_value y = tu_transpose(tu_matmul(tu_softmax(scores, -1), values), 1, 0, 2);
    return tu_reshape(y, TU_SHAPE(1, p->z.after, s.dim[3], s.dim[4]));
}

static tu_status make_attention(incremental *p, const tu__node *node) {
    const struct tu__attention_attrs *a = node->attrs;
    if (!a->causal || *axis_of(p, node->inputs[0]) != TIME_AXIS) return fail_mixed(node);
    tu_value x = tu__rewrite_value(&p->z.r, node->inputs[0]), y = x;
    TU_TRY(tu__scope_replace(p->z.r.to, "", NULL)); /* leaves that of the node before */
    tu_scope(p->z.r.to, SCOPE) y = attend(p, node, x);
    tu__rewrite_map(&p->z.r, (tu__edge){node->id, 0}, y);
    *axis_of(p, (tu__edge){node->id, 0}) = TIME_AXIS;
    return tu_graph_status(p->z.r.to);
}

/* ---- All nodes ---- */

static bool reads_positions(const incremental *p, const tu__node *node) {
    for (uint32_t i = 0; i < node->input_count; i++)
        if (*axis_of(p, node->inputs[i]) >= 0) return true;
    return false;
}

static tu_status convert_node(incremental *p, const tu__node *node) {
    for (uint32_t i = 0; i < node->input_count; i++) /* the logarithms of an attention */
        if (!tu_ok(tu__rewrite_value(&p->z.r, node->inputs[i]))) return fail_mixed(node);
    bool is_input = node->op->code == TU__OP_INPUT;
    if (node->op->code == TU__OP_ATTENTION && reads_positions(p, node)) return make_attention(p, node);
    tu_value *inputs =
        tu__alloc_array((size_t)node->input_count + 1, sizeof *inputs, "an operation's inputs");
    if (!inputs) return TU_NO_MEMORY;
    tu_status status;
    if (reads_positions(p, node)) {
        status = make_positioned(p, node, inputs);
    } else {
        int axis = is_input ? TIME_AXIS : TU__REPLICATED;
        for (uint32_t i = 0; i < node->output_count; i++) *axis_of(p, (tu__edge){node->id, i}) = axis;
        tu__node_request request = tu__rewrite_request(&p->z.r, node, inputs);
        status = tu__resize_make(&p->z, node, axis, &request);
    }
    tu__free(inputs);
    return status;
}

/* Marks the nodes that the result "logits" depends on; all of them if there is no such result. */
static void mark_needed(const tu_graph *graph, bool *is_needed) {
    bool found = false;
    for (uint32_t i = 0; i < graph->result_count; i++)
        if (strcmp(graph->results[i].name, "logits") == 0)
            found = is_needed[graph->results[i].value.node] = true;
    for (uint32_t id = graph->node_count; id-- > 0;) {
        if (!found) is_needed[id] = true;
        for (uint32_t i = 0; i < graph->nodes[id]->input_count && is_needed[id]; i++)
            is_needed[graph->nodes[id]->inputs[i].node] = true;
    }
}

static tu_status convert(incremental *p) {
    const tu_graph *graph = p->z.r.from;
    bool *is_needed = tu__arena_alloc(&p->z.arena, graph->node_count + 1); /* zeroed */
    if (!is_needed) return TU_NO_MEMORY;
    mark_needed(graph, is_needed);
    tu_value first = tu_input(p->z.r.to, TU__POSITION, TU_I32, TU_SCALAR);
    tu_scope(p->z.r.to, SCOPE) {
        tu_value ones = tu_fill(p->z.r.to, TU_I32, TU_SHAPE(p->z.after), 1);
        p->positions = tu_add(tu_cumsum(ones, 0, .exclusive = true), first);
    }
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (is_needed[i]) TU_TRY(convert_node(p, graph->nodes[i]));
    return tu_graph_status(p->z.r.to);
}

tu_status tu__incremental(const tu_graph *graph, int64_t count, tu_graph **made) {
    *made = NULL;
    incremental p = {.z = {.arena = {.purpose = "a graph for new positions"}, .after = count}};
    TU_TRY(find_context(graph, &p.z.before));
    TU_TRY(tu__resize_begin(&p.z, graph));
    return tu__resize_end(&p.z, convert(&p), made);
}
