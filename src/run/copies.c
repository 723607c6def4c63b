/* Bringing values from one device to another while both compute.
 *
 * A part brings what comes to its device and, to a processor, what leaves it (part.c says why). Where the device can, a move
 * is begun and not waited for. Behind what comes from the host the device's own kernels wait; what leaves for it stands in
 * line behind the kernels that make it, so that it leaves when they are done, whatever the host's threads are about.
 *
 * Where a move can be begun in no time, the launching thread does it, between two kernels: what leaves for pinned memory,
 * and what comes from it, if it is made before a run begins or in front of everything that could hold it up. Who
 * needs what left watches for its end. Everything else is for the copying thread of the device, which begins moves as values
 * are made, in whatever order that is, and waits for the end of those that leave when there is nothing more to begin. Each thread
 * less is one less that a busy machine can hold up. */
#include <stdio.h>

#include "base/clock.h"
#include "run/trace.h"

/* ---- Who begins a move ---- */

/* Whoever waits for what leaves must be able to see it land. A trace tells how long a copy took, so there each is waited
 * for, and the launching thread would be held up. */
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

/* The moves of a part's copying thread in one run. */
typedef struct mover {
    tu_program *program;
    tu__partition *part;
    uint32_t first; /* so many of the list are known to have arrived, or are the launching thread's */
} mover;

/* ---- What is to be done ---- */

static bool is_begun(const mover *m, uint32_t move) {
    return m->part->moves[move]->begun == m->program->exchange.epoch;
}

static bool has_arrived(const mover *m, uint32_t move) {
    return tu__exchange_has_happened(&m->program->exchange, m->part->moves[move]->arrived);
}

/* Any move whose value is made and which is not begun yet; TU_NO_NODE when there is none. */
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

/* The first move that is under way: what leaves is listed in the order in which it does. */
static uint32_t next_to_land(const mover *m) {
    for (uint32_t i = m->first; i < m->part->move_count; i++)
        if (!m->part->moves[i]->by_launcher && is_begun(m, i) && !has_arrived(m, i)) return i;
    return TU_NO_NODE;
}

/* Until there is something to begin, or it is time to sleep. */
static void watch(mover *m) {
    const tu__exchange *x = &m->program->exchange;
    double until = x->watch > 0 ? tu__now() + x->watch : 0;
    while (until > 0 && tu__now() < until)
        if (next_to_begin(m) != TU_NO_NODE || tu__exchange_is_aborted(x)) return;
}

/* Sleeps until there is a move to begin; TU_NO_NODE: the run was aborted, or it is late. */
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

/* ---- Doing it ---- */

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

/* From beginning to end. */
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

/* Uploads have arrived, as far as the host is concerned, when they are begun. */
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

/* What is late the part that waits for it says. */
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
