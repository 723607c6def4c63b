/* Compares the public view of nodes (tutti/node.h) with graph files, for every operation: the graph of each case, with
 * gradients, is written, and the file is read here, by its description in docs/graph-file.md. Operation, name,
 * attributes, inputs, types and data of each node must be what the view returns. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/custom.h>
#include <tutti/node.h>

#include "graph/file.h"
#include "graph/op.h"
#include "ops/driver.h"

static bool seen[TU__OP_COUNT];
static uint32_t attributes_checked;

typedef struct check {
    const case_run *c;
    uint32_t node;
    const unsigned char *next; /* the next byte of the file */
    int failed;
} check;

static void expect(check *k, bool is_true, const char *what, const char *name) {
    if (is_true) return;
    printf("FAIL %s, instance %d, node %u (%s): %s %s\n", k->c->entry->name, k->c->instance, k->node,
           tu_node_operation(k->c->graph, k->node), what, name);
    k->failed = 1;
}

/* ---- Reading the file ---- */

static uint64_t read_number(check *k, size_t size) {
    uint64_t number = 0;
    memcpy(&number, k->next, size);
    k->next += size;
    return number;
}

static const char *read_string(check *k) {
    uint64_t length = read_number(k, 4);
    const char *string = (const char *)k->next;
    k->next += length + 1;
    return string;
}

static tu_shape read_shape(check *k) {
    tu_shape shape = {.rank = (int64_t)read_number(k, 1)};
    for (int64_t i = 0; i < shape.rank; i++) shape.dim[i] = (int64_t)read_number(k, 8);
    return shape;
}

/* ---- Attributes ---- */

static void check_element(check *k, const tu_attribute *a, uint32_t index) {
    switch (a->kind) {
    case TU_ATTRIBUTE_BOOL:
    case TU_ATTRIBUTE_DTYPE:
        expect(k, a->integers && a->integers[index] == (int64_t)read_number(k, 1), "differs in", a->name);
        break;
    case TU_ATTRIBUTE_I64:
    case TU_ATTRIBUTE_AXES:
        expect(k, a->integers && a->integers[index] == (int64_t)read_number(k, 8), "differs in", a->name);
        break;
    case TU_ATTRIBUTE_F64:
        expect(k, a->reals && memcmp(&a->reals[index], k->next, 8) == 0, "differs in", a->name);
        k->next += 8;
        break;
    case TU_ATTRIBUTE_SHAPE:
        expect(k, a->shapes && tu_shape_equal(a->shapes[index], read_shape(k)), "differs in", a->name);
        break;
    }
}

/* Reads an attribute by its index, and the same one by its name, in both ways. */
static tu_attribute read_attribute(check *k, uint32_t index) {
    const tu_graph *g = k->c->graph;
    tu_attribute a = TU_SIZED(tu_attribute), found = TU_SIZED(tu_attribute);
    expect(k, tu_node_attribute_at(g, k->node, index, &a) == TU_OK, "has no attribute at an index", "");
    if (k->failed) return a;
    expect(k, tu_node_find_attribute(g, k->node, a.name, &found) == TU_OK, "does not find", a.name);
    expect(k, memcmp(&a, &found, sizeof a) == 0, "finds by name another", a.name);
    bool is_shape = a.kind == TU_ATTRIBUTE_SHAPE;
    expect(k, !a.integers + !a.reals + !a.shapes == 2, "has not one value of", a.name);
    expect(k, is_shape == (a.shapes != NULL) && (a.kind == TU_ATTRIBUTE_F64) == (a.reals != NULL),
           "has another type of value in", a.name);
    int64_t cells[sizeof(tu_shape)];
    size_t words = is_shape ? a.count * sizeof(tu_shape) / 8 : a.count;
    const void *value = is_shape ? (const void *)a.shapes : a.reals ? (const void *)a.reals : a.integers;
    expect(k, tu_node_attribute(g, k->node, a.name, words, cells) == TU_OK, "does not copy", a.name);
    expect(k, value && memcmp(cells, value, 8 * words) == 0, "copies another", a.name);
    return a;
}

static bool is_zero(const tu_attribute *a) {
    for (uint32_t i = 0; i < a->count; i++)
        if ((a->integers && a->integers[i] != 0) || (a->shapes && a->shapes[i].rank != 0)) return false;
    static const double zeros[TU_MAX_RANK];
    return !a->reals || memcmp(a->reals, zeros, a->count * sizeof *zeros) == 0;
}

/* The file has the attributes that are not zero, in the order of the view. */
static void check_attributes(check *k) {
    uint64_t in_file = read_number(k, 4);
    uint32_t count = tu_node_attribute_count(k->c->graph, k->node);
    for (uint32_t i = 0; i < count && !k->failed; i++) {
        tu_attribute a = read_attribute(k, i);
        attributes_checked++;
        if (k->failed || is_zero(&a)) continue;
        expect(k, in_file-- > 0, "is not in the file:", a.name);
        if (k->failed) return;
        expect(k, strcmp(read_string(k), a.name) == 0, "has in the file another attribute than", a.name);
        expect(k, read_number(k, 1) == (uint64_t)a.kind, "has another kind of", a.name);
        expect(k, read_number(k, 4) == a.count, "has another number of elements of", a.name);
        for (uint32_t e = 0; e < a.count && !k->failed; e++) check_element(k, &a, e);
    }
    expect(k, in_file == 0, "has in the file more attributes than", "listed");
    tu_attribute none = TU_SIZED(tu_attribute);
    expect(k, tu_node_attribute_at(k->c->graph, k->node, count, &none) == TU_NOT_FOUND, "has one more", "");
    expect(k, tu_node_find_attribute(k->c->graph, k->node, "none", &none) == TU_NOT_FOUND, "finds", "none");
}

/* ---- The other parts of a node ---- */

static void check_edges(check *k) {
    const tu_graph *g = k->c->graph;
    enum { MAX_INPUTS = 64 };
    tu_edge inputs[MAX_INPUTS];
    uint32_t count = tu_node_inputs(g, k->node, MAX_INPUTS, inputs), outputs = tu_node_outputs(g, k->node);
    expect(k, read_number(k, 4) == count && count <= MAX_INPUTS, "differs in", "the number of inputs");
    for (uint32_t i = 0; i < count && !k->failed; i++) {
        expect(k, read_number(k, 4) == inputs[i].node, "differs in", "an input");
        expect(k, read_number(k, 4) == inputs[i].output, "differs in", "an input");
    }
    expect(k, read_number(k, 4) == outputs, "differs in", "the number of outputs");
    for (uint32_t i = 0; i < outputs && !k->failed; i++) {
        tu_type type = tu_edge_type(g, (tu_edge){k->node, i});
        expect(k, read_number(k, 1) == (uint64_t)type.dtype, "differs in", "an element type");
        expect(k, tu_shape_equal(read_shape(k), type.shape), "differs in", "a shape");
    }
}

static void skip_constraints(check *k, uint64_t flags) {
    if (flags & TU__FILE_NODE_DEPS) k->next += 4 * read_number(k, 4);
    if (flags & TU__FILE_NODE_GROUPED) k->next += 4;
}

static void check_constant(check *k) {
    size_t bytes = 1;
    const void *data = tu_node_constant(k->c->graph, k->node, &bytes);
    bool is_constant = strcmp(tu_node_operation(k->c->graph, k->node), "constant") == 0;
    expect(k, (data != NULL) == is_constant && (bytes > 0) == is_constant, "has or lacks", "data");
    expect(k, tu_node_constant(k->c->graph, k->node, NULL) == data, "returns twice different", "data");
    if (!is_constant || k->failed) return;
    expect(k, read_number(k, 8) == bytes && memcmp(k->next, data, bytes) == 0, "differs in", "data");
    k->next += bytes;
}

/* An expression contains no operand that the node does not have. */
static void check_expression(check *k, uint32_t traits) {
    const tu_graph *g = k->c->graph;
    const char *expression = tu_node_expression(g, k->node);
    expect(k, (expression != NULL) == ((traits & TU_TRAIT_POINTWISE) != 0), "has or lacks", "an expression");
    if (!expression) return;
    uint32_t inputs = tu_node_inputs(g, k->node, 0, NULL), numbers = 0;
    for (uint32_t i = 0; i < tu_node_attribute_count(g, k->node); i++)
        numbers += read_attribute(k, i).kind == TU_ATTRIBUTE_F64;
    for (const char *c = expression; *c; c++) {
        bool is_word = (c > expression && (c[-1] == '_' || (c[-1] >= 'a' && c[-1] <= 'z'))) ||
                       (c[1] >= 'a' && c[1] <= 'z');
        if (is_word) continue;
        if (*c >= 'x' && *c <= 'z') expect(k, (uint32_t)(*c - 'x') < inputs, "has no input for", expression);
        if (*c >= 'a' && *c <= 'b')
            expect(k, (uint32_t)(*c - 'a') < numbers, "has no attribute for", expression);
    }
}

static void check_traits(check *k) {
    const tu_graph *g = k->c->graph;
    const char *name = tu_node_operation(g, k->node);
    uint32_t traits = tu_node_traits(g, k->node);
    const tu__op *op = tu__op_find(name);
    seen[op->code] = true;
    expect(k, traits == op->traits, "differs in", "traits");
    bool is_leaf =
        strcmp(name, "input") == 0 || strcmp(name, "constant") == 0 || strcmp(name, "variable") == 0;
    expect(k, ((traits & TU_TRAIT_LEAF) != 0) == is_leaf, "differs in", "TU_TRAIT_LEAF");
    tu_edge input;
    if (traits & TU_TRAIT_VIEW)
        expect(k,
               tu_node_inputs(g, k->node, 1, &input) == 1 &&
                   tu_type_bytes(tu_edge_type(g, input)) ==
                       tu_type_bytes(tu_edge_type(g, (tu_edge){k->node, 0})),
               "is not", "a view");
    check_expression(k, traits);
}

static void check_node(check *k) {
    const tu_graph *g = k->c->graph;
    expect(k, strcmp(read_string(k), tu_node_operation(g, k->node)) == 0, "differs in", "the operation");
    expect(k, strcmp(read_string(k), tu_node_name(g, k->node)) == 0, "differs in", "the name");
    uint64_t flags = read_number(k, 4);
    read_string(k); /* the device */
    const tu_custom_op *custom = tu_node_custom(g, k->node);
    expect(k, (custom != NULL) == (strcmp(tu_node_operation(g, k->node), "custom") == 0), "has or lacks",
           "a custom operation");
    if (custom) expect(k, strcmp(read_string(k), custom->name) == 0, "differs in", "the custom operation");
    check_attributes(k);
    check_edges(k);
    skip_constraints(k, flags);
    check_constant(k);
    check_traits(k);
}

static int check_graph(const case_run *c) {
    void *bytes;
    size_t size;
    check k = {.c = c};
    if (tu_graph_write(c->graph, &bytes, &size) != TU_OK) {
        printf("FAIL %s: %s\n", c->entry->name, tu_message());
        return 1;
    }
    k.next = (const unsigned char *)bytes + TU__FILE_HEADER;
    expect(&k, read_number(&k, 4) == tu_node_count(c->graph), "differs in", "the number of nodes");
    for (; k.node < tu_node_count(c->graph) && !k.failed; k.node++) check_node(&k);
    tu_bytes_free(bytes);
    return k.failed;
}

int main(void) {
    int cases = 0, failed = 0;
    for (const op_case *e = case_first(); e; e = e->next, cases++) {
        case_run *c = case_begin(e, TU_F32, 1);
        for (int broken = 0; !broken && case_next_instance(c); failed += broken) {
            case_add_gradients(c);
            broken = check_graph(c);
        }
        case_end(c);
    }
    for (int i = 0; i < TU__OP_COUNT; i++) {
        if (seen[i]) continue;
        printf("FAIL operation %s is in no case\n", tu__op_get((tu__opcode)i)->name);
        failed++;
    }
    printf("%d cases, %u attributes\n", cases, attributes_checked);
    return failed || !cases || !attributes_checked;
}
