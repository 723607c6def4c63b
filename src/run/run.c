/* tu_run and tu_run_many: run steps of a program.
 *
 * tu_run interprets one step (interpret.c). tu_run_many gives the steps to the devices, if they can execute the command
 * list (submit.c); otherwise, or if a trace is recorded, it interprets them one by one, with the same results. The
 * first run with a state binds the program to it (bind.c). */
#include "base/alloc.h"
#include "base/sized.h"
#include "run/program.h"
#include "run/trace.h"

/* ---- Checking and locking ---- */

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

static tu_status check_run(const tu_program *program, const tu_state *state, const tu__feed_list *feeds,
                           size_t steps) {
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
    if (feeds->count && !feeds->one && !feeds->many)
        return tu_fail(TU_INVALID, "feed_count is %zu, but feeds is NULL", feeds->count);
    return tu__inputs_check(program, feeds, steps);
}

/* Returns the device with the lowest address above `done`. */
static tu__device *next_device(const tu_program *p, const tu__device *done) {
    tu__device *next = NULL;
    for (size_t i = 0; i < p->device_count; i++)
        if (p->devices[i] > done && (!next || p->devices[i] < next)) next = p->devices[i];
    return next;
}

/* Devices are locked in the order of their addresses, so that two programs with the same devices cannot deadlock. */
static void lock_devices(const tu_program *p) {
    for (tu__device *d = next_device(p, NULL); d; d = next_device(p, d)) pthread_mutex_lock(&d->lock);
}

static void unlock_devices(const tu_program *p) {
    for (tu__device *d = next_device(p, NULL); d; d = next_device(p, d)) pthread_mutex_unlock(&d->lock);
}

/* ---- Steps ---- */

/* Replaces a NULL state by an empty one of seed 0. */
static tu_status use_state(tu_program *p, tu_state **state) {
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

/* Adds to an error message which steps took effect. */
static tu_status add_failed_steps(const tu_program *p, tu_status status, size_t done, size_t chunk,
                                  size_t steps) {
    if (steps == 1) return status; /* same message as tu_run's */
    if (chunk == 1)
        return tu_fail(status, "step %zu of %zu failed, the %zu before it took effect: %s", done + 1, steps,
                       done, tu_message());
    return tu_fail(
        status,
        "steps %zu to %zu of %zu failed in one call of %s%s%s: the %zu steps before them took effect, "
        "and some of the failed ones may have: %s",
        done + 1, done + chunk, steps, p->only_active ? "device '" : "all devices",
        p->only_active ? p->only_active->device->name : "", p->only_active ? "'" : "", done, tu_message());
}

static tu_status run_steps(tu_program *p, tu_state *state, size_t steps, const tu__feed_list *feeds,
                           void *const *fetches) {
    size_t max_chunk;
    TU_TRY(use_state(p, &state));
    p->seed = state->seed;
    TU_TRY(tu__program_bind(p, state));
    TU_TRY(tu__inputs_begin(p, feeds, steps, &max_chunk));
    for (size_t done = 0, chunk; done < steps; done += chunk) {
        chunk = steps - done < max_chunk ? steps - done : max_chunk;
        tu__inputs_fill(p, state, done, chunk);
        tu_status status = p->inputs.are_submitted
                               ? tu__submit_steps(p, state, fetches, done, (uint32_t)chunk)
                               : tu__interpret_step(p, state, fetches, done);
        if (status != TU_OK) return add_failed_steps(p, status, done, chunk, steps);
    }
    return TU_OK;
}

tu_status tu_run(tu_program *program, tu_state *state, size_t feed_count, const tu_feed *feeds,
                 void *const *fetches) {
    const tu__feed_list list = {.count = feed_count, .one = feeds};
    TU_TRY(check_run(program, state, &list, 1));
    lock_devices(program);
    program->inputs.are_submitted = false;
    tu_status status = run_steps(program, state, 1, &list, fetches);
    unlock_devices(program);
    return status;
}

tu_status tu_run_many(tu_program *program, tu_state *state, size_t steps, size_t feed_count,
                      const tu_feed_many *feeds, void *const *fetches) {
    const tu__feed_list list = {.count = feed_count, .many = feeds};
    TU_TRY(check_run(program, state, &list, steps));
    lock_devices(program);
    program->inputs.are_submitted = tu__can_submit(program) && !tu__is_traced(program);
    tu_status status = run_steps(program, state, steps, &list, fetches);
    unlock_devices(program);
    return status;
}

tu_status tu_program_multi_step(const tu_program *program, tu_multi_step_report *report) {
    const tu__inputs *in = &program->inputs;
    TU_TRY(TU__CHECK_SIZED(tu_multi_step_report, report));
    bool in_one_call = tu__can_submit(program);
    tu_multi_step_report full = {.in_one_call = in_one_call,
                                 .table_bytes = in->table_bytes,
                                 .gathered_bytes = in->gathered_bytes,
                                 .notice = !in_one_call          ? program->submit.notice
                                           : in->table_notice[0] ? in->table_notice
                                                                 : NULL,
                                 .direct_copies = !in_one_call && tu__inputs_are_in_host_memory(program)};
    TU__COPY_SIZED(report, full);
    return TU_OK;
}
