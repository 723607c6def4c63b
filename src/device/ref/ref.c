/* The reference device: runs any graph, one node after another, by the operations' own meanings.
 *
 * Every tensor is an array of doubles, each rounded to what its element type can hold after every operation: so
 * results are what an ideal device would store, and each fast device is tested against them. Nothing here is
 * fast; everything is meant to be obvious. A tensor lives until its last reader has run. */
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/text.h"
#include "device/device.h"

typedef struct interpreter {
    const tu__execution *run;
    uint32_t *slot;      /* node -> its first tensor */
    tu__tensor *tensors; /* every output of every node; data NULL: not computed, or no longer needed */
    uint32_t *readers;   /* per tensor: reads still to come */
    size_t tensor_count;
} interpreter;

static const tu__node *node_at(const interpreter *it, uint32_t place) {
    return it->run->graph->nodes[it->run->schedule[place]];
}

static size_t tensor_of(const interpreter *it, tu__edge edge) {
    return it->slot[edge.node] + edge.output;
}

static void end(interpreter *it) {
    for (size_t i = 0; i < it->tensor_count && it->tensors; i++) tu__free(it->tensors[i].data);
    tu__free(it->tensors);
    tu__free(it->readers);
    tu__free(it->slot);
}

static tu_status begin(interpreter *it) {
    const tu_graph *graph = it->run->graph;
    it->slot = tu__alloc_array(graph->node_count, sizeof *it->slot, "a run");
    if (!it->slot) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < it->run->count; i++) {
        const tu__node *node = node_at(it, i);
        it->slot[node->id] = (uint32_t)it->tensor_count;
        it->tensor_count += node->output_count;
    }
    it->tensors = tu__alloc_array(it->tensor_count, sizeof *it->tensors, "a run");
    it->readers = tu__alloc_array(it->tensor_count, sizeof *it->readers, "a run");
    if (!it->tensors || !it->readers) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < it->run->count; i++) {
        const tu__node *node = node_at(it, i);
        for (uint32_t k = 0; k < node->output_count; k++)
            it->tensors[it->slot[node->id] + k].type = node->outputs[k];
        for (uint32_t k = 0; k < node->input_count; k++) it->readers[tensor_of(it, node->inputs[k])]++;
    }
    for (size_t i = 0; i < it->run->fetch_count; i++) it->readers[tensor_of(it, it->run->fetch[i])]++;
    return TU_OK;
}

static void release(interpreter *it, size_t tensor) {
    if (--it->readers[tensor]) return;
    tu__free(it->tensors[tensor].data);
    it->tensors[tensor].data = NULL;
}

static tu_status compute(interpreter *it, const tu__node *node, const void *leaf) {
    tu__tensor *out = &it->tensors[it->slot[node->id]];
    for (uint32_t i = 0; i < node->output_count; i++) {
        out[i].data =
            tu__alloc_array((size_t)tu_shape_elements(out[i].type.shape), sizeof(double), node->name);
        if (!out[i].data) return TU_NO_MEMORY;
    }
    if (leaf) {
        tu__load_array(out[0].type.dtype, leaf, tu_shape_elements(out[0].type.shape), out[0].data);
        return TU_OK;
    }
    tu__tensor *in = tu__alloc_array(node->input_count + 1, sizeof *in, "an operation's inputs");
    if (!in) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < node->input_count; i++) in[i] = it->tensors[tensor_of(it, node->inputs[i])];
    tu__meaning meaning = {.node = node, .attrs = node->attrs, .in = in, .out = out, .seed = it->run->seed};
    tu_status status = node->op->meaning(&meaning);
    tu__free(in);
    for (uint32_t i = 0; i < node->output_count && status == TU_OK; i++)
        tu__round_array(out[i].type.dtype, out[i].data, tu_shape_elements(out[i].type.shape));
    return status;
}

static tu_status step(interpreter *it, uint32_t place) {
    const tu__node *node = node_at(it, place);
    TU_TRY(compute(it, node, it->run->leaves[place]));
    for (uint32_t i = 0; i < node->input_count; i++) release(it, tensor_of(it, node->inputs[i]));
    for (uint32_t i = 0; i < node->output_count; i++) { /* outputs nobody reads */
        it->readers[it->slot[node->id] + i]++;
        release(it, it->slot[node->id] + i);
    }
    return TU_OK;
}

static void fetch(const interpreter *it) {
    for (size_t i = 0; i < it->run->fetch_count; i++) {
        const tu__tensor *t = &it->tensors[tensor_of(it, it->run->fetch[i])];
        if (it->run->out[i])
            tu__store_array(t->type.dtype, t->data, tu_shape_elements(t->type.shape), it->run->out[i]);
    }
}

static tu_status execute(const tu__execution *run) {
    interpreter it = {.run = run};
    tu_status status = begin(&it);
    for (uint32_t i = 0; i < run->count && status == TU_OK; i++) status = step(&it, i);
    if (status == TU_OK) fetch(&it);
    end(&it);
    return status;
}

const tu__device tu__ref_device = {
    .info = {.name = "ref",
             .kind = "reference",
             .description = "every operation and type in plain C, computed in f64, on one core"},
    .execute = execute,
};
