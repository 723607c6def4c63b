/* Checks that shape rules handle any attributes and inputs that a graph file may contain. Every node of every case
 * is created again with each attribute cell (8 bytes) set to extreme numbers, and with each input replaced by
 * every other value of the graph. The shape rule must fail with a message that names the operation, or
 * succeed; then the node's costs must not be negative, and its outputs must not be empty. Nothing is computed, so
 * shapes may have any size. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/attrs.h"
#include "graph/graph.h"
#include "graph/summary.h"
#include "ops/driver.h"

enum { MAX_INPUTS = 16, MAX_ATTRIBUTE_BYTES = 512 };

static long tried, accepted, failures;
static bool seen[TU__OP_COUNT];

static void report_failure(const case_run *c, const tu__node *node, const char *what) {
    printf("FAIL %s: %s '%s': %s: %s\n", c->entry->name, node->op->name, node->name, what, tu_message());
    failures++;
}

/* Clears the graph's error. A graph keeps its first error and would ignore later calls. */
static void clear_error(tu_graph *graph) {
    graph->status = TU_OK;
    graph->message[0] = '\0';
}

/* Creates a node like `like` with other attributes or inputs, and checks the result. */
static void try_node(case_run *c, const tu__node *like, const void *attrs, const tu_value *inputs) {
    tu_graph *graph = c->graph;
    tu_value created = tu__make(graph, &(tu__node_request){.op = like->op->code,
                                                           .attrs = attrs,
                                                           .inputs = inputs,
                                                           .input_count = like->input_count,
                                                           .custom = like->custom});
    tried++;
    seen[like->op->code] = true;
    if (!tu_ok(created)) {
        if (graph->status != TU_INVALID && graph->status != TU_UNSUPPORTED)
            report_failure(c, like, "fails with the wrong status");
        if (!strstr(tu_message(), like->op->name))
            report_failure(c, like, "the message does not name the operation");
        clear_error(graph);
        return;
    }
    accepted++;
    tu_type in[MAX_INPUTS];
    const tu__node *node = tu__node_of(created);
    if (tu__node_flops(graph, node, in) < 0) report_failure(c, node, "the cost is negative");
    if (tu__node_activation_bytes(node) < 0) report_failure(c, node, "the activation bytes are negative");
    for (uint32_t i = 0; i < node->output_count; i++)
        if (tu_shape_elements(node->outputs[i].shape) < 1)
            report_failure(c, node, "an output without elements");
    graph->node_count--; /* removes the node, to keep the graph small; its name stays in use */
}

static const int64_t extremes[] = {0,
                                   1,
                                   -1,
                                   2,
                                   3,
                                   7,
                                   8,
                                   9,
                                   255,
                                   256,
                                   INT32_MAX,
                                   INT32_MIN,
                                   INT64_C(1) << 47,
                                   INT64_C(1) << 48,
                                   INT64_C(1) << 62,
                                   INT64_MAX,
                                   INT64_MAX - 1,
                                   INT64_MIN,
                                   INT64_MIN + 1};

static void vary_attributes(case_run *c, const tu__node *node, const tu_value *inputs) {
    unsigned char attrs[MAX_ATTRIBUTE_BYTES];
    if (node->op->attr_bytes > sizeof attrs) abort();
    for (uint32_t cell = 0; cell < node->op->attr_bytes / 8; cell++)
        for (size_t i = 0; i < sizeof extremes / sizeof *extremes + 4; i++) {
            const double numbers[] = {NAN, INFINITY, -INFINITY, 1e308};
            size_t integers = sizeof extremes / sizeof *extremes;
            memcpy(attrs, node->attrs, node->op->attr_bytes);
            memcpy(attrs + 8 * cell, i < integers ? (const void *)&extremes[i] : &numbers[i - integers], 8);
            try_node(c, node, attrs, inputs);
        }
}

/* Sets two cells at once: the sum or the product of two attributes may overflow. */
static void vary_pairs(case_run *c, const tu__node *node, const tu_value *inputs) {
    static const int64_t large[] = {-1, INT64_C(1) << 31, INT64_C(1) << 47, INT64_MAX, INT64_MIN};
    uint32_t cells = node->op->attr_bytes / 8;
    unsigned char attrs[MAX_ATTRIBUTE_BYTES];
    for (uint32_t a = 0; a < cells; a++)
        for (uint32_t b = a + 1; b < cells; b++)
            for (size_t i = 0; i < 25; i++) {
                memcpy(attrs, node->attrs, node->op->attr_bytes);
                memcpy(attrs + 8 * a, &large[i / 5], 8);
                memcpy(attrs + 8 * b, &large[i % 5], 8);
                try_node(c, node, attrs, inputs);
            }
}

static void vary_inputs(case_run *c, const tu__node *node, const tu_value *inputs, uint32_t values) {
    tu_value varied[MAX_INPUTS];
    for (uint32_t k = 0; k < node->input_count; k++)
        for (uint32_t id = 0; id < values; id++)
            for (uint32_t output = 0; output < c->graph->nodes[id]->output_count; output++) {
                memcpy(varied, inputs, node->input_count * sizeof *varied);
                varied[k] = tu__value(c->graph, id, output);
                try_node(c, node, node->attrs, varied);
            }
}

/* Adds inputs of rare types and huge shapes, which vary_inputs() uses. */
static void add_unusual_values(tu_graph *graph) {
    tu_input(graph, "odd0", TU_F32, TU_SCALAR);
    tu_input(graph, "odd1", TU_BOOL, TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 1));
    tu_input(graph, "odd2", TU_I64, TU_SHAPE(3));
    tu_input(graph, "odd3", TU_F32, TU_SHAPE(1 << 24, 1 << 24));
    tu_input(graph, "odd4", TU_F32, TU_SHAPE(1 << 12, 1 << 12, 1 << 12, 1 << 12));
    tu_input(graph, "odd5", TU_F16, TU_SHAPE(2, 3, 4, 5));
}

static void vary_case(case_run *c) {
    case_add_gradients(c);
    add_unusual_values(c->graph);
    uint32_t count = c->graph->node_count;
    for (uint32_t id = 0; id < count; id++) {
        const tu__node *node = c->graph->nodes[id];
        if (node->input_count > MAX_INPUTS || node->op->code == TU__OP_CONSTANT) continue;
        tu_value inputs[MAX_INPUTS];
        for (uint32_t k = 0; k < node->input_count; k++) inputs[k] = tu__input_of(c->graph, node, k);
        vary_attributes(c, node, inputs);
        if (c->instance == 1) vary_pairs(c, node, inputs);
        vary_inputs(c, node, inputs, count);
    }
    if (tu_graph_verify(c->graph) != TU_OK)
        report_failure(c, c->graph->nodes[0], "the verifier rejects the graph");
}

int main(void) {
    for (const op_case *e = case_first(); e; e = e->next) {
        case_run *c = case_begin(e, TU_F32, 1);
        while (c->instance < 3 && case_next_instance(c)) vary_case(c);
        case_end(c);
    }
    for (int i = 0; i < TU__OP_COUNT; i++) {
        if (seen[i] || i == TU__OP_CONSTANT) continue;
        printf("FAIL operation %s was not tried\n", tu__op_get((tu__opcode)i)->name);
        failures++;
    }
    printf("%ld nodes tried, %ld accepted\n", tried, accepted);
    return failures > 0 || accepted == 0 || accepted == tried;
}
