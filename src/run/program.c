/* Programs: a graph cut down to what its results need, ready to run over a state.
 *
 * Compiling finds the nodes that the fetches (and, if asked for, the assignments) depend on; their order in the
 * graph is the schedule. A run binds leaves to feeds and variables, has the device execute, and only when all of
 * it has succeeded moves the assigned values into the state: a failed run changes nothing. */
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "device/device.h"
#include "run/state.h"

struct tu_program {
    tu_graph *graph;
    const tu__device *device;
    uint32_t *schedule, count;
    tu__edge *fetch; /* the user's, then one for each assignment */
    size_t fetch_count, assign_count;
    uint32_t *targets; /* the variables assigned */
    void **staged;     /* their next values */
    int64_t samples;   /* in the batch; 0: the program draws nothing for samples */
};

/* ---- Compiling ---- */

static void mark_needed(const tu_program *p, bool *needed) {
    for (size_t i = 0; i < p->fetch_count; i++) needed[p->fetch[i].node] = true;
    for (uint32_t id = p->graph->node_count; id-- > 0;) {
        const tu__node *node = p->graph->nodes[id];
        for (uint32_t i = 0; needed[id] && i < node->input_count; i++) needed[node->inputs[i].node] = true;
    }
}

static bool is_assignment(const tu__node *node) {
    return node->op->code == TU__OP_ASSIGN;
}

static tu_status collect_fetches(tu_program *p, const tu_compile_options *o) {
    const tu_graph *g = p->graph;
    for (uint32_t i = 0; o->updates && i < g->node_count; i++) p->assign_count += is_assignment(g->nodes[i]);
    p->fetch_count = o->fetch_count + p->assign_count;
    p->fetch = tu__alloc_array(p->fetch_count, sizeof *p->fetch, "a program");
    p->targets = tu__alloc_array(p->assign_count, sizeof *p->targets, "a program");
    p->staged = tu__alloc_array(p->assign_count, sizeof *p->staged, "a program");
    if (!p->fetch || !p->targets || !p->staged) return TU_NO_MEMORY;
    for (size_t i = 0; i < o->fetch_count; i++) {
        if (o->fetch[i].graph != g || !tu_ok(o->fetch[i]))
            return tu_fail(TU_INVALID, "fetch %zu is not a value of the graph being compiled", i);
        p->fetch[i] = (tu__edge){o->fetch[i].node, o->fetch[i].output};
    }
    size_t next = 0;
    for (uint32_t i = 0; o->updates && i < g->node_count; i++) {
        const tu__node *node = g->nodes[i];
        if (!is_assignment(node)) continue;
        p->fetch[o->fetch_count + next] = (tu__edge){i, 0};
        p->targets[next] = node->inputs[0].node;
        p->staged[next] = tu__alloc(tu_type_bytes(node->outputs[0]), node->name);
        if (!p->staged[next++]) return TU_NO_MEMORY;
    }
    return TU_OK;
}

static tu_status build_schedule(tu_program *p) {
    bool *needed = tu__alloc_array(p->graph->node_count, sizeof *needed, "a program");
    p->schedule = tu__alloc_array(p->graph->node_count, sizeof *p->schedule, "a program");
    if (!needed || !p->schedule) {
        tu__free(needed);
        return TU_NO_MEMORY;
    }
    mark_needed(p, needed);
    for (uint32_t id = 0; id < p->graph->node_count; id++) {
        if (!needed[id]) continue;
        p->schedule[p->count++] = id;
        const tu__node *node = p->graph->nodes[id];
        if (node->op->code == TU__OP_INPUT && strcmp(node->name, "sample_ordinal") == 0)
            p->samples = node->outputs[0].shape.dim[0];
    }
    tu__free(needed);
    return TU_OK;
}

tu_status tu_compile_with(tu_graph *graph, tu_program **program, const tu_compile_options *options) {
    TU__OPTIONS(tu_compile_options, o, options);
    *program = NULL;
    TU_TRY(tu_graph_status(graph));
    const tu__device *device = tu__device_find(o.device ? o.device : "ref");
    if (!device) return TU_NOT_FOUND;
    tu_program *p = tu__alloc(sizeof *p, "a program");
    if (!p) return TU_NO_MEMORY;
    p->graph = graph;
    p->device = device;
    tu_status status = collect_fetches(p, &o);
    if (status == TU_OK) status = build_schedule(p);
    if (status != TU_OK) {
        tu_program_free(p);
        return status;
    }
    *program = p;
    return TU_OK;
}

void tu_program_free(tu_program *program) {
    if (!program) return;
    for (size_t i = 0; program->staged && i < program->assign_count; i++) tu__free(program->staged[i]);
    tu__free(program->staged);
    tu__free(program->targets);
    tu__free(program->fetch);
    tu__free(program->schedule);
    tu__free(program);
}

/* ---- Running ---- */

typedef struct binding {
    const void **leaves; /* per place in the schedule */
    void **out;          /* per fetch */
    int64_t *ordinals;   /* counted on from the state, when they are not fed */
} binding;

static tu_status check_feeds(const tu_program *p, size_t count, const tu_feed *feeds) {
    for (size_t i = 0; i < count; i++) {
        tu_value v = feeds[i].input;
        if (v.graph != p->graph || !tu_ok(v))
            return tu_fail(TU_INVALID, "feed %zu is not a value of the program's graph", i);
        const tu__node *node = p->graph->nodes[v.node];
        if (node->op->code != TU__OP_INPUT)
            return tu_fail(TU_INVALID, "feed %zu is for %s '%s': only inputs are fed", i, node->op->name,
                           node->name);
        if (!feeds[i].data) return tu_fail(TU_INVALID, "feed %zu for input '%s' has no data", i, node->name);
    }
    return TU_OK;
}

static const void *fed(uint32_t node, size_t count, const tu_feed *feeds) {
    for (size_t i = 0; i < count; i++)
        if (feeds[i].input.node == node) return feeds[i].data;
    return NULL;
}

static tu_status count_ordinals(const tu_program *p, const tu_state *state, binding *b) {
    b->ordinals = tu__alloc_array((size_t)p->samples, sizeof *b->ordinals, "sample ordinals");
    if (!b->ordinals) return TU_NO_MEMORY;
    for (int64_t i = 0; i < p->samples; i++) b->ordinals[i] = state->sample + i;
    return TU_OK;
}

static tu_status bind_leaves(const tu_program *p, const tu_state *state, size_t count, const tu_feed *feeds,
                             binding *b) {
    for (uint32_t i = 0; i < p->count; i++) {
        const tu__node *node = p->graph->nodes[p->schedule[i]];
        if (node->op->code == TU__OP_INPUT) {
            b->leaves[i] = fed(node->id, count, feeds);
            if (!b->leaves[i] && strcmp(node->name, "sample_ordinal") == 0) {
                TU_TRY(count_ordinals(p, state, b));
                b->leaves[i] = b->ordinals;
            }
            if (!b->leaves[i])
                return tu_fail(TU_INVALID, "input '%s' %s was not fed", node->name,
                               tu__type_string(node->outputs[0]));
        } else if (node->op->code == TU__OP_VARIABLE) {
            const tu__variable *v = tu__state_bind(state, node->name, node->outputs[0]);
            if (!v) return TU_INVALID;
            b->leaves[i] = v->data;
        }
    }
    return TU_OK;
}

/* Only called when everything has succeeded; cannot fail. */
static void commit(const tu_program *p, tu_state *state) {
    for (size_t i = 0; i < p->assign_count; i++) {
        const tu__node *target = p->graph->nodes[p->targets[i]];
        tu__variable *v = tu__state_bind(state, target->name, target->outputs[0]);
        memcpy(v->data, p->staged[i], tu_type_bytes(v->type));
    }
    if (p->assign_count) state->sample += p->samples;
}

static tu_status run_bound(const tu_program *p, tu_state *state, size_t count, const tu_feed *feeds,
                           void *const *fetches, binding *b) {
    if (!b->leaves || !b->out) return TU_NO_MEMORY;
    TU_TRY(bind_leaves(p, state, count, feeds, b));
    size_t asked = p->fetch_count - p->assign_count;
    for (size_t i = 0; i < asked; i++) b->out[i] = fetches ? fetches[i] : NULL;
    for (size_t i = 0; i < p->assign_count; i++) b->out[asked + i] = p->staged[i];
    for (size_t i = 0; i < p->assign_count;
         i++) { /* a target nobody reads must be in the state all the same */
        const tu__node *target = p->graph->nodes[p->targets[i]];
        if (!tu__state_bind(state, target->name, target->outputs[0])) return TU_INVALID;
    }
    tu__execution execution = {.graph = p->graph,
                               .count = p->count,
                               .schedule = p->schedule,
                               .leaves = b->leaves,
                               .fetch_count = p->fetch_count,
                               .fetch = p->fetch,
                               .out = b->out,
                               .seed = state->seed};
    TU_TRY(p->device->execute(&execution));
    commit(p, state);
    return TU_OK;
}

tu_status tu_run(tu_program *program, tu_state *state, size_t feed_count, const tu_feed *feeds,
                 void *const *fetches) {
    if (!program || !state) return tu_fail(TU_INVALID, "tu_run needs a program and a state");
    TU_TRY(check_feeds(program, feed_count, feeds));
    binding b = {.leaves = tu__alloc_array(program->count, sizeof *b.leaves, "a run"),
                 .out = tu__alloc_array(program->fetch_count, sizeof *b.out, "a run")};
    tu_status status = run_bound(program, state, feed_count, feeds, fetches, &b);
    tu__free(b.ordinals);
    tu__free(b.out);
    tu__free(b.leaves);
    return status;
}
