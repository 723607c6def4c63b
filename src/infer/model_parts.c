/* Checks the parts of a model file against its graph. See model_parts.h. */
#include "infer/model_parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <tutti/command.h>

#include "base/text.h"

/* ---- The graph ---- */

static size_t count_nodes(const tu_graph *graph, tu__opcode op) {
    size_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) count += graph->nodes[i]->op->code == op;
    return count;
}

static tu__graph_port *list_nodes(const tu_graph *graph, tu__opcode op, tu__arena *arena, size_t *count) {
    *count = count_nodes(graph, op);
    tu__graph_port *ports = tu__arena_alloc(arena, (*count + 1) * sizeof *ports);
    size_t used = 0;
    for (uint32_t i = 0; ports && i < graph->node_count; i++)
        if (graph->nodes[i]->op->code == op)
            ports[used++] = (tu__graph_port){graph->nodes[i]->name, graph->nodes[i]->outputs[0]};
    return ports;
}

static tu__graph_port *list_outputs(const tu_graph *graph, tu__arena *arena, size_t *count) {
    *count = graph->result_count;
    tu__graph_port *ports = tu__arena_alloc(arena, (*count + 1) * sizeof *ports);
    for (size_t i = 0; ports && i < *count; i++) {
        const tu__named_value *result = &graph->results[i];
        ports[i] =
            (tu__graph_port){result->name, graph->nodes[result->value.node]->outputs[result->value.output]};
    }
    return ports;
}

/* Fails unless there are 1 to TU__MODEL_MAX_PORTS, each for one sample. `kind` is "input" or "output". */
static tu_status check_samples(const char *kind, size_t count, const tu__graph_port *ports) {
    if (count == 0 || count > TU__MODEL_MAX_PORTS)
        return tu_fail(TU_INVALID, "its graph has %zu %ss: expected 1 to %d", count, kind,
                       TU__MODEL_MAX_PORTS);
    for (size_t i = 0; i < count; i++)
        if (ports[i].type.shape.rank == 0 || ports[i].type.shape.dim[0] != 1)
            return tu_fail(TU_INVALID,
                           "%s '%s' of its graph is %s: expected a first dimension of 1, one sample", kind,
                           ports[i].name, tu__type_string(ports[i].type));
    return TU_OK;
}

static bool is_reserved(const char *name) {
    return strncmp(name, TU__MODEL_PREFIX, strlen(TU__MODEL_PREFIX)) == 0;
}

static tu_status check_ports(const tu__graph_ports *p) {
    for (size_t i = 0; i < p->variable_count; i++)
        if (is_reserved(p->variables[i].name))
            return tu_fail(TU_INVALID,
                           "variable '%s' of its graph has a reserved name: names may not begin with '%s'",
                           p->variables[i].name, TU__MODEL_PREFIX);
    TU_TRY(check_samples("input", p->input_count, p->inputs));
    return check_samples("output", p->output_count, p->outputs);
}

tu_status tu__graph_ports_of(const tu_graph *graph, tu__arena *arena, tu__graph_ports *p) {
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->op->code == TU__OP_ASSIGN)
            return tu_fail(TU_INVALID, "its graph assigns variables ('%s'): expected a graph for inference",
                           graph->nodes[i]->name);
    p->variables = list_nodes(graph, TU__OP_VARIABLE, arena, &p->variable_count);
    p->inputs = list_nodes(graph, TU__OP_INPUT, arena, &p->input_count);
    p->outputs = list_outputs(graph, arena, &p->output_count);
    if (!p->variables || !p->inputs || !p->outputs) return TU_NO_MEMORY;
    return check_ports(p);
}

/* ---- Tensors and texts ---- */

tu_status tu__model_check_tensor(const char *kind, const tu__graph_port *port, int64_t golden_count,
                                 const tu__named_tensor *tensor) {
    tu_type expected = port->type;
    if (golden_count) expected.shape.dim[0] = golden_count;
    if (tensor->type.dtype == expected.dtype && tu_shape_equal(tensor->type.shape, expected.shape))
        return TU_OK;
    return tu_fail(TU_INVALID, "%s '%s' is %s: its graph expects %s", kind, port->name,
                   tu__type_string(tensor->type), tu__type_string(expected));
}

static const tu__graph_port *find_output(const tu__graph_ports *ports, const char *name) {
    for (size_t i = 0; i < ports->output_count; i++)
        if (strcmp(ports->outputs[i].name, name) == 0) return &ports->outputs[i];
    return NULL;
}

static tu_status check_labels(const tu__graph_ports *ports, const tu__model_file *file) {
    const tu__graph_port *probability = find_output(ports, "probability");
    if (!probability || file->label_count == 0) return TU_OK;
    const tu_shape *shape = &probability->type.shape;
    if ((uint64_t)shape->dim[shape->rank - 1] == file->label_count) return TU_OK;
    return tu_fail(TU_INVALID, "it has %zu labels for the output 'probability', which is %s",
                   file->label_count, tu__type_string(probability->type));
}

bool tu__model_is_precision(const char *precision) {
    static const char *const precisions[] = {TU_PRECISIONS};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        if (strcmp(precision, precisions[i]) == 0) return true;
    return false;
}

static tu_status check_bound(const tu__graph_ports *ports, const tu__model_bound *bound) {
    const tu__graph_port *output = find_output(ports, bound->output);
    if (!output)
        return tu_fail(TU_INVALID, "it has a bound for the output '%s', which its graph does not have",
                       bound->output);
    if (!tu_dtype_is_float(output->type.dtype))
        return tu_fail(TU_INVALID, "it has a bound for the output '%s', which is %s: expected floats",
                       bound->output, tu__type_string(output->type));
    if (!tu__model_is_precision(bound->precision))
        return tu_fail(TU_INVALID, "it has a bound for the precision '%s': expected f32, tf32, bf16 or f16",
                       bound->precision);
    if (!(bound->limit >= 0 && isfinite(bound->limit)))
        return tu_fail(TU_INVALID, "the bound of output '%s' in %s is %g: expected a number from 0 on",
                       bound->output, bound->precision, bound->limit);
    return TU_OK;
}

tu_status tu__model_check_texts(const tu__graph_ports *ports, const tu__model_file *file) {
    TU_TRY(check_labels(ports, file));
    for (size_t i = 0; i < file->bound_count; i++) TU_TRY(check_bound(ports, &file->bounds[i]));
    for (size_t i = 0; i < file->metadata_count; i++)
        if (is_reserved(file->metadata[i].key))
            return tu_fail(TU_INVALID,
                           "the key '%s' of its metadata is reserved: keys may not begin with '%s'",
                           file->metadata[i].key, TU__MODEL_PREFIX);
    return TU_OK;
}
