/* Finding the bias and the activation that follow a node, and taking them into its kernel. */
#include "device/cpu/ending.h"

#include "device/cpu/select.h"

/* One number for each place along the last axis of `type`. */
static bool is_bias(tu_type bias, tu_type type) {
    int64_t rank = type.shape.rank;
    return bias.dtype == type.dtype && bias.shape.rank >= 1 && bias.shape.rank <= rank &&
           bias.shape.dim[bias.shape.rank - 1] == type.shape.dim[rank - 1] &&
           tu_shape_elements(bias.shape) == type.shape.dim[rank - 1];
}

/* The other input of an addition to `value`, if it is a bias. */
static bool find_bias(const cpu_selection *s, const tu__node *add, tu__edge value, tu__edge *bias) {
    if (!add || add->op->code != TU__OP_ADD) return false;
    int own = add->inputs[0].node == value.node && add->inputs[0].output == value.output ? 0 : 1;
    tu__edge other = add->inputs[1 - own];
    const tu_type type = s->graph->nodes[value.node]->outputs[value.output];
    *bias = other;
    return is_bias(s->graph->nodes[other.node]->outputs[other.output], type) &&
           tu_shape_equal(add->outputs[0].shape, type.shape);
}

/* The only reader, unless another kernel has it already: where two products are added, one of them takes the sum. */
static const tu__node *free_reader(cpu_selection *s, tu__edge value) {
    const tu__node *reader = cpu_only_reader(s, value);
    return reader && s->plan->state[reader->id] != CPU_DONE ? reader : NULL;
}

cpu_ending cpu_ending_of(cpu_selection *s, const tu__node *node,
                         bool (*applies)(const tu__node *activation)) {
    cpu_ending e = {.result = {node->id, 0}};
    const tu__node *reader = free_reader(s, e.result);
    if (find_bias(s, reader, e.result, &e.bias)) {
        e.add = reader;
        e.result = (tu__edge){reader->id, 0};
        reader = free_reader(s, e.result);
    }
    if (reader && applies && reader->input_count == 1 && applies(reader)) {
        e.activation = reader;
        e.result = (tu__edge){reader->id, 0};
    }
    return e;
}

tu_status cpu_kernel_end(cpu_kernel *k, const cpu_ending *e) {
    const tu__node *const nodes[2] = {e->add, e->activation};
    for (int i = 0; i < 2; i++) {
        if (!nodes[i]) continue;
        TU_TRY(cpu_kernel_cover(k, nodes[i]));
        cpu_mark_done(k->owner, nodes[i]);
    }
    return e->add ? cpu_kernel_read(k, e->bias) : TU_OK;
}

enum { RELU_GRAIN = 1 << 14 /* elements worth another thread */ };

static void relu_f32(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    float *x = context;
    for (int64_t i = first; i < last; i++) x[i] = x[i] < 0 ? 0 : x[i];
}

/* As integers: numbers below zero lie between minus infinity, 0xff80, and the smallest, 0x8001. */
static void relu_bf16(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    int16_t *x = context;
    for (int64_t i = first; i < last; i++) x[i] = x[i] <= -128 && x[i] != INT16_MIN ? 0 : x[i];
}

void cpu_relu_in_place(tu_dtype dtype, void *data, int64_t count) {
    tu__parallel_for(count, RELU_GRAIN, dtype == TU_BF16 ? relu_bf16 : relu_f32, data);
}

const char *cpu_ending_name(const cpu_ending *e, const char *const names[6]) {
    int activation = !e->activation ? 0 : e->activation->op->code == TU__OP_RELU ? 2 : 4;
    return names[activation + (e->add ? 1 : 0)];
}
