/* Custom operations, defined by the user's shape, run and gradient functions (tu_custom_op).
 *
 * The run function receives dense tensors of the declared element types in host memory, not the doubles of reference
 * kernels, so that all devices can use it. */
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/sized.h"
#include "base/text.h"
#include "graph/custom.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* ---- The registry ---- */

typedef struct entry {
    const tu_custom_op *op;
    struct entry *next;
} entry;

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static entry *registry;

const tu_custom_op *tu__custom_find(const char *name) {
    const tu_custom_op *found = NULL;
    pthread_mutex_lock(&registry_lock);
    for (const entry *e = registry; e && !found; e = e->next)
        if (strcmp(e->op->name, name) == 0) found = e->op;
    pthread_mutex_unlock(&registry_lock);
    return found;
}

static tu_status check_custom(const tu_custom_op *op) {
    if (!op || !op->name || !*op->name)
        return tu_fail(TU_INVALID, "custom operation: expected a tu_custom_op with a name");
    if (op->struct_size < TU__FIRST_SIZE(tu_custom_op, gradient))
        return tu_fail(TU_INVALID,
                       "custom operation '%s': struct_size is %zu, expected sizeof(tu_custom_op), %zu",
                       op->name, op->struct_size, sizeof *op);
    if (!op->shape || !op->run)
        return tu_fail(TU_INVALID, "custom operation '%s': expected a shape and a run function", op->name);
    if (op->outputs < 1 || op->outputs > 64)
        return tu_fail(TU_INVALID, "custom operation '%s': outputs is %u, expected 1 to 64", op->name,
                       op->outputs);
    return TU_OK;
}

tu_status tu_custom_register(const tu_custom_op *op) {
    TU_TRY(check_custom(op));
    const tu_custom_op *registered = tu__custom_find(op->name);
    if (registered == op) return TU_OK;
    if (registered)
        return tu_fail(TU_INVALID, "custom operation '%s' is already registered with another tu_custom_op",
                       op->name);
    entry *added = tu__alloc(sizeof *added, "a custom operation");
    if (!added) return TU_NO_MEMORY;
    added->op = op;
    pthread_mutex_lock(&registry_lock);
    added->next = registry;
    registry = added;
    pthread_mutex_unlock(&registry_lock);
    return TU_OK;
}

/* Frees the list when the process ends. Operations are never unregistered before. */
__attribute__((destructor)) static void registry_free(void) {
    while (registry) {
        entry *e = registry;
        registry = e->next;
        tu__free(e);
    }
}

/* ---- Rules ---- */

tu_status tu__custom_shape(tu__rule *rule) {
    const tu_custom_op *op = rule->custom;
    if (!op) return tu__rule_fail(rule, "the node of a custom operation has no tu_custom_op");
    tu_custom_call call = {
        .struct_size = sizeof call, .input_count = rule->input_count, .inputs = rule->in, .user = op->user};
    tu_status status = op->shape(&call, rule->out);
    if (status != TU_OK) {
        tu__rule_fail(rule, "the shape function of %s failed: %s", op->name, tu_message());
        return status;
    }
    for (uint32_t i = 0; i < rule->output_count; i++) {
        tu_type out = rule->out[i];
        if ((unsigned)out.dtype >= TU_DTYPE_COUNT || !tu__shape_valid(out.shape))
            return tu__rule_fail(rule, "the shape function of %s returned the invalid type %s for output %u",
                                 op->name, tu__type_string(out), i);
    }
    return TU_OK;
}

/* Allocates one block for all inputs and outputs in their element types, sets `buffers` and converts the inputs. */
static void *alloc_typed_tensors(const tu__reference_call *m, void **buffers) {
    const tu__node *node = m->node;
    size_t bytes = 0;
    for (uint32_t i = 0; i < node->input_count; i++)
        bytes += (tu_type_bytes(m->in[i].type) + 63) & ~(size_t)63;
    for (uint32_t i = 0; i < node->output_count; i++)
        bytes += (tu_type_bytes(m->out[i].type) + 63) & ~(size_t)63;
    char *block = tu__alloc(bytes, "a custom operation's tensors"), *next_buffer = block;
    if (!block) return NULL;
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu_type type = m->in[i].type;
        buffers[i] = next_buffer;
        tu__store_array(type.dtype, m->in[i].data, tu_shape_elements(type.shape), next_buffer);
        next_buffer += (tu_type_bytes(type) + 63) & ~(size_t)63;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        buffers[node->input_count + i] = next_buffer;
        next_buffer += (tu_type_bytes(m->out[i].type) + 63) & ~(size_t)63;
    }
    return block;
}

static tu_status call_run(const tu__reference_call *m, void **buffers, tu_type *types) {
    const tu__node *node = m->node;
    uint32_t inputs = node->input_count;
    for (uint32_t i = 0; i < inputs; i++) types[i] = m->in[i].type;
    tu_custom_call call = {.struct_size = sizeof call,
                           .input_count = inputs,
                           .inputs = types,
                           .outputs = node->outputs,
                           .user = node->custom->user};
    tu_status status = node->custom->run(&call, (const void *const *)buffers, buffers + inputs);
    if (status != TU_OK)
        return tu_fail(status, "the run function of custom operation '%s' (%s) failed: %s", node->name,
                       node->custom->name, tu_message());
    for (uint32_t i = 0; i < node->output_count; i++) {
        tu_type type = m->out[i].type;
        tu__load_array(type.dtype, buffers[inputs + i], tu_shape_elements(type.shape), m->out[i].data);
    }
    return TU_OK;
}

tu_status tu__custom_reference(const tu__reference_call *m) {
    size_t tensors = m->node->input_count + m->node->output_count;
    void **buffers = tu__alloc_array(tensors, sizeof *buffers, "a custom operation's tensors");
    tu_type *types = tu__alloc_array(tensors, sizeof *types, "a custom operation's types");
    void *block = buffers && types ? alloc_typed_tensors(m, buffers) : NULL;
    tu_status status = block ? call_run(m, buffers, types) : TU_NO_MEMORY;
    tu__free(block);
    tu__free(types);
    tu__free(buffers);
    return status;
}

void tu__custom_gradient(tu__vjp *v) {
    const tu__node *node = v->node;
    const tu_custom_op *op = node->custom;
    if (!op->gradient) {
        tu__graph_fail(
            v->graph, TU_UNSUPPORTED,
            "custom operation '%s' (%s) has no gradient function: pass its value through tu_stop_gradient",
            node->name, op->name);
        return;
    }
    uint32_t inputs = node->input_count, outputs = node->output_count;
    tu_value *values =
        tu__alloc_array((size_t)2 * (inputs + outputs), sizeof *values, "a custom operation's gradient");
    tu_type *types = tu__alloc_array(inputs, sizeof *types, "a custom operation's gradient");
    if (values && types) {
        tu_value *in = values, *in_gradient = in + inputs, *out = in_gradient + inputs,
                 *out_gradient = out + outputs;
        for (uint32_t i = 0; i < inputs; i++) {
            in[i] = tu__vjp_input(v, i);
            types[i] = tu_value_type(in[i]);
        }
        for (uint32_t i = 0; i < outputs; i++) {
            out[i] = tu__vjp_output(v, i);
            out_gradient[i] = tu__vjp_gradient(v, i);
        }
        tu_custom_call call = {.struct_size = sizeof call,
                               .input_count = inputs,
                               .inputs = types,
                               .outputs = node->outputs,
                               .user = op->user};
        tu_status status = op->gradient(&call, in, out, out_gradient, in_gradient);
        if (status != TU_OK)
            tu__graph_fail(v->graph, status, "the gradient function of custom operation '%s' (%s) failed: %s",
                           node->name, op->name, tu_message());
        for (uint32_t i = 0; i < inputs && status == TU_OK; i++)
            if (tu_ok(in_gradient[i])) tu__vjp_accumulate(v, i, in_gradient[i]);
    } else {
        tu__graph_fail(v->graph, TU_NO_MEMORY, "%s", tu_message());
    }
    tu__free(types);
    tu__free(values);
}

tu_value tu_custom(const char *name, size_t count, const tu_value *inputs) {
    tu_graph *graph = count ? inputs[0].graph : NULL;
    if (!graph) {
        tu_fail(TU_INVALID, "custom operation '%s': expected at least one input", name);
        return tu__invalid(NULL);
    }
    const tu_custom_op *op = tu__custom_find(name);
    if (!op)
        return tu__graph_fail(graph, TU_NOT_FOUND,
                              "custom operation '%s' is not registered: call tu_custom_register first", name);
    return tu__make(
        graph, &(tu__node_request){
                   .op = TU__OP_CUSTOM, .name = name, .inputs = inputs, .input_count = count, .custom = op});
}
