/* Folds constant scales and shifts per channel into the weights before them.
 *
 * At inference batch normalisation is (y - mean) * scale + beta, with constants per channel, and y is the result of a
 * convolution or a matrix product. Both are linear: the scale can multiply the filters instead, once, and all shifts
 * together are one bias. The chain of additions, subtractions, multiplications and divisions after the product is
 * followed as long as each value has one reader. Products and sums of the folded constants are computed in f64 and rounded
 * once. */
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "infer/freeze.h"
#include "pass/pass.h"

/* A product and the chain that is folded into it. */
typedef struct chain {
    const tu__node *product, *last; /* the convolution or matrix product; the last node of the chain */
    int64_t channels;
    double *scale, *shift; /* per channel: last = product * scale + shift */
    uint32_t multiplications, additions;
} chain;

typedef struct folder {
    const tu_graph *graph;
    tu__arena arena;
    uint32_t *reader;     /* per node: its only reader; TU_NO_NODE: none, or several */
    uint32_t *read_count; /* per node, including named results */
    bool *skipped;        /* per node: part of a chain, but not its last node */
    chain **chains;       /* per node: the chain that ends there */
} folder;

static tu_status find_readers(folder *f, const tu__unit *unit) {
    const tu_graph *g = f->graph;
    size_t count = (size_t)g->node_count + 1;
    f->reader = tu__arena_alloc(&f->arena, count * sizeof *f->reader);
    f->read_count = tu__arena_alloc(&f->arena, count * sizeof *f->read_count);
    f->skipped = tu__arena_alloc(&f->arena, count * sizeof *f->skipped);
    f->chains = tu__arena_alloc(&f->arena, count * sizeof(chain *));
    if (!f->reader || !f->read_count || !f->skipped || !f->chains) return TU_NO_MEMORY;
    for (uint32_t id = 0; id < g->node_count; id++) {
        const tu__node *node = g->nodes[id];
        f->reader[id] = TU_NO_NODE;
        for (uint32_t i = 0; i < node->input_count; i++) {
            f->read_count[node->inputs[i].node]++;
            f->reader[node->inputs[i].node] = id;
        }
        for (uint32_t i = 0; i < node->after_count; i++) f->read_count[node->after[i]] += 2;
    }
    for (uint32_t i = 0; i < g->result_count; i++) f->read_count[g->results[i].value.node]++;
    for (size_t i = 0; i < unit->fetch_count; i++) f->read_count[unit->fetch[i].node]++;
    return TU_OK;
}

/* ---- Finding chains ---- */

/* Returns the weights whose filters can be scaled; NULL if the node is no such product. */
static const tu__node *weights_of(const folder *f, const tu__node *node) {
    bool is_product = node->op->code == TU__OP_CONV2D || node->op->code == TU__OP_MATMUL;
    if (!is_product || node->after_count) return NULL;
    const tu__node *weights = f->graph->nodes[node->inputs[1].node];
    tu_dtype dtype = node->outputs[0].dtype;
    bool is_matrix = node->op->code == TU__OP_CONV2D || weights->outputs[0].shape.rank == 2;
    return weights->op->code == TU__OP_CONSTANT && is_matrix && (dtype == TU_F32 || dtype == TU_F64) ? weights
                                                                                                     : NULL;
}

static int64_t last_dim(tu_shape shape) {
    return shape.rank ? shape.dim[shape.rank - 1] : 1;
}

/* Reads a constant with one number, or one per channel. */
static bool read_per_channel(const folder *f, tu__edge edge, int64_t channels, double *numbers) {
    const tu__node *node = f->graph->nodes[edge.node];
    tu_type type = node->outputs[0];
    int64_t elements = tu_shape_elements(type.shape);
    if (node->op->code == TU__OP_FILL && elements == 1) {
        for (int64_t i = 0; i < channels; i++) numbers[i] = tu__attrs(node, fill)->number;
        return true;
    }
    if (node->op->code != TU__OP_CONSTANT || !(elements == 1 || elements == channels)) return false;
    if (elements == channels && last_dim(type.shape) != channels) return false;
    tu__load_array(type.dtype, node->data, elements, numbers);
    for (int64_t i = elements; i < channels; i++) numbers[i] = numbers[0];
    return true;
}

/* Appends a node to the chain: `numbers` are those of its constant, which is its second operand unless `swapped`. */
static bool append(chain *c, tu__opcode op, bool swapped, const double *numbers) {
    bool adds = op == TU__OP_ADD || op == TU__OP_SUB;
    if (!adds && op != TU__OP_MUL && (op != TU__OP_DIV || swapped)) return false;
    for (int64_t i = 0; i < c->channels; i++) {
        double factor = op == TU__OP_MUL ? numbers[i] : op == TU__OP_DIV ? 1 / numbers[i] : 1;
        if (op == TU__OP_SUB && swapped) factor = -1;
        c->scale[i] *= factor;
        c->shift[i] *= factor;
        if (adds) c->shift[i] += op == TU__OP_SUB && !swapped ? -numbers[i] : numbers[i];
    }
    c->multiplications += !adds || (op == TU__OP_SUB && swapped);
    c->additions += adds;
    return true;
}

/* Appends the reader of the chain's last value, if it can be folded. */
static bool extend(folder *f, chain *c, double *numbers) {
    uint32_t last = c->last->id;
    const tu__node *reader =
        f->read_count[last] == 1 && f->reader[last] != TU_NO_NODE ? f->graph->nodes[f->reader[last]] : NULL;
    if (!reader || reader->input_count != 2 || reader->after_count) return false;
    bool swapped = reader->inputs[1].node == last;
    tu_type type = reader->outputs[0];
    if (type.dtype != c->last->outputs[0].dtype || !tu_shape_equal(type.shape, c->last->outputs[0].shape))
        return false;
    if (!read_per_channel(f, reader->inputs[swapped ? 0 : 1], c->channels, numbers)) return false;
    if (!append(c, reader->op->code, swapped, numbers)) return false;
    c->last = reader;
    return true;
}

static tu_status find_chain(folder *f, const tu__node *product) {
    chain *c = tu__arena_alloc(&f->arena, sizeof *c);
    if (!c) return TU_NO_MEMORY;
    *c = (chain){product, product, last_dim(product->outputs[0].shape), NULL, NULL, 0, 0};
    double *numbers = tu__arena_alloc(&f->arena, 3 * (size_t)c->channels * sizeof *numbers);
    if (!numbers) return TU_NO_MEMORY;
    c->scale = numbers + c->channels;
    c->shift = c->scale + c->channels;
    for (int64_t i = 0; i < c->channels; i++) c->scale[i] = 1;
    uint32_t nodes[64], count = 0;
    while (count < 64 && extend(f, c, numbers)) nodes[count++] = c->last->id;
    if (!c->multiplications && c->additions < 2) return TU_OK;
    for (uint32_t i = 0; i + 1 < count; i++) f->skipped[nodes[i]] = true;
    f->skipped[product->id] = true;
    f->chains[c->last->id] = c;
    return TU_OK;
}

/* ---- Building ---- */

static tu_value make_constant(tu__rewrite *r, const tu__node *base, const char *suffix, tu_type type,
                              const double *numbers) {
    tu__shared_data *data = tu__shared_data_new(tu_type_bytes(type), base->name);
    if (!data) return tu__graph_fail(r->to, TU_NO_MEMORY, "%s", tu_message());
    tu__store_array(type.dtype, numbers, tu_shape_elements(type.shape), data->data);
    struct tu__constant_attrs attrs = {.dtype = type.dtype, .shape = type.shape};
    tu_value value = tu__rewrite_insert(
        r, base->name, suffix, &(tu__node_request){.op = TU__OP_CONSTANT, .attrs = &attrs, .shared = data});
    tu__shared_data_release(data);
    return value;
}

/* Multiplies the filters [channels, ...], or the columns of a matrix [k, channels], by the scales. */
static void scale_weights(const chain *c, const tu__node *weights, double *numbers) {
    int64_t count = tu_shape_elements(weights->outputs[0].shape);
    bool is_by_column = c->product->op->code == TU__OP_MATMUL && !tu__attrs(c->product, matmul)->transpose_b;
    int64_t per_channel = count / c->channels;
    for (int64_t i = 0; i < count; i++)
        numbers[i] *= c->scale[is_by_column ? i % c->channels : i / per_channel];
}

static tu_value make_weights(const folder *f, tu__rewrite *r, const chain *c) {
    const tu__node *weights = f->graph->nodes[c->product->inputs[1].node];
    tu_type type = weights->outputs[0];
    int64_t count = tu_shape_elements(type.shape);
    double *numbers = tu__alloc_array((size_t)count, sizeof *numbers, weights->name);
    if (!numbers) return tu__graph_fail(r->to, TU_NO_MEMORY, "%s", tu_message());
    tu__load_array(type.dtype, weights->data, count, numbers);
    scale_weights(c, weights, numbers);
    tu_value value = make_constant(r, weights, "/scaled", type, numbers);
    tu__free(numbers);
    return value;
}

static tu_status build_chain(const folder *f, tu__rewrite *r, const chain *c) {
    tu_value inputs[2];
    tu__node_request request = tu__rewrite_request(r, c->product, inputs);
    inputs[1] = make_weights(f, r, c);
    tu_value product = tu__rewrite_make(r, c->product, &request);
    tu_type type = {c->product->outputs[0].dtype, TU_SHAPE(c->channels)};
    tu_value shift = make_constant(r, c->product, "/shift", type, c->shift);
    tu_value sum = tu__rewrite_make(r, c->last,
                                    &(tu__node_request){.op = TU__OP_ADD,
                                                        .inputs = (tu_value[]){product, shift},
                                                        .input_count = 2,
                                                        .device = c->last->device});
    TU_TRY(tu_graph_status(r->to));
    tu__rewrite_map(r, (tu__edge){c->last->id, 0}, sum);
    return TU_OK;
}

static tu_status fold_chains(folder *f, tu__rewrite *r) {
    for (uint32_t id = 0; id < f->graph->node_count; id++) {
        if (f->chains[id])
            TU_TRY(build_chain(f, r, f->chains[id]));
        else if (!f->skipped[id])
            TU_TRY(tu__rewrite_copy(r, f->graph->nodes[id]));
    }
    return TU_OK;
}

static tu_status find_chains(folder *f, const tu__unit *unit) {
    TU_TRY(find_readers(f, unit));
    for (uint32_t id = 0; id < f->graph->node_count; id++)
        if (weights_of(f, f->graph->nodes[id])) TU_TRY(find_chain(f, f->graph->nodes[id]));
    return TU_OK;
}

tu_status tu__fold_scales(tu__unit *unit) {
    folder f = {.graph = unit->graph, .arena = {.purpose = "folding scales into weights"}};
    tu__rewrite r;
    tu_status status = find_chains(&f, unit);
    if (status == TU_OK) status = tu__rewrite_begin(&r, unit->graph);
    if (status == TU_OK) {
        status = fold_chains(&f, &r);
        if (status == TU_OK)
            status = tu__rewrite_finish(&r, unit);
        else
            tu__rewrite_abandon(&r);
    }
    tu__arena_free(&f.arena);
    return status == TU_OK ? tu__unit_drop_dead(unit) : status;
}
