/* Copies values from one device to another while both compute.
 *
 * A partition performs the copies to its device, and those from its device to the host (partition.c says why). If the
 * device can, copies are asynchronous: the device's kernels wait for uploads, and downloads are queued after the
 * kernels that compute the value, so that they start without a host thread.
 *
 * The compute thread begins, between two kernels, the copies that can be begun without waiting: downloads into pinned
 * memory, and uploads from it whose value exists before the run or is produced before the source partition waits for
 * anything. The receiving partition polls until such a download is complete. All other copies are the work of the
 * device's copy thread. It begins copies as their values are produced, in any order, and waits for downloads when
 * there is nothing to begin. Using fewer threads matters on a busy machine, where each of them can be delayed. */
#include <stdio.h>

#include "base/clock.h"
#include "run/trace.h"

/* ---- Choosing the thread ---- */

/* True if the compute thread begins the copy. The receiver of a download must be able to poll for its completion. A
 * traced copy is measured by waiting for it, which would block the compute thread. */
static bool is_for_launcher(const tu_program *program, const tu__receive *a, bool traced) {
    if (!a->landed || !a->pinned || traced) return false;
    return a->mover == a->part ? a->early : program->devices[a->mover]->api->event_query != NULL;
}

void tu__deal_moves(tu_program *program) {
    bool traced = tu__trace_now(program) > 0;
    for (size_t p = 0; p < program->device_count; p++) {
        tu__partition *part = &program->parts[p];
        part->copier_moves = 0;
        for (uint32_t i = 0; i < part->move_count; i++) {
            part->moves[i]->by_launcher = is_for_launcher(program, part->moves[i], traced);
            part->copier_moves += !part->moves[i]->by_launcher;
        }
    }
}

/* The copies of a partition's copy thread in one run. */
typedef struct mover {
    tu_program *program;
    tu__partition *part;
    uint32_t first; /* copies before this one are complete, or belong to the compute thread */
} mover;

/* ---- Choosing the next copy ---- */

static bool is_begun(const mover *m, uint32_t move) {
    return m->part->moves[move]->begun == m->program->exchange.epoch;
}

static bool has_arrived(const mover *m, uint32_t move) {
    return tu__exchange_has_happened(&m->program->exchange, m->part->moves[move]->arrived);
}

/* Returns a copy that has not begun and whose value is produced; TU_NO_NODE if there is none. */
static uint32_t next_to_begin(mover *m) {
    while (m->first < m->part->move_count &&
           (m->part->moves[m->first]->by_launcher || has_arrived(m, m->first)))
        m->first++;
    for (uint32_t i = m->first; i < m->part->move_count; i++)
        if (!m->part->moves[i]->by_launcher && !is_begun(m, i) &&
            tu__exchange_has_happened(&m->program->exchange, m->part->moves[i]->made))
            return i;
    return TU_NO_NODE;
}

/* Returns the first copy in progress; downloads are listed in the order in which they are produced. */
static uint32_t next_to_land(const mover *m) {
    for (uint32_t i = m->first; i < m->part->move_count; i++)
        if (!m->part->moves[i]->by_launcher && is_begun(m, i) && !has_arrived(m, i)) return i;
    return TU_NO_NODE;
}

/* Polls until there is a copy to begin, for at most `spin_seconds`. */
static void watch(mover *m) {
    const tu__exchange *x = &m->program->exchange;
    double until = x->watch > 0 ? tu__now() + x->watch : 0;
    while (until > 0 && tu__now() < until)
        if (next_to_begin(m) != TU_NO_NODE || tu__exchange_is_aborted(x)) return;
}

/* Sleeps until there is a copy to begin; TU_NO_NODE if the run was aborted or timed out. */
static uint32_t await_next(mover *m) {
    tu__exchange *x = &m->program->exchange;
    bool in_time = true;
    uint32_t next;
    watch(m);
    pthread_mutex_lock(&x->lock);
    while ((next = next_to_begin(m)) == TU_NO_NODE && !tu__exchange_is_aborted(x) && in_time)
        in_time = tu__exchange_sleep(x, (size_t)(m->part - m->program->parts), TU__COPIER);
    pthread_mutex_unlock(&x->lock);
    return next;
}

/* ---- Copying ---- */

static void tell_arrived(mover *m, uint32_t move) {
    const tu__receive *a = m->part->moves[move];
    tu__exchange_signal_to(&m->program->exchange, a->arrived, a->part, TU__LAUNCHER);
}

static tu_status failed(const tu_program *program, const tu__receive *a, tu_status status) {
    char message[768];
    snprintf(message, sizeof message, "%s", tu_message());
    return tu_fail(status, "copying '%s' from device '%s' to '%s' failed: %s",
                   program->unit.graph->nodes[a->source.node]->name, program->devices[a->source_part]->name,
                   program->devices[a->part]->name, message);
}

static tu_status wait_until_made(const tu_program *program, const tu__receive *a) {
    const tu__partition *from = &program->parts[a->source_part];
    if (!a->ready) return TU_OK;
    return tu__partition_await(program, from, a->ready, &program->parts[a->mover].awaited_by_copier);
}

/* Performs a copy synchronously. */
static tu_status move_now(mover *m, uint32_t move) {
    const tu__receive *a = m->part->moves[move];
    const tu__partition *to = &m->program->parts[a->part], *from = &m->program->parts[a->source_part];
    TU_TRY(wait_until_made(m->program, a));
    double began = tu__trace_now(m->program);
    tu_status status = tu__device_copy(to->device, to->addresses[a->buffer], from->device,
                                       from->addresses[a->source_buffer], to->plan->buffers[a->buffer].bytes);
    tu__trace_add(m->program, TU__SPAN_COPY, a->part, (size_t)(a - to->receives), began);
    if (status != TU_OK) return failed(m->program, a, status);
    tell_arrived(m, move);
    return TU_OK;
}

tu_status tu__begin_move(const tu_program *program, tu__receive *a) {
    const tu__partition *to = &program->parts[a->part], *from = &program->parts[a->source_part];
    const tu__device *d = program->devices[a->mover];
    bool comes = a->mover == a->part;
    void *target = to->addresses[a->buffer];
    const void *value = from->addresses[a->source_buffer];
    size_t bytes = to->plan->buffers[a->buffer].bytes;
    a->begun = program->exchange.epoch;
    tu_status status = comes ? d->api->upload_begin(d->instance, target, value, bytes, a->landed)
                             : d->api->download_begin(d->instance, target, value, bytes, a->ready, a->landed);
    return status == TU_OK ? TU_OK : failed(program, a, status);
}

/* Begins an asynchronous copy. An upload counts as received once it has begun: the device waits for the rest. */
static tu_status begin(mover *m, uint32_t move) {
    tu__receive *a = m->part->moves[move];
    TU_TRY(tu__begin_move(m->program, a));
    if (a->mover == a->part) tell_arrived(m, move);
    return TU_OK;
}

static tu_status make_move(mover *m, uint32_t move) {
    m->part->moves[move]->begun = m->program->exchange.epoch;
    bool traced = tu__trace_now(m->program) > 0;
    return m->part->moves[move]->landed && !traced ? begin(m, move) : move_now(m, move);
}

static tu_status let_land(mover *m, uint32_t move) {
    const tu__device *d = m->part->device;
    tu_status status = d->api->event_synchronize(d->instance, m->part->moves[move]->landed);
    if (status != TU_OK) return tu__partition_failed(m->part, status);
    tell_arrived(m, move);
    return TU_OK;
}

/* Returns without an error on a timeout: the partition that waits for the value reports it. */
static tu_status make_all(mover *m) {
    for (uint32_t left = m->part->copier_moves; left || next_to_land(m) != TU_NO_NODE;) {
        uint32_t next = next_to_begin(m), under_way = next_to_land(m);
        if (next == TU_NO_NODE && under_way != TU_NO_NODE) {
            TU_TRY(let_land(m, under_way));
            continue;
        }
        if (next == TU_NO_NODE) next = await_next(m);
        if (next == TU_NO_NODE) return TU_OK;
        TU_TRY(make_move(m, next));
        left--;
    }
    return TU_OK;
}

void tu__let_moves_land(const tu_program *program, const tu__partition *part, tu__thread thread) {
    const tu__device *d = part->device;
    for (uint32_t i = 0; i < part->move_count; i++) {
        const tu__receive *a = part->moves[i];
        bool own = a->by_launcher == (thread == TU__LAUNCHER);
        if (own && a->landed && a->begun == program->exchange.epoch)
            (void)d->api->event_synchronize(d->instance, a->landed);
    }
}

void tu__make_moves(void *argument) {
    const tu__job *j = argument;
    mover m = {.program = j->program, .part = j->part};
    tu_status status = make_all(&m);
    if (status != TU_OK) tu__exchange_abort(&j->program->exchange, status);
    if (tu__exchange_is_aborted(&j->program->exchange)) tu__let_moves_land(j->program, j->part, TU__COPIER);
}
