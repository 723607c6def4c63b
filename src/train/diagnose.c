/* Recomputes a step and checks every value. See diagnose.h.
 *
 * The nodes of a graph are in topological order, so the first node with a non-finite output is the cause: all its
 * inputs are finite. Nodes are compiled in groups whose outputs fit a fixed amount of memory, one program per group.
 * The search ends at the first non-finite value, usually after one or two programs. */
#include "train/diagnose.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/number.h"
#include "graph/graph.h"

enum { MAX_VALUES = 128, MAX_BYTES = 256 << 20 };

typedef struct group {
    size_t count, bytes;
    tu_value values[MAX_VALUES];
    void *data[MAX_VALUES];
} group;

/* Returns the index of the first non-finite element, or -1. */
static int64_t first_nonfinite(tu_type type, const void *data) {
    int64_t count = tu_shape_elements(type.shape);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(tu__load(type.dtype, data, i))) return i;
    return -1;
}

static bool all_finite(tu_type type, const void *data) {
    return first_nonfinite(type, data) < 0;
}

static void describe_node(const tu__node *node, tu__finding *finding) {
    if (node->op->code == TU__OP_VARIABLE || node->op->code == TU__OP_INPUT)
        snprintf(finding->text, sizeof finding->text, "%s '%s'", node->op->name, node->name);
    else
        snprintf(finding->text, sizeof finding->text, "operation '%s' (%s)", node->name, node->op->name);
}

/* ---- Inputs and variables ---- */

static void check_input(const tu__node *node, const void *data, tu__finding *finding) {
    tu_type type = node->outputs[0];
    int64_t index = first_nonfinite(type, data);
    if (index < 0) return;
    describe_node(node, finding);
    if (type.shape.rank > 0) finding->sample = index / (tu_shape_elements(type.shape) / type.shape.dim[0]);
}

static tu_status check_variable(const tu_state *state, const tu__node *node, tu__finding *finding) {
    tu_type type = node->outputs[0];
    void *data = tu__alloc_aligned(tu_type_bytes(type), node->name);
    if (!data) return TU_NO_MEMORY;
    tu_status status = tu_state_get(state, node->name, data, tu_type_bytes(type));
    if (status == TU_OK && !all_finite(type, data)) describe_node(node, finding);
    tu__free_aligned(data);
    return status;
}

/* Missing numbers of tables are NaN. */
static bool may_be_missing(const tu__run_config *config, tu_value input) {
    const tu__column *c = tu__columns_find(&config->columns, tu__node_of(input)->name);
    return c && c->kind == TU_COLUMN_NUMBERS && !c->is_target;
}

static tu_status check_inputs_and_variables(const tu_graph *graph, const tu__run_config *config,
                                            const tu_state *state, size_t feed_count, const tu_feed *feeds,
                                            tu__finding *finding) {
    for (size_t i = 0; i < feed_count && !*finding->text; i++) {
        tu_type type = tu_value_type(feeds[i].input);
        if (tu_dtype_is_float(type.dtype) && !may_be_missing(config, feeds[i].input))
            check_input(tu__node_of(feeds[i].input), feeds[i].data, finding);
    }
    for (uint32_t i = 0; i < graph->node_count && !*finding->text; i++) {
        const tu__node *node = graph->nodes[i];
        if (node->op->code == TU__OP_VARIABLE && tu_dtype_is_float(node->outputs[0].dtype))
            TU_TRY(check_variable(state, node, finding));
    }
    return TU_OK;
}

/* ---- Operations ---- */

static bool is_computed(const tu__node *node) {
    switch (node->op->code) {
    case TU__OP_VARIABLE:
    case TU__OP_INPUT:
    case TU__OP_CONSTANT:
    case TU__OP_ASSIGN: return false;
    default: return true;
    }
}

/* Adds values, starting at node `*next`, until the group is full. */
static void fill_group(tu_graph *graph, uint32_t *next, group *g) {
    g->count = g->bytes = 0;
    for (; *next < graph->node_count; ++*next) {
        const tu__node *node = graph->nodes[*next];
        if (!is_computed(node)) continue;
        size_t bytes = 0;
        for (uint32_t k = 0; k < node->output_count; k++) bytes += tu_type_bytes(node->outputs[k]);
        if (g->count + node->output_count > MAX_VALUES || (g->count && g->bytes + bytes > MAX_BYTES)) return;
        g->bytes += bytes;
        for (uint32_t k = 0; k < node->output_count; k++)
            if (tu_dtype_is_float(node->outputs[k].dtype)) g->values[g->count++] = tu__value(graph, *next, k);
    }
}

static tu_status run_group(tu_graph *graph, const tu__run_config *config, tu_state *state, size_t feed_count,
                           const tu_feed *feeds, group *g) {
    for (size_t i = 0; i < g->count; i++) {
        g->data[i] = tu__alloc_aligned(tu_type_bytes(tu_value_type(g->values[i])), "a value to check");
        if (!g->data[i]) return TU_NO_MEMORY;
    }
    tu_program *program;
    const tu__settings *settings = &config->settings;
    const char *devices = config->rank_devices ? config->rank_devices : settings->devices;
    TU_TRY(tu_compile(graph, &program, .devices = devices, .threads = (int)settings->threads,
                      .precision = settings->precision, .tune_kernels = settings->tune_kernels,
                      .place = settings->place, .strict_placement = settings->strict_placement,
                      .fetch = g->values, .fetch_count = g->count, .no_updates = true));
    tu_status status = tu_run(program, state, feed_count, feeds, g->data);
    tu_program_free(program);
    return status;
}

static tu_status check_group(tu_graph *graph, const tu__run_config *config, tu_state *state,
                             size_t feed_count, const tu_feed *feeds, group *g, tu__finding *finding) {
    tu_status status = run_group(graph, config, state, feed_count, feeds, g);
    for (size_t i = 0; status == TU_OK && i < g->count && !*finding->text; i++)
        if (!all_finite(tu_value_type(g->values[i]), g->data[i]))
            describe_node(tu__node_of(g->values[i]), finding);
    for (size_t i = 0; i < g->count; i++) {
        tu__free_aligned(g->data[i]);
        g->data[i] = NULL;
    }
    return status;
}

tu_status tu__diagnose(tu_graph *graph, const tu__run_config *config, tu_state *state, size_t feed_count,
                       const tu_feed *feeds, tu__finding *finding) {
    *finding = (tu__finding){.sample = -1};
    TU_TRY(check_inputs_and_variables(graph, config, state, feed_count, feeds, finding));
    group *g = tu__alloc(sizeof *g, "a group of values to check");
    if (!g) return TU_NO_MEMORY;
    tu_status status = TU_OK;
    for (uint32_t next = 0; status == TU_OK && !*finding->text && next < graph->node_count;) {
        fill_group(graph, &next, g);
        if (g->count) status = check_group(graph, config, state, feed_count, feeds, g, finding);
    }
    tu__free(g);
    return status;
}
