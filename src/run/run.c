/* tu_run and tu_run_many: run steps of a program.
 *
 * tu_run interprets one step (interpret.c). tu_run_many gives the steps to the devices, if they can execute the command
 * list (submit.c); otherwise, or if a trace is recorded, it interprets them one by one, with the same results. The
 * first run with a state binds the program to it (bind.c). */
#include "base/alloc.h"
#include "base/sized.h"
#include "run/execution.h"
#include "run/trace.h"
#include "run/watch_steps.h"

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

/* ---- Locking ---- */

/* Returns what the session has on the device with the lowest address above `done`. */
static tu__session_device *next_device(const tu__execution *e, const tu__session_device *done) {
    tu__session_device *next = NULL;
    for (size_t i = 0; i < e->program->device_count; i++) {
        tu__session_device *on = e->parts[i].on;
        if (on > done && (!next || on < next)) next = on;
    }
    return next;
}

/* In the order of addresses, so that two programs with the same devices cannot deadlock. */
static void lock_devices(const tu__execution *e) {
    for (tu__session_device *d = next_device(e, NULL); d; d = next_device(e, d)) pthread_mutex_lock(&d->lock);
}

static void unlock_devices(const tu__execution *e) {
    for (tu__session_device *d = next_device(e, NULL); d; d = next_device(e, d))
        pthread_mutex_unlock(&d->lock);
}

/* Binds the program to the state and leaves the state locked: for writing if the program updates it. */
static tu_status lock_and_bind(tu__execution *e, tu_state *state) {
    if (e->program->unit.updates) {
        tu__state_lock(state);
        tu_status status = tu__bind(e, state);
        if (status != TU_OK) tu__state_unlock(state);
        return status;
    }
    for (;;) {
        tu__state_lock_shared(state);
        if (tu__is_bound(e, state)) return TU_OK;
        tu__state_unlock(state);
        tu__state_lock(state);
        tu_status status = tu__bind(e, state);
        tu__state_unlock(state);
        TU_TRY(status);
    }
}

/* ---- Steps ---- */

/* Replaces a NULL state by an empty one of seed 0. */
static tu_status use_state(tu__execution *e, tu_state **state) {
    if (*state) return TU_OK;
    if (!e->empty_state) { /* kept, so that the program stays bound to it */
        tu_graph *empty;
        TU_TRY(tu_graph_new(&empty));
        tu_status status = tu_state_new(empty, &e->empty_state);
        tu_graph_free(empty);
        TU_TRY(status);
    }
    tu_state_set_sample(e->empty_state, 0);
    *state = e->empty_state;
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

static tu_status run_bound(tu__execution *e, tu_state *state, size_t steps, const tu__feed_list *feeds,
                           void *const *fetches) {
    size_t max_chunk;
    TU_TRY(tu__inputs_begin(e, feeds, steps, &max_chunk));
    if (feeds->many) TU_TRY(tu__agree_on_steps(e->program, e->inputs.are_submitted, steps, &max_chunk));
    for (size_t done = 0, chunk; done < steps; done += chunk) {
        chunk = steps - done < max_chunk ? steps - done : max_chunk;
        tu__inputs_fill(e, state, done, chunk);
        tu_status status = e->inputs.are_submitted
                               ? tu__submit_steps(e, state, fetches, done, (uint32_t)chunk)
                               : tu__interpret_step(e, state, fetches, done);
        if (status != TU_OK) return add_failed_steps(e->program, status, done, chunk, steps);
    }
    return TU_OK;
}

/* Runs steps with the devices locked. */
static tu_status run_locked(tu__execution *e, tu_state *state, size_t steps, const tu__feed_list *feeds,
                            void *const *fetches) {
    TU_TRY(tu__check_threads_free(e));
    TU_TRY(use_state(e, &state));
    TU_TRY(lock_and_bind(e, state));
    e->seed = state->seed;
    e->trace = e->session ? NULL : e->program->trace;
    e->inputs.are_submitted = feeds->many && tu__can_submit(e->program) && !tu__is_traced(e);
    tu_status status = run_bound(e, state, steps, feeds, fetches);
    tu__state_unlock(state);
    return status;
}

/* Runs a program in a session (NULL: the default session, with `state`). */
static tu_status run(tu_program *program, tu_session *session, tu_state *state, size_t steps,
                     const tu__feed_list *feeds, void *const *fetches) {
    tu__execution *e;
    TU_TRY(check_run(program, state, feeds, steps));
    TU_TRY(tu__execution_of(program, session, &e));
    lock_devices(e);
    tu_status status = run_locked(e, state, steps, feeds, fetches);
    unlock_devices(e);
    return status;
}

tu_status tu_run(tu_program *program, tu_state *state, size_t feed_count, const tu_feed *feeds,
                 void *const *fetches) {
    return run(program, NULL, state, 1, &(tu__feed_list){.count = feed_count, .one = feeds}, fetches);
}

static const tu_feed_many
    no_feeds; /* so that a list of tu_run_many without feeds is not taken for one of tu_run */

tu_status tu_run_many(tu_program *program, tu_state *state, size_t steps, size_t feed_count,
                      const tu_feed_many *feeds, void *const *fetches) {
    const tu__feed_list list = {.count = feed_count, .many = feeds || feed_count ? feeds : &no_feeds};
    return run(program, NULL, state, steps, &list, fetches);
}

/* ---- Sessions ---- */

static tu_status check_session(const tu_session *session) {
    return session ? TU_OK : tu_fail(TU_INVALID, "a run needs a session, but got NULL");
}

tu_status tu_session_run(tu_session *session, tu_program *program, size_t feed_count, const tu_feed *feeds,
                         void *const *fetches) {
    TU_TRY(check_session(session));
    return run(program, session, tu__session_state(session), 1,
               &(tu__feed_list){.count = feed_count, .one = feeds}, fetches);
}

tu_status tu_session_run_many(tu_session *session, tu_program *program, size_t steps, size_t feed_count,
                              const tu_feed_many *feeds, void *const *fetches) {
    const tu__feed_list list = {.count = feed_count, .many = feeds || feed_count ? feeds : &no_feeds};
    TU_TRY(check_session(session));
    return run(program, session, tu__session_state(session), steps, &list, fetches);
}

/* Binds, which compiles kernels and allocates memory, and prepares calls with many steps. */
static tu_status warm_up(tu_program *program, tu_session *session, tu_state *state) {
    tu__execution *e;
    TU_TRY(check_run(program, state, &(tu__feed_list){0}, 1));
    TU_TRY(tu__execution_of(program, session, &e));
    lock_devices(e);
    tu_status status = tu__check_threads_free(e);
    if (status == TU_OK) status = use_state(e, &state);
    if (status == TU_OK) status = tu__inputs_allocate(e);
    if (status == TU_OK) status = lock_and_bind(e, state);
    if (status == TU_OK) {
        if (tu__can_submit(program)) status = tu__submit_bind(e);
        tu__state_unlock(state);
    }
    unlock_devices(e);
    return status;
}

tu_status tu_warm_up(tu_program *program, tu_state *state) {
    return warm_up(program, NULL, state);
}

tu_status tu_session_warm_up(tu_session *session, tu_program *program) {
    TU_TRY(check_session(session));
    return warm_up(program, session, tu__session_state(session));
}

/* ---- Reports ---- */

tu_status tu_program_multi_step(const tu_program *program, tu_multi_step_report *report) {
    TU_TRY(TU__CHECK_SIZED(tu_multi_step_report, report));
    tu__execution *e = tu__default_execution(program);
    const tu__inputs none = {0}, *in = e ? &e->inputs : &none;
    bool in_one_call = tu__can_submit(program);
    tu_multi_step_report full = {.in_one_call = in_one_call,
                                 .table_bytes = in->table_bytes,
                                 .gathered_bytes = in->gathered_bytes,
                                 .notice = !in_one_call          ? program->submit_notice
                                           : in->table_notice[0] ? in->table_notice
                                                                 : NULL,
                                 .direct_copies = !in_one_call && tu__inputs_are_in_host_memory(program)};
    TU__COPY_SIZED(report, full);
    return TU_OK;
}
