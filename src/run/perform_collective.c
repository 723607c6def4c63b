/* Runs collectives.
 *
 * Each rank does its share of the work (comm/communicator.h): it combines elements of several ranks and writes them to
 * several ranks. Between host devices it does so with its own threads (comm/local.c). Logical devices of one GPU, and
 * GPUs with peer access, do the same with a kernel (`build_collective` of the device interface). Otherwise values go
 * through the host: each rank downloads the elements, adds them, and uploads the result. The trace shows which of these
 * was used. */
#include "run/perform_collective.h"

#include <inttypes.h>

#include "base/parallel.h"
#include "comm/comm.h"
#include "run/trace.h"

/* ---- Timeouts ---- */

static tu_status fail_rank_timeout(tu__execution *e, const tu__part *part, const tu__collective *c,
                                   uint32_t missing, bool is_done) {
    const tu__member *member = &c->members[missing];
    tu__part *other = &e->parts[member->partition];
    return tu_fail(
        TU_DEVICE,
        "device '%s' waited %g s for device '%s' (rank %u of %u of collective %" PRId64
        ") to %s '%s'%s; '%s' is late: %s",
        part->device->name, e->sync.timeout, other->device->name, missing, c->ranks, c->id,
        is_done ? "finish its part of" : "post", e->program->unit.graph->nodes[member->nodes[0]]->name,
        c->value_count > 1 ? " and more" : "", other->device->name, tu__part_activity(e, other).text);
}

/* Waits until every rank has posted its values (`is_done`: has finished its part). */
static tu_status wait_for_all_ranks(tu__execution *e, tu__part *part, const tu__collective *c, bool is_done) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        const tu__member *member = &c->members[r];
        const tu__part *other = &e->parts[member->partition];
        if (!tu__run_sync_wait(&e->sync, part->index, is_done ? member->done : member->posted))
            return fail_rank_timeout(e, part, c, r, is_done);
        if (is_done || !other->queue || tu__run_sync_is_aborted(&e->sync)) continue;
        TU_TRY(tu__part_wait_event(other, other->queue, member->posted, &part->compute_thread_awaits));
    }
    return TU_OK;
}

/* ---- The work of one rank ---- */

static void combine_on_host(const tu__part *part, const tu_combination *combination) {
    tu__parallel_setting saved = tu__parallel_begin(part->device->threads);
    tu__local_combine(combination);
    tu__parallel_end(saved);
}

static tu_status combine_on_device(const tu__execution *e, const tu__part *part, uint32_t membership) {
    const tu__device *d = part->device;
    tu_status status = d->api->launch(d->instance, part->collectives[membership], 0, 1);
    return status == TU_OK ? tu__part_synchronize(e, part) : tu__part_fail(part, status);
}

/* The work of one rank whose values go through the host. */
typedef struct staged_work {
    const tu__execution *e;
    const tu__collective *c;
    const tu__communicator *communicator;
    uint32_t rank;
    char *staging; /* one area of TU__STAGED_BYTES per input */
} staged_work;

static const tu__part *part_of_rank(const staged_work *w, uint32_t rank) {
    return &w->e->parts[w->c->members[rank].partition];
}

/* Combines elements `first` … of a segment, which fit the staging buffer. */
static tu_status combine_staged(const staged_work *w, const tu_combination *combination,
                                const tu_combine_segment *s, size_t first, size_t count) {
    size_t size = tu_dtype_size(combination->dtype), bytes = count * size, offset = first * size;
    const void *in[TU__MAX_DEVICES];
    for (uint32_t k = 0; k < combination->in_count; k++) {
        const tu__part *from = part_of_rank(w, tu__communicator_rank_of_input(w->communicator, w->rank, k));
        char *area = w->staging + k * (size_t)TU__STAGED_BYTES;
        in[k] = area;
        tu_status status = tu__download(from->device, area, (const char *)s->in[k] + offset, bytes);
        if (status != TU_OK) return tu__part_fail(from, status);
    }
    tu__local_add(combination->dtype, combination->in_count, in, count, w->staging);
    for (uint32_t k = 0; k < combination->out_count; k++) {
        const tu__part *to = part_of_rank(w, tu__communicator_rank_of_output(w->communicator, w->rank, k));
        tu_status status = tu__upload(to->device, (char *)s->out[k] + offset, w->staging, bytes);
        if (status != TU_OK) return tu__part_fail(to, status);
    }
    return TU_OK;
}

static tu_status combine_through_host(const staged_work *w, const tu_combination *combination) {
    size_t max = TU__STAGED_BYTES / tu_dtype_size(combination->dtype);
    for (uint32_t i = 0; i < combination->segment_count; i++) {
        const tu_combine_segment *s = &combination->segments[i];
        for (size_t first = 0; first < s->count; first += max)
            TU_TRY(combine_staged(w, combination, s, first, s->count - first < max ? s->count - first : max));
    }
    return TU_OK;
}

static tu_status do_work(const tu__execution *e, const tu__part *part, const tu__collective *c,
                         const tu__member *member) {
    const staged_work w = {.e = e,
                           .c = c,
                           .communicator = &e->communicators[c->index],
                           .rank = (uint32_t)(member - c->members),
                           .staging = part->staging};
    const tu_combination *combinations = tu__communicator_of_rank(w.communicator, w.rank);
    if (c->path == TU__COLLECTIVE_ON_ONE_GPU || c->path == TU__COLLECTIVE_PEER_TO_PEER)
        return combine_on_device(e, part, member->membership);
    for (uint32_t i = 0; i < w.communicator->combination_count; i++) {
        if (c->path == TU__COLLECTIVE_ON_HOST)
            combine_on_host(part, &combinations[i]);
        else
            TU_TRY(combine_through_host(&w, &combinations[i]));
    }
    return TU_OK;
}

/* ---- Commands ---- */

static const tu__member *member_of(const tu__part *part, const tu__collective *c) {
    const tu__member *member = c->members;
    while (member->partition != part->index) member++;
    return member;
}

tu_status tu__collective_post(tu__execution *e, tu__part *part, const tu__collective *c) {
    const tu__member *member = member_of(part, c);
    tu_status status = part->queue ? part->device->api->record(part->queue, member->posted) : TU_OK;
    if (status != TU_OK) return tu__part_fail(part, status);
    tu__run_sync_signal(&e->sync, member->posted);
    if (TU__NEEDS_COMMUNICATION_THREAD(c)) tu__group_collective_post(e, c);
    return c->path == TU__COLLECTIVE_IN_SHARED_MEMORY ? tu__group_collective_send(e, part, c) : TU_OK;
}

/* Adds the collective and its first value to a message that already names the device. */
static tu_status fail_collective(const tu__execution *e, const tu__collective *c, tu_status status) {
    return tu_fail(status, "collective %" PRId64 ", '%s'%s: %s", c->id,
                   e->program->unit.graph->nodes[c->members[0].nodes[0]]->name,
                   c->value_count > 1 ? " and more" : "", tu_message());
}

static tu_status wait_traced(tu__execution *e, tu__part *part, const tu__collective *c, uint32_t membership,
                             bool is_done) {
    double began = tu__trace_now(e);
    TU_TRY(wait_for_all_ranks(e, part, c, is_done));
    tu__trace_add(e, TU__SPAN_COLLECTIVE_WAIT, part->index, membership, began);
    return TU_OK;
}

tu_status tu__collective_run(tu__execution *e, tu__part *part, const tu__collective *c) {
    const tu__member *member = member_of(part, c);
    bool in_shared_memory = c->path == TU__COLLECTIVE_IN_SHARED_MEMORY;
    if (TU__NEEDS_COMMUNICATION_THREAD(c)) return tu__group_collective_await(e, part, c);
    TU_TRY(wait_traced(e, part, c, member->membership, false));
    if (tu__run_sync_is_aborted(&e->sync)) return TU_OK;
    if (in_shared_memory) {
        TU_TRY(tu__group_collective_run(e, part, c));
    } else {
        double began = tu__trace_now(e);
        tu_status status = do_work(e, part, c, member);
        if (status != TU_OK) return fail_collective(e, c, status);
        tu__trace_add(e, TU__SPAN_COLLECTIVE, part->index, member->membership, began);
    }
    tu__run_sync_signal(&e->sync, member->done);
    return wait_traced(e, part, c, member->membership, true);
}
