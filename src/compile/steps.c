/* Writes the steps of a partition: its kernels in order, with waits, signals, collectives and the barrier between
 * them.
 *
 * A kernel that reads a value from another device, or has a control dependency on it, comes after the wait for its
 * receive. A value that another partition needs is signalled right after the kernel that writes it; one that no
 * kernel writes, before the first kernel. The barrier comes before the kernels that change variables, or at the end
 * if there are none; after it, every partition has computed and every value has been received. Adjacent kernels
 * become one launch. collectives.h says where collectives are posted and run.
 *
 * A partition that is the only active one needs no barrier: all its kernels are one launch, which a device may replay
 * as a whole. The kernels that change variables still come last, and a device stops at the first kernel that
 * fails. */
#include <stdlib.h>

#include "base/alloc.h"
#include "compile/collectives.h"

typedef struct send { /* a value that another partition receives */
    tu__receive *receive;
    const struct send *next; /* next value written by the same kernel */
} send;

/* A post or a run of a collective, before the kernel at a position of the order. */
typedef struct appointment {
    uint32_t place, membership;
    bool hold; /* false: post */
} appointment;

typedef struct writer {
    tu__partition *part;
    bool alone;           /* the only partition of its program that is not idle */
    uint32_t *receive_in; /* per buffer: index of the receive that fills it, or TU_NO_NODE */
    bool *awaited;        /* per receive: a wait step is written */
    uint32_t *wait_at;    /* per position: first control dependency on a receive, or TU_NO_NODE */
    uint32_t *written_by; /* per buffer: index into `sends_of` */
    /* Lists of sends: one per kernel, one for values that no kernel writes, and one per collective. */
    const send **departing;
    send *sends;
    appointment *appointments; /* sorted by position */
    uint32_t kept;
} writer;

/* ---- Collecting dependencies ---- */

static void note_receives(writer *w) {
    for (uint32_t b = 0; b < w->part->plan->buffer_count; b++) w->receive_in[b] = TU_NO_NODE;
    for (uint32_t i = 0; i < w->part->receive_count; i++) w->receive_in[w->part->receives[i].buffer] = i;
}

static void note_writers(writer *w) {
    const tu_plan *plan = w->part->plan;
    for (uint32_t b = 0; b < plan->buffer_count; b++) w->written_by[b] = plan->kernel_count;
    for (uint32_t k = 0; k < plan->kernel_count; k++)
        for (uint32_t i = 0; i < plan->kernels[k].write_count; i++)
            w->written_by[plan->kernels[k].writes[i]] = k;
    for (uint32_t i = 0; i < w->part->collective_count; i++) {
        const tu__collective *m = w->part->collectives[i].collective;
        for (uint32_t v = 0; v < m->value_count; v++)
            w->written_by[m->members[w->part->collectives[i].rank].out[v]] = plan->kernel_count + 1 + i;
    }
}

static int compare_appointments(const void *left, const void *right) {
    const appointment *a = left, *b = right;
    if (a->place != b->place) return a->place < b->place ? -1 : 1;
    if (a->membership != b->membership) return a->membership < b->membership ? -1 : 1;
    return a->hold - b->hold;
}

static void note_appointments(writer *w) {
    uint32_t count = w->part->collective_count;
    for (uint32_t i = 0; i < count; i++) {
        const tu__membership *at = &w->part->collectives[i];
        const tu__member *a = &at->collective->members[at->rank];
        w->appointments[2 * i] = (appointment){.place = a->ready, .membership = i};
        w->appointments[2 * i + 1] = (appointment){.place = a->held, .membership = i, .hold = true};
    }
    if (count) qsort(w->appointments, 2 * (size_t)count, sizeof *w->appointments, compare_appointments);
}

static void note_sends(writer *w, const tu__partition *parts, size_t count, size_t index) {
    send *next = w->sends;
    for (size_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < parts[p].receive_count; i++) {
            tu__receive *a = &parts[p].receives[i];
            if (a->source_part != index) continue;
            const send **list = &w->departing[w->written_by[a->source_buffer]];
            *next = (send){.receive = a, .next = *list};
            *list = next++;
        }
}

/* ---- Writing ---- */

static void add_step(tu__partition *part, tu__step step) {
    uint32_t count = part->step_count;
    if (step.kind == TU__STEP_LAUNCH && count > 0 && part->steps[count - 1].kind == TU__STEP_LAUNCH)
        part->steps[count - 1].count += step.count;
    else
        part->steps[part->step_count++] = step;
}

/* Signals the values that kernel `writer` has written. kernel_count: values that no kernel writes; above:
 * collectives. */
static void signal_sends(writer *w, uint32_t kernel) {
    for (const send *d = w->departing[kernel]; d; d = d->next)
        add_step(w->part,
                 (tu__step){.kind = TU__STEP_SIGNAL, .event = d->receive->made, .receive = d->receive});
}

static void wait_receive(writer *w, uint32_t receive) {
    if (w->awaited[receive]) return;
    w->awaited[receive] = true;
    tu__receive *a = &w->part->receives[receive];
    add_step(w->part, (tu__step){.kind = TU__STEP_WAIT, .event = a->arrived, .receive = a});
}

static void wait_inputs(writer *w, const tu_kernel *k) {
    for (uint32_t i = 0; i < k->read_count; i++)
        if (w->receive_in[k->reads[i]] != TU_NO_NODE) wait_receive(w, w->receive_in[k->reads[i]]);
}

static void note_waits(writer *w) {
    for (uint32_t i = 0; i < w->part->plan->kernel_count + 1; i++) w->wait_at[i] = TU_NO_NODE;
    for (uint32_t i = 0; i < w->part->wait_count; i++) {
        tu__wait *wait = &w->part->waits[i];
        wait->next = w->wait_at[wait->before];
        w->wait_at[wait->before] = i;
    }
}

/* Waits for the control dependencies of the kernel at `position`. */
static void wait_in_line(writer *w, uint32_t place) {
    for (uint32_t i = w->wait_at[place]; i != TU_NO_NODE; i = w->part->waits[i].next)
        wait_receive(w, w->receive_in[w->part->waits[i].buffer]);
}

/* Waits for all receives that no kernel waited for: before the first update every value has been received, including
 * those that are only fetched or assigned. */
static void wait_all(writer *w) {
    for (uint32_t i = 0; i < w->part->receive_count; i++) wait_receive(w, i);
}

static void bring(writer *w, uint32_t membership) {
    const tu__membership *at = &w->part->collectives[membership];
    const tu__member *a = &at->collective->members[at->rank];
    for (uint32_t v = 0; v < at->collective->value_count; v++)
        if (w->receive_in[a->in[v]] != TU_NO_NODE) wait_receive(w, w->receive_in[a->in[v]]);
    add_step(w->part, (tu__step){.kind = TU__STEP_POST, .membership = membership});
}

/* Writes the posts and runs of collectives that come before the kernel at `position`. */
static void keep_appointments(writer *w, uint32_t place) {
    for (; w->kept < 2 * w->part->collective_count && w->appointments[w->kept].place == place; w->kept++) {
        const appointment *a = &w->appointments[w->kept];
        if (!a->hold) {
            bring(w, a->membership);
            continue;
        }
        add_step(w->part, (tu__step){.kind = TU__STEP_COLLECTIVE, .membership = a->membership});
        signal_sends(w, w->part->plan->kernel_count + 1 + a->membership);
    }
}

static void meet_the_others(writer *w) {
    if (!w->alone) add_step(w->part, (tu__step){.kind = TU__STEP_BARRIER});
}

static void write_all(writer *w) {
    tu__partition *part = w->part;
    uint32_t kernels = part->plan->kernel_count, computing = kernels - part->update_kernels;
    signal_sends(w, kernels);
    for (uint32_t i = 0; i < kernels; i++) {
        keep_appointments(w, i);
        wait_in_line(w, i);
        wait_inputs(w, &part->plan->kernels[part->order[i]]);
        if (i == computing) {
            wait_all(w);
            meet_the_others(w);
        }
        add_step(part, (tu__step){.kind = TU__STEP_LAUNCH, .first = i, .count = 1});
        signal_sends(w, part->order[i]);
    }
    keep_appointments(w, kernels);
    wait_all(w);
    if (!part->update_kernels) meet_the_others(w);
}

/* True if another partition receives a value from this one. A variable that another device reads is sent too. */
static bool sends(const tu__partition *parts, size_t count, size_t index) {
    for (size_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < parts[p].receive_count; i++)
            if (parts[p].receives[i].source_part == index) return true;
    return false;
}

void tu__find_idle_partitions(tu__partition *parts, size_t count) {
    for (size_t i = 0; i < count; i++)
        parts[i].idle = !parts[i].plan->kernel_count && !parts[i].receive_count &&
                        !parts[i].collective_count && !sends(parts, count, i);
}

tu_status tu__write_steps(tu__partition *parts, size_t count, size_t index) {
    tu__partition *part = &parts[index];
    size_t buffers = part->plan->buffer_count, kernels = part->plan->kernel_count, receives = 0, working = 0,
           collectives = part->collective_count;
    for (size_t p = 0; p < count; p++) working += !parts[p].idle;
    if (part->idle) return TU_OK;
    for (size_t p = 0; p < count; p++) receives += parts[p].receive_count;
    part->steps = tu__alloc_array(kernels + 2 * (receives + collectives) + 2, sizeof *part->steps, "a part");
    tu__arena arena = {.purpose = "a part"};
    writer w = {.part = part,
                .alone = working < 2,
                .receive_in = tu__arena_alloc(&arena, buffers * sizeof *w.receive_in),
                .wait_at = tu__arena_alloc(&arena, (kernels + 1) * sizeof *w.wait_at),
                .awaited = tu__arena_alloc(&arena, part->receive_count),
                .written_by = tu__arena_alloc(&arena, buffers * sizeof *w.written_by),
                .departing = tu__arena_alloc(&arena, (kernels + 1 + collectives) * sizeof(send *)),
                .sends = tu__arena_alloc(&arena, receives * sizeof *w.sends),
                .appointments = tu__arena_alloc(&arena, 2 * collectives * sizeof *w.appointments)};
    bool ready = part->steps && w.receive_in && w.awaited && w.wait_at && w.written_by && w.departing &&
                 w.sends && w.appointments;
    if (ready) {
        note_receives(&w);
        note_waits(&w);
        note_writers(&w);
        note_sends(&w, parts, count, index);
        note_appointments(&w);
        write_all(&w);
    }
    tu__arena_free(&arena);
    return ready ? TU_OK : TU_NO_MEMORY;
}

/* ---- Copies ---- */

static bool is_sent_by(const tu__step *step, uint32_t index) {
    return step->kind == TU__STEP_SIGNAL && step->receive->mover == index;
}

/* Lists receives before sends, and sends in the order in which they are produced: a thread that waits for the first
 * produced value does not miss another. */
tu_status tu__list_moves(tu__partition *parts, uint32_t index) {
    tu__partition *part = &parts[index];
    part->moves =
        tu__alloc_array((size_t)part->receive_count + part->step_count, sizeof *part->moves, "a part");
    if (!part->moves) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < part->receive_count; i++)
        if (part->receives[i].mover == index) part->moves[part->move_count++] = &part->receives[i];
    for (uint32_t i = 0; i < part->step_count; i++)
        if (is_sent_by(&part->steps[i], index)) part->moves[part->move_count++] = part->steps[i].receive;
    return TU_OK;
}

/* True if a partition signals a value before it waits for anything. */
static bool signals_at_once(const tu__partition *part, const tu__receive *a) {
    for (uint32_t i = 0; i < part->step_count; i++) {
        const tu__step *step = &part->steps[i];
        if (step->kind != TU__STEP_LAUNCH && step->kind != TU__STEP_SIGNAL) return false;
        if (step->kind == TU__STEP_SIGNAL && step->receive == a) return true;
    }
    return false;
}

void tu__find_early_receives(tu__partition *parts, size_t count) {
    for (size_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < parts[p].receive_count; i++) {
            tu__receive *a = &parts[p].receives[i];
            a->early = a->at_hand || signals_at_once(&parts[a->source_part], a);
        }
}
