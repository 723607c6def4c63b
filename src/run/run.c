/* tu_run: feeds, executes, fetches, and applies the assignments. A run that fails changes nothing.
 *
 * The first run with a state binds the program to it (bind.c). */
#include "run/program.h"

#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "run/trace.h"

const tu__node *tu__program_input(const tu_program *p, size_t index, tu_value value) {
    if (value.graph != p->source || !tu_ok(value)) {
        tu_fail(TU_INVALID, "feed %zu is not a value of the program's graph", index);
        return NULL;
    }
    const tu__node *node = p->source->nodes[value.node];
    if (node->op->code == TU__OP_INPUT) return node;
    tu_fail(TU_INVALID, "feed %zu is for %s '%s': only inputs can be fed", index, node->op->name, node->name);
    return NULL;
}

tu_status tu__program_fail_fed_twice(const tu__node *input, size_t first, size_t second) {
    return tu_fail(TU_INVALID, "feeds %zu and %zu are both for input '%s': expected one for each input",
                   first, second, input->name);
}

static tu_status check_feeds(const tu_program *p, size_t count, const tu_feed *feeds) {
    for (size_t i = 0; i < count; i++) {
        const tu__node *input = tu__program_input(p, i, feeds[i].input);
        if (!input) return TU_INVALID;
        if (!feeds[i].data) return tu_fail(TU_INVALID, "feed %zu for input '%s' has no data", i, input->name);
        for (size_t k = 0; k < i; k++)
            if (feeds[k].input.node == feeds[i].input.node) return tu__program_fail_fed_twice(input, k, i);
    }
    return TU_OK;
}

tu_status tu__program_check_generated(const tu_program *p, const tu__feed_slot *slot) {
    const tu__node *node = p->unit.graph->nodes[slot->node];
    if (tu__is_sample_ordinals(node)) return TU_OK;
    /* Messages name the input of the user's graph. */
    if (slot->source != TU_NO_NODE) node = p->source->nodes[slot->source];
    return tu_fail(TU_INVALID, "input '%s' %s was not fed", node->name, tu__type_string(node->outputs[0]));
}

static tu_status find_feed_data(const tu_program *p, const tu__feed_slot *slot, size_t count,
                                const tu_feed *feeds, const tu_state *state, const void **data) {
    for (size_t i = 0; i < count; i++)
        if (feeds[i].input.node == slot->source) {
            *data = (const char *)feeds[i].data + slot->offset;
            return TU_OK;
        }
    TU_TRY(tu__program_check_generated(p, slot));
    for (int64_t i = 0; i < p->samples; i++) p->ordinals[i] = state->next_sample + i;
    *data = (const char *)p->ordinals + slot->offset;
    return TU_OK;
}

static tu_status find_all_feed_data(tu_program *p, const tu_state *state, size_t count,
                                    const tu_feed *feeds) {
    for (size_t i = 0; i < p->feed_count; i++)
        TU_TRY(find_feed_data(p, &p->feeds[i], count, feeds, state, &p->feed_data[i]));
    return TU_OK;
}

tu_status tu__program_fetch(tu_program *p, void *const *fetches, size_t step) {
    for (size_t i = 0; fetches && i < p->unit.fetch_count; i++) {
        const tu__fetch_slot *slot = &p->fetches[i];
        const tu__partition *partition = &p->partitions[slot->partition];
        if (!fetches[i]) continue;
        double began = tu__trace_now(p);
        tu_status status = partition->device->api->download(partition->device->instance,
                                                            (char *)fetches[i] + step * slot->bytes,
                                                            partition->addresses[slot->buffer], slot->bytes);
        if (status != TU_OK)
            return tu__partition_fail_at(partition, "downloading",
                                         p->unit.graph->nodes[p->unit.fetch[i].node]->name, status);
        tu__trace_add(p, TU__SPAN_FETCH, slot->partition, i, began);
    }
    return TU_OK;
}

/* Copies a next value that is another variable's memory to staging, before any variable changes. */
static tu_status copy_to_staging(const tu__partition *partition) {
    for (uint32_t k = 0; k < partition->update_count; k++) {
        const tu__update *u = &partition->updates[k];
        if (u->staging)
            TU_TRY(tu__device_copy(partition->device, u->staging, partition->device,
                                   partition->addresses[u->buffer],
                                   partition->plan->buffers[u->buffer].bytes));
    }
    return TU_OK;
}

/* Copies next values that were not written in place to their variables. */
static tu_status apply_updates(tu_program *p, const tu__partition *partition) {
    for (uint32_t k = 0; k < partition->update_count; k++) {
        const tu__update *u = &partition->updates[k];
        if (u->in_place) continue;
        void *target = u->mirror ? u->mirror->data : u->target->data;
        const void *value = u->staging ? u->staging : partition->addresses[u->buffer];
        double began = tu__trace_now(p);
        TU_TRY(tu__device_copy(partition->device, target, partition->device, value,
                               tu_type_bytes(u->target->type)));
        tu__trace_add(p, TU__SPAN_UPDATE, (size_t)(partition - p->partitions), k, began);
    }
    return TU_OK;
}

tu_status tu__program_apply(tu_program *p, tu_state *state) {
    for (size_t i = 0; i < p->device_count; i++) TU_TRY(copy_to_staging(&p->partitions[i]));
    for (size_t i = 0; i < p->device_count; i++) TU_TRY(apply_updates(p, &p->partitions[i]));
    tu__program_end_updates(p);
    if (p->unit.updates) state->next_sample += p->samples;
    return TU_OK;
}

/* Returns a variable that the program reads or assigns; NULL if there is none. */
static const tu__node *any_variable(const tu_program *p) {
    const tu_graph *g = p->unit.graph;
    for (size_t i = 0; i < p->device_count; i++) {
        const tu__partition *partition = &p->partitions[i];
        if (partition->update_count) return g->nodes[partition->updates[0].variable];
        for (uint32_t k = 0; k < partition->leaf_count; k++)
            if (g->nodes[partition->leaves[k].node]->op->code == TU__OP_VARIABLE)
                return g->nodes[partition->leaves[k].node];
    }
    return NULL;
}

tu_status tu__program_state(tu_program *p, tu_state **state) {
    if (*state) return TU_OK;
    if (!p->empty_state) { /* kept, so that the program stays bound to it */
        tu_graph *empty;
        TU_TRY(tu_graph_new(&empty));
        tu_status status = tu_state_new(empty, &p->empty_state);
        tu_graph_free(empty);
        TU_TRY(status);
    }
    tu_state_set_sample(p->empty_state, 0);
    *state = p->empty_state;
    return TU_OK;
}

tu_status tu__program_execute_on(tu_program *p, tu_state *state) {
    bool was_stuck = tu__program_is_stuck(p);
    tu_status status = tu__program_execute(p);
    if (!was_stuck && tu__program_is_stuck(p)) state->never_free = true;
    return status;
}

static tu_status run_locked(tu_program *p, tu_state *state, size_t feed_count, const tu_feed *feeds,
                            void *const *fetches) {
    TU_TRY(tu__program_state(p, &state));
    p->seed = state->seed;
    double began;
    TU_TRY(tu__program_bind(p, state));
    TU_TRY(tu__trace_begin_run(p, &began));
    TU_TRY(find_all_feed_data(p, state, feed_count, feeds));
    TU_TRY(tu__program_execute_on(p, state));
    TU_TRY(tu__program_fetch(p, fetches, 0));
    TU_TRY(tu__program_apply(p, state));
    return tu__trace_end_run(p, began);
}

/* Returns the device with the lowest address above `done`. */
static tu__device *next_device(const tu_program *p, const tu__device *done) {
    tu__device *next = NULL;
    for (size_t i = 0; i < p->device_count; i++)
        if (p->devices[i] > done && (!next || p->devices[i] < next)) next = p->devices[i];
    return next;
}

/* Devices are locked in the order of their addresses, so that two programs with the same devices cannot deadlock. */
void tu__program_lock_devices(const tu_program *p) {
    for (tu__device *d = next_device(p, NULL); d; d = next_device(p, d)) pthread_mutex_lock(&d->lock);
}

void tu__program_unlock_devices(const tu_program *p) {
    for (tu__device *d = next_device(p, NULL); d; d = next_device(p, d)) pthread_mutex_unlock(&d->lock);
}

tu_status tu__program_check_run(const tu_program *program, const tu_state *state, size_t feed_count,
                                const void *feeds) {
    if (!program) return tu_fail(TU_INVALID, "a run needs a program, but got NULL");
    if (program->plan_only)
        return tu_fail(TU_INVALID,
                       "the program was compiled with plan_only: it can be inspected, but not run");
    const tu__node *variable = state ? NULL : any_variable(program);
    if (variable)
        return tu_fail(TU_INVALID,
                       "the state is NULL, but the program uses variable '%s': expected a state of its graph "
                       "(tu_state_new)",
                       variable->stands_for ? variable->stands_for : variable->name);
    if (feed_count && !feeds) return tu_fail(TU_INVALID, "feed_count is %zu, but feeds is NULL", feed_count);
    return TU_OK;
}

tu_status tu_run(tu_program *program, tu_state *state, size_t feed_count, const tu_feed *feeds,
                 void *const *fetches) {
    TU_TRY(tu__program_check_run(program, state, feed_count, feeds));
    TU_TRY(check_feeds(program, feed_count, feeds));
    tu__program_lock_devices(program);
    tu_status status = run_locked(program, state, feed_count, feeds, fetches);
    tu__program_unlock_devices(program);
    return status;
}
