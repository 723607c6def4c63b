/* Programs: a graph compiled for a set of results on a set of devices.
 *
 * Compiling: the passes assign a device to every node and insert copies between devices; each device selects kernels
 * for its partition; kernel order and memory are planned (compile/partition.c). Nothing is allocated on a device
 * before the first run binds the program to a state (bind.c), except for a requested reserve. A run feeds, executes
 * (interpret.c or submit.c), fetches, and applies the assignments; a run that fails changes nothing. */
#include "run/program.h"

#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "compile/placement.h"
#include "run/connect_processes.h"
#include "run/execution.h"
#include "run/trace.h"

/* ---- Compiling ---- */

/* Returns the source of a program input's data: the user's input of the same name, or the one whose rows it
 * contains. */
static tu__feed describe_feed(const tu_program *p, const tu__node *node) {
    const tu__node *source = tu__find_node(p->source, node->stands_for ? node->stands_for : node->name);
    tu_shape shape = node->outputs[0].shape;
    size_t bytes = tu_type_bytes(node->outputs[0]), rows = shape.rank ? (size_t)shape.dim[0] : 1;
    return (tu__feed){.source = source ? source->id : TU_NO_NODE,
                      .node = node->id,
                      .offset = rows ? (size_t)node->first_row * (bytes / rows) : 0,
                      .total_bytes = source ? tu_type_bytes(source->outputs[0]) : bytes};
}

/* Sets the number of samples of the whole batch. `ordinals`: the input, or one shard of it. */
static void count_samples(tu_program *p, const tu__node *ordinals) {
    const tu__node *source = ordinals->stands_for ? tu__find_node(p->source, ordinals->stands_for) : NULL;
    p->samples = (source ? source : ordinals)->outputs[0].shape.dim[0];
}

static tu_status find_feeds(tu_program *p) {
    const tu_graph *g = p->unit.graph;
    p->feeds = tu__alloc_array(g->node_count, sizeof *p->feeds, "a program");
    p->feed_slots = tu__alloc_array(g->node_count, sizeof *p->feed_slots, "a program");
    if (!p->feeds || !p->feed_slots) return TU_NO_MEMORY;
    for (size_t i = 0; i < p->device_count; i++)
        for (uint32_t k = 0; k < p->partitions[i].leaf_count; k++) {
            const tu__leaf *leaf = &p->partitions[i].leaves[k];
            const tu__node *node = g->nodes[leaf->node];
            if (node->op->code != TU__OP_INPUT) continue;
            p->feed_slots[p->feed_count] =
                (tu_slot){.place = {(uint32_t)i, leaf->buffer}, .bytes = tu_type_bytes(node->outputs[0])};
            p->feeds[p->feed_count++] = describe_feed(p, node);
            if (tu__is_sample_ordinals(node)) count_samples(p, node);
        }
    return TU_OK;
}

static tu_status find_fetches(tu_program *p) {
    const tu_graph *g = p->unit.graph;
    p->fetch_slots = tu__alloc_array(p->unit.fetch_count, sizeof *p->fetch_slots, "a program");
    if (!p->fetch_slots) return TU_NO_MEMORY;
    for (size_t i = 0; i < p->unit.fetch_count; i++) {
        tu__edge value = p->unit.fetch[i];
        if (g->nodes[value.node]->op->code == TU__OP_ASSIGN) value = g->nodes[value.node]->inputs[1];
        uint32_t partition = tu__partition_of(&p->unit, value.node);
        p->fetch_slots[i] =
            (tu_slot){.place = {partition, tu__partition_buffer(&p->partitions[partition], value)},
                      .bytes = tu_type_bytes(tu_edge_type(g, value))};
    }
    return TU_OK;
}

static tu_status check_fetches(const tu_program *p, const tu_compile_options *o) {
    if (o->fetch_count && !o->fetch)
        return tu_fail(TU_INVALID, ".fetch_count is %zu, but .fetch is NULL", o->fetch_count);
    if (o->fetch && !o->fetch_count)
        return tu_fail(TU_INVALID, ".fetch is set, but .fetch_count is 0: expected the number of values");
    for (size_t i = 0; i < o->fetch_count; i++)
        if (o->fetch[i].graph != p->source || !tu_ok(o->fetch[i]))
            return tu_fail(TU_INVALID, "fetch %zu is not a value of the graph being compiled", i);
    return TU_OK;
}

static bool is_fetched(const tu_compile_options *o, uint32_t node) {
    for (size_t i = 0; i < o->fetch_count; i++)
        if (o->fetch[i].node == node) return true;
    return false;
}

/* Returns the first trainable variable that the graph assigns, and counts them. Returns NULL if there is none, or if
 * such an assignment is fetched: then the caller asked for it explicitly. */
static const char *assigned_variable(const tu_graph *g, const tu_compile_options *o, size_t *count) {
    const char *first = NULL;
    *count = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (g->nodes[i]->op->code != TU__OP_ASSIGN) continue;
        const tu__node *variable = g->nodes[g->nodes[i]->inputs[0].node];
        if (tu__attrs(variable, variable)->frozen) continue;
        if (is_fetched(o, i)) return NULL;
        if (!first) first = variable->name;
        ++*count;
    }
    return first;
}

/* Fails if a training step is compiled without updates: it would run, but train nothing. */
static tu_status check_updates(const tu_program *p, const tu_compile_options *o) {
    size_t count;
    if (o->updates && o->no_updates)
        return tu_fail(TU_INVALID, ".updates and .no_updates are both true: expected one of them");
    if (o->updates || o->no_updates) return TU_OK;
    /* the caller was built with a header without .no_updates */
    if (o->struct_size <= offsetof(tu_compile_options, no_updates)) return TU_OK;
    const char *first = assigned_variable(p->source, o, &count);
    if (!first) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "the graph assigns %zu trainable variable%s ('%s'%s), but is compiled without .updates: the "
        "program would not change them; set .updates = true to train, or .no_updates = true to "
        "keep them",
        count, count == 1 ? "" : "s", first, count == 1 ? "" : ", ...");
}

static tu_status run_passes(tu_program *p, const tu_compile_options *o) {
    TU_TRY(check_fetches(p, o));
    TU_TRY(check_updates(p, o));
    TU_TRY(tu__unit_begin(&p->unit, p->source, o->fetch_count, o->fetch, o->updates));
    TU_TRY(tu__precision_parse(o->precision, &p->unit.precision));
    /* The result of a shard depends on the number of threads, and their default number on the machine. */
    tu_open_options open = {.threads = o->invariant && !o->threads ? 1 : o->threads,
                            .memory_limit = o->memory_limit,
                            .tune = o->tune_kernels,
                            .nondeterministic = o->nondeterministic,
                            .streams = o->streams,
                            .whole_device_kernels = o->invariant > 0};
    tu__device_list list = {.devices = p->devices, .names = p->device_names, .count = &p->device_count};
    tu__placement_options placement;
    p->uses_all = tu__device_list_has_all(o->devices);
    TU_TRY(tu__placement_init(&list, &placement, &p->unit, o->devices, &open, o));
    tu_status status = tu__run_passes(&p->unit, NULL);
    p->unit.placement = NULL;
    return status;
}

/* ---- Memory limits and reserves ---- */

static bool is_gpu(const tu__device *device) {
    return device->api->accelerator;
}

/* Returns the smaller of the limits for the device; 0: none. */
static uint64_t limit_on(const tu__device *device, const tu_compile_options *o) {
    uint64_t gpu_limit = is_gpu(device) ? o->gpu_memory_limit : 0;
    if (!gpu_limit || !o->memory_limit) return gpu_limit + o->memory_limit;
    return gpu_limit < o->memory_limit ? gpu_limit : o->memory_limit;
}

/* Checks the reserve against the limit. Logical devices of a GPU have one limit each and share one reserve, also with
 * those of other programs. */
static tu_status check_reserve(const tu__device *gpu, const tu_compile_options *o) {
    uint64_t limit = limit_on(gpu, o),
             divisor = gpu->options.logical_count > 1 ? (uint64_t)gpu->options.logical_count : 1;
    if (!limit || (o->gpu_memory_reserve - 1) / divisor < limit) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "the reserve of %.4g MiB on %s:%d exceeds the memory limit of %.4g MiB: lower the reserve or raise the "
        "limit",
        (double)o->gpu_memory_reserve / 1048576, gpu->api->kind, gpu->options.index,
        (double)limit * (double)divisor / 1048576);
}

/* Reserves GPU memory. Called before kernels are selected, because kernels that are timed need memory too. */
static tu_status reserve_memory(const tu_program *p, const tu_compile_options *o) {
    if (!o->gpu_memory_reserve || o->plan_only) return TU_OK;
    for (size_t i = 0; i < p->device_count; i++)
        if (is_gpu(p->devices[i])) TU_TRY(check_reserve(p->devices[i], o));
    for (size_t i = 0; i < p->device_count; i++) {
        const tu__device *d = p->devices[i];
        if (!is_gpu(d)) continue;
        if (!d->api->reserve) return tu_fail(TU_UNSUPPORTED, "device '%s' cannot reserve memory", d->name);
        TU_TRY(d->api->reserve(d->instance, o->gpu_memory_reserve));
    }
    return TU_OK;
}

static void find_active(tu_program *p) {
    for (size_t i = 0; i < p->device_count; i++) {
        if (p->partitions[i].is_idle) continue;
        p->active_count++;
        p->only_active = &p->partitions[i];
    }
    if (p->active_count > 1) p->only_active = NULL;
    if (p->active_count == 0)
        p->only_active = &p->partitions[0]; /* the program has only assignments and fetches */
}

/* Counts, per node, the bytes of its outputs that are copied to other devices. */
static tu_status count_sent_bytes(tu_program *program) {
    const tu_graph *graph = program->unit.graph;
    program->sent_bytes = tu__alloc_array(graph->node_count, sizeof *program->sent_bytes, "a program");
    if (!program->sent_bytes) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->op->code == TU__OP_COPY) {
            tu__edge source = graph->nodes[i]->inputs[0];
            program->sent_bytes[source.node] += tu_type_bytes(tu_edge_type(graph, source));
        }
    return TU_OK;
}

static tu_status compile_program(tu_program *p, const tu_compile_options *o) {
    TU_TRY(run_passes(p, o));
    TU_TRY(reserve_memory(p, o));
    TU_TRY(count_sent_bytes(p));
    p->partitions = tu__alloc_array(p->device_count, sizeof *p->partitions, "a program");
    if (!p->partitions) return TU_NO_MEMORY;
    for (size_t i = 0; i < p->device_count; i++) p->partitions[i].memory_limit = limit_on(p->devices[i], o);
    p->constants = tu__alloc_array(p->device_count, sizeof *p->constants, "a program");
    if (!p->constants) return TU_NO_MEMORY;
    TU_TRY(tu__partitions_build(&p->unit, p->device_count, p->devices, p->partitions, &p->collectives));
    TU_TRY(find_feeds(p));
    TU_TRY(find_fetches(p));
    TU_TRY(tu__command_list_write(&p->list, &p->collectives, p->partitions, (uint32_t)p->device_count,
                                  (uint32_t)p->feed_count, p->feed_slots, (uint32_t)p->unit.fetch_count,
                                  p->fetch_slots));
    find_active(p);
    p->event_count = tu__collectives_number_events(&p->collectives, p->list.list.event_count);
    p->timeout = o->timeout;
    TU_TRY(tu__connect_processes(p));
    TU_TRY(tu__submit_check(p));
    TU_TRY(tu__agree_to_submit(p));
    return o->plan_only ? TU_OK : tu__check_memory(p, o);
}

tu_status tu_compile_with(tu_graph *graph, tu_program **program, const tu_compile_options *options) {
    TU__OPTIONS(tu_compile_options, o, options);
    *program = NULL;
    TU_TRY(tu_graph_status(graph));
    tu_program *p = tu__alloc(sizeof *p, "a program");
    if (!p) return TU_NO_MEMORY;
    p->source = graph;
    p->plan_only = o.plan_only;
    p->group = o.group;
    pthread_mutex_init(&p->lock, NULL);
    tu_status status = compile_program(p, &o);
    if (status != TU_OK) {
        tu_program_free(p);
        return status;
    }
    *program = p;
    return TU_OK;
}

bool tu__program_reads_row(const tu_program *p, tu_value input, int64_t row) {
    int64_t rows = tu_value_shape(input).dim[0];
    for (size_t i = 0; i < p->feed_count; i++) {
        if (p->feeds[i].source != input.node) continue;
        size_t row_bytes = p->feeds[i].total_bytes / (size_t)rows, at = (size_t)row * row_bytes;
        if (at >= p->feeds[i].offset && at < p->feeds[i].offset + p->feed_slots[i].bytes) return true;
    }
    return false;
}

/* True if a device's thread still uses the program. */
static bool is_stuck(const tu_program *program) {
    for (const tu__execution *e = program->executions; e; e = e->next_in_program)
        if (tu__execution_is_stuck(e)) return true;
    return false;
}

void tu_program_free(tu_program *program) {
    if (!program || is_stuck(program)) return;
    tu__program_free_executions(program);
    tu__disconnect_processes(program);
    tu__program_free_constants(program);
    if (program->partitions) tu__partitions_free(program->device_count, program->partitions);
    tu__collectives_free(&program->collectives);
    tu__unit_end(&program->unit);
    tu__devices_close(program->device_count, program->devices);
    tu__command_list_free(&program->list);
    tu__free(program->partitions);
    tu__free(program->constants);
    tu__free(program->feeds);
    tu__free(program->feed_slots);
    tu__free(program->fetch_slots);
    tu__free(program->sent_bytes);
    tu__trace_free(program->trace);
    pthread_mutex_destroy(&program->lock);
    tu__free(program);
}
