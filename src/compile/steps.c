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
typedef struct collective_action {
    uint32_t position, membership;
    bool is_run; /* false: post */
} collective_action;

typedef struct step_writer {
    tu__partition *partition;
    bool is_only_active;  /* the only partition of its program that is not idle */
    uint32_t *receive_of; /* per buffer: index of the receive that fills it, or TU_NO_NODE */
    bool *is_awaited;     /* per receive: a wait step is written */
    uint32_t *first_wait; /* per position: first control dependency on a receive, or TU_NO_NODE */
    uint32_t *written_by; /* per buffer: index into `sends_of` */
    /* Lists of sends: one per kernel, one for values that no kernel writes, and one per collective. */
    const send **sends_of;
    send *sends;
    collective_action *actions; /* sorted by position */
    uint32_t next_action;
} step_writer;

/* ---- Collecting dependencies ---- */

static void index_receives(step_writer *w) {
    for (uint32_t b = 0; b < w->partition->plan->buffer_count; b++) w->receive_of[b] = TU_NO_NODE;
    for (uint32_t i = 0; i < w->partition->receive_count; i++)
        w->receive_of[w->partition->receives[i].buffer] = i;
}

static void index_writers(step_writer *w) {
    const tu_plan *plan = w->partition->plan;
    for (uint32_t b = 0; b < plan->buffer_count; b++) w->written_by[b] = plan->kernel_count;
    for (uint32_t k = 0; k < plan->kernel_count; k++)
        for (uint32_t i = 0; i < plan->kernels[k].write_count; i++)
            w->written_by[plan->kernels[k].writes[i]] = k;
    for (uint32_t i = 0; i < w->partition->collective_count; i++) {
        const tu__collective *c = w->partition->collectives[i].collective;
        for (uint32_t v = 0; v < c->value_count; v++)
            w->written_by[c->members[w->partition->collectives[i].rank].out[v]] = plan->kernel_count + 1 + i;
    }
}

static int compare_actions(const void *left, const void *right) {
    const collective_action *a = left, *b = right;
    if (a->position != b->position) return a->position < b->position ? -1 : 1;
    if (a->membership != b->membership) return a->membership < b->membership ? -1 : 1;
    return a->is_run - b->is_run;
}

static void sort_actions(step_writer *w) {
    uint32_t count = w->partition->collective_count;
    for (uint32_t i = 0; i < count; i++) {
        const tu__membership *m = &w->partition->collectives[i];
        const tu__member *member = &m->collective->members[m->rank];
        w->actions[2 * i] = (collective_action){.position = member->post_position, .membership = i};
        w->actions[2 * i + 1] =
            (collective_action){.position = member->wait_position, .membership = i, .is_run = true};
    }
    if (count) qsort(w->actions, 2 * (size_t)count, sizeof *w->actions, compare_actions);
}

static void index_sends(step_writer *w, const tu__partition *partitions, size_t count, size_t index) {
    send *next = w->sends;
    for (size_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < partitions[p].receive_count; i++) {
            tu__receive *receive = &partitions[p].receives[i];
            if (receive->source_partition != index) continue;
            const send **list = &w->sends_of[w->written_by[receive->source_buffer]];
            *next = (send){.receive = receive, .next = *list};
            *list = next++;
        }
}

/* ---- Writing ---- */

static void add_step(tu__partition *partition, tu__step step) {
    uint32_t count = partition->step_count;
    if (step.kind == TU__STEP_LAUNCH && count > 0 && partition->steps[count - 1].kind == TU__STEP_LAUNCH)
        partition->steps[count - 1].count += step.count;
    else
        partition->steps[partition->step_count++] = step;
}

/* Signals the values of list `source` of `sends_of`. */
static void signal_sends(step_writer *w, uint32_t source) {
    for (const send *s = w->sends_of[source]; s; s = s->next)
        add_step(w->partition,
                 (tu__step){.kind = TU__STEP_SIGNAL, .event = s->receive->produced, .receive = s->receive});
}

static void add_wait(step_writer *w, uint32_t index) {
    if (w->is_awaited[index]) return;
    w->is_awaited[index] = true;
    tu__receive *receive = &w->partition->receives[index];
    add_step(w->partition, (tu__step){.kind = TU__STEP_WAIT, .event = receive->received, .receive = receive});
}

static void wait_for_inputs(step_writer *w, const tu_kernel *k) {
    for (uint32_t i = 0; i < k->read_count; i++)
        if (w->receive_of[k->reads[i]] != TU_NO_NODE) add_wait(w, w->receive_of[k->reads[i]]);
}

static void index_waits(step_writer *w) {
    for (uint32_t i = 0; i < w->partition->plan->kernel_count + 1; i++) w->first_wait[i] = TU_NO_NODE;
    for (uint32_t i = 0; i < w->partition->wait_count; i++) {
        tu__wait *wait = &w->partition->waits[i];
        wait->next = w->first_wait[wait->position];
        w->first_wait[wait->position] = i;
    }
}

/* Waits for the control dependencies of the kernel at `position`. */
static void wait_for_control_dependencies(step_writer *w, uint32_t position) {
    for (uint32_t i = w->first_wait[position]; i != TU_NO_NODE; i = w->partition->waits[i].next)
        add_wait(w, w->receive_of[w->partition->waits[i].buffer]);
}

/* Waits for all receives that no kernel waited for: before the first update every value has been received, including
 * those that are only fetched or assigned. */
static void wait_for_all(step_writer *w) {
    for (uint32_t i = 0; i < w->partition->receive_count; i++) add_wait(w, i);
}

static void write_post(step_writer *w, uint32_t membership) {
    const tu__membership *m = &w->partition->collectives[membership];
    const tu__member *member = &m->collective->members[m->rank];
    for (uint32_t v = 0; v < m->collective->value_count; v++)
        if (w->receive_of[member->in[v]] != TU_NO_NODE) add_wait(w, w->receive_of[member->in[v]]);
    add_step(w->partition, (tu__step){.kind = TU__STEP_POST, .membership = membership});
}

/* Writes the posts and runs of collectives that come before the kernel at `position`. */
static void write_collectives(step_writer *w, uint32_t position) {
    for (; w->next_action < 2 * w->partition->collective_count &&
           w->actions[w->next_action].position == position;
         w->next_action++) {
        const collective_action *a = &w->actions[w->next_action];
        if (!a->is_run) {
            write_post(w, a->membership);
            continue;
        }
        add_step(w->partition, (tu__step){.kind = TU__STEP_COLLECTIVE, .membership = a->membership});
        signal_sends(w, w->partition->plan->kernel_count + 1 + a->membership);
    }
}

static void add_barrier(step_writer *w) {
    if (!w->is_only_active) add_step(w->partition, (tu__step){.kind = TU__STEP_BARRIER});
}

static void write_all_steps(step_writer *w) {
    tu__partition *partition = w->partition;
    uint32_t kernels = partition->plan->kernel_count,
             compute_kernel_count = kernels - partition->update_kernel_count;
    signal_sends(w, kernels);
    for (uint32_t i = 0; i < kernels; i++) {
        write_collectives(w, i);
        wait_for_control_dependencies(w, i);
        wait_for_inputs(w, &partition->plan->kernels[partition->order[i]]);
        if (i == compute_kernel_count) {
            wait_for_all(w);
            add_barrier(w);
        }
        add_step(partition, (tu__step){.kind = TU__STEP_LAUNCH, .first = i, .count = 1});
        signal_sends(w, partition->order[i]);
    }
    write_collectives(w, kernels);
    wait_for_all(w);
    if (!partition->update_kernel_count) add_barrier(w);
}

/* True if another partition receives a value from this one. A variable that another device reads is sent too. */
static bool sends_values(const tu__partition *partitions, size_t count, size_t index) {
    for (size_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < partitions[p].receive_count; i++)
            if (partitions[p].receives[i].source_partition == index) return true;
    return false;
}

void tu__find_idle_partitions(tu__partition *partitions, size_t count) {
    for (size_t i = 0; i < count; i++)
        partitions[i].is_idle = !partitions[i].plan->kernel_count && !partitions[i].receive_count &&
                                !partitions[i].collective_count && !sends_values(partitions, count, i);
}

tu_status tu__write_steps(tu__partition *partitions, size_t count, size_t index) {
    tu__partition *partition = &partitions[index];
    size_t buffers = partition->plan->buffer_count, kernels = partition->plan->kernel_count, receives = 0,
           active = 0, collectives = partition->collective_count;
    for (size_t p = 0; p < count; p++) active += !partitions[p].is_idle;
    if (partition->is_idle) return TU_OK;
    for (size_t p = 0; p < count; p++) receives += partitions[p].receive_count;
    partition->steps =
        tu__alloc_array(kernels + 2 * (receives + collectives) + 2, sizeof *partition->steps, "a partition");
    tu__arena arena = {.purpose = "a partition"};
    step_writer w = {.partition = partition,
                     .is_only_active = active < 2,
                     .receive_of = tu__arena_alloc(&arena, buffers * sizeof *w.receive_of),
                     .first_wait = tu__arena_alloc(&arena, (kernels + 1) * sizeof *w.first_wait),
                     .is_awaited = tu__arena_alloc(&arena, partition->receive_count),
                     .written_by = tu__arena_alloc(&arena, buffers * sizeof *w.written_by),
                     .sends_of = tu__arena_alloc(&arena, (kernels + 1 + collectives) * sizeof(send *)),
                     .sends = tu__arena_alloc(&arena, receives * sizeof *w.sends),
                     .actions = tu__arena_alloc(&arena, 2 * collectives * sizeof *w.actions)};
    bool allocated = partition->steps && w.receive_of && w.is_awaited && w.first_wait && w.written_by &&
                     w.sends_of && w.sends && w.actions;
    if (allocated) {
        index_receives(&w);
        index_waits(&w);
        index_writers(&w);
        index_sends(&w, partitions, count, index);
        sort_actions(&w);
        write_all_steps(&w);
    }
    tu__arena_free(&arena);
    return allocated ? TU_OK : TU_NO_MEMORY;
}

/* ---- Copies ---- */

static bool is_sent_by(const tu__step *step, uint32_t index) {
    return step->kind == TU__STEP_SIGNAL && step->receive->copied_by == index;
}

/* Lists receives before sends, and sends in the order in which they are produced: a thread that waits for the first
 * produced value does not miss another. */
tu_status tu__list_copies(tu__partition *partitions, uint32_t index) {
    tu__partition *partition = &partitions[index];
    partition->copies = tu__alloc_array((size_t)partition->receive_count + partition->step_count,
                                        sizeof *partition->copies, "a partition");
    if (!partition->copies) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < partition->receive_count; i++)
        if (partition->receives[i].copied_by == index)
            partition->copies[partition->copy_count++] = &partition->receives[i];
    for (uint32_t i = 0; i < partition->step_count; i++)
        if (is_sent_by(&partition->steps[i], index))
            partition->copies[partition->copy_count++] = partition->steps[i].receive;
    return TU_OK;
}

/* True if a partition signals a value before it waits for anything. */
static bool signals_before_waiting(const tu__partition *partition, const tu__receive *receive) {
    for (uint32_t i = 0; i < partition->step_count; i++) {
        const tu__step *step = &partition->steps[i];
        if (step->kind != TU__STEP_LAUNCH && step->kind != TU__STEP_SIGNAL) return false;
        if (step->kind == TU__STEP_SIGNAL && step->receive == receive) return true;
    }
    return false;
}

void tu__find_early_receives(tu__partition *partitions, size_t count) {
    for (size_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < partitions[p].receive_count; i++) {
            tu__receive *receive = &partitions[p].receives[i];
            receive->is_early = receive->is_persistent ||
                                signals_before_waiting(&partitions[receive->source_partition], receive);
        }
}
