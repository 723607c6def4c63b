/* Runs collectives.
 *
 * Between host devices, each rank reduces its slice of the values with its own threads (comm/local.c). Logical
 * devices of one GPU, and GPUs with peer access, do the same with a kernel (`build_collective` of the device
 * interface). Otherwise values go through the host: each rank downloads its slice from all ranks, adds, and uploads the
 * sum to all ranks. The trace shows which of these was used. */
#include "run/perform_collective.h"

#include <inttypes.h>

#include "base/parallel.h"
#include "comm/comm.h"
#include "device/kit/rank_slice.h"
#include "run/trace.h"

/* ---- Timeouts ---- */

static tu_status fail_rank_timeout(tu__execution *e, const tu__part *part, const tu__collective *c,
                                   uint32_t missing, bool is_reduced) {
    const tu__member *member = &c->members[missing];
    tu__part *other = &e->parts[member->partition];
    return tu_fail(
        TU_DEVICE,
        "device '%s' waited %g s for device '%s' (rank %u of %u of collective %" PRId64
        ") to %s '%s'%s; '%s' is late: %s",
        part->device->name, e->sync.timeout, other->device->name, missing, c->ranks, c->id,
        is_reduced ? "reduce its slice of" : "post", e->program->unit.graph->nodes[member->nodes[0]]->name,
        c->value_count > 1 ? " and more" : "", other->device->name, tu__part_activity(e, other).text);
}

/* Waits until every rank has posted its values (`is_reduced`: has reduced its slice). */
static tu_status wait_for_all_ranks(tu__execution *e, tu__part *part, const tu__collective *c,
                                    bool is_reduced) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        const tu__member *member = &c->members[r];
        const tu__part *other = &e->parts[member->partition];
        if (!tu__run_sync_wait(&e->sync, part->index, is_reduced ? member->done : member->posted))
            return fail_rank_timeout(e, part, c, r, is_reduced);
        if (is_reduced || !other->queue || tu__run_sync_is_aborted(&e->sync)) continue;
        TU_TRY(tu__part_wait_event(other, other->queue, member->posted, &part->compute_thread_awaits));
    }
    return TU_OK;
}

/* ---- Reducing a rank's slice ---- */

static void reduce_on_host(const tu__part *part, const tu_combination *combination) {
    tu__parallel_setting saved = tu__parallel_begin(part->device->threads);
    tu__local_collective(TU__ALL_REDUCE, 0, combination);
    tu__parallel_end(saved);
}

static tu_status reduce_on_device(const tu__execution *e, const tu__part *part, uint32_t membership) {
    const tu__device *d = part->device;
    tu_status status = d->api->launch(d->instance, part->collectives[membership], 0, 1);
    return status == TU_OK ? tu__part_synchronize(e, part) : tu__part_fail(part, status);
}

/* Reduces one chunk of a slice, which fits the staging buffer: one area per rank. */
static tu_status reduce_chunk(const tu__execution *e, const tu__collective *c,
                              const tu_combination *combination, const tu__rank_slice_range *chunk,
                              char *staging) {
    const tu_combine_segment *s = &combination->segments[chunk->segment];
    size_t size = tu_dtype_size(combination->dtype), bytes = chunk->count * size,
           offset = chunk->first * size;
    const void *in[TU__MAX_DEVICES];
    for (uint32_t r = 0; r < c->ranks; r++) {
        const tu__part *other = &e->parts[c->members[r].partition];
        char *area = staging + r * (size_t)TU__STAGED_BYTES;
        in[r] = area;
        tu_status status = tu__download(other->device, area, (const char *)s->in[r] + offset, bytes);
        if (status != TU_OK) return tu__part_fail(other, status);
    }
    tu__local_add(combination->dtype, c->ranks, in, chunk->count, staging);
    for (uint32_t r = 0; r < c->ranks; r++) {
        const tu__part *other = &e->parts[c->members[r].partition];
        tu_status status = tu__upload(other->device, (char *)s->out[r] + offset, staging, bytes);
        if (status != TU_OK) return tu__part_fail(other, status);
    }
    return TU_OK;
}

static tu_status reduce_through_host(const tu__execution *e, const tu__collective *c,
                                     const tu_combination *combination, char *staging) {
    tu__rank_slice_range chunk;
    tu__rank_slice_iterator iterator =
        tu__rank_slice_begin(combination, 0, tu__rank_slice_lines(combination));
    while (tu__rank_slice_next(&iterator, TU__STAGED_BYTES / tu_dtype_size(combination->dtype), &chunk))
        TU_TRY(reduce_chunk(e, c, combination, &chunk, staging));
    return TU_OK;
}

static tu_status reduce_slice(const tu__execution *e, const tu__part *part, const tu__collective *c,
                              const tu__member *member) {
    const tu__communicator *communicator = &e->communicators[c->index];
    const tu_combination *combinations =
        tu__communicator_of_rank(communicator, (uint32_t)(member - c->members));
    if (c->path == TU__COLLECTIVE_ON_ONE_GPU || c->path == TU__COLLECTIVE_PEER_TO_PEER)
        return reduce_on_device(e, part, member->membership);
    for (uint32_t i = 0; i < communicator->combination_count; i++) {
        if (c->path == TU__COLLECTIVE_ON_HOST)
            reduce_on_host(part, &combinations[i]);
        else
            TU_TRY(reduce_through_host(e, c, &combinations[i], part->staging));
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
    if (c->path == TU__COLLECTIVE_OVER_PROCESSES) tu__group_collective_post(e, c);
    return TU_OK;
}

/* Adds the collective and its first value to a message that already names the device. */
static tu_status fail_reduction(const tu__execution *e, const tu__collective *c, tu_status status) {
    return tu_fail(status, "collective %" PRId64 ", '%s'%s: %s", c->id,
                   e->program->unit.graph->nodes[c->members[0].nodes[0]]->name,
                   c->value_count > 1 ? " and more" : "", tu_message());
}

static tu_status wait_traced(tu__execution *e, tu__part *part, const tu__collective *c, uint32_t membership,
                             bool is_reduced) {
    double began = tu__trace_now(e);
    TU_TRY(wait_for_all_ranks(e, part, c, is_reduced));
    tu__trace_add(e, TU__SPAN_COLLECTIVE_WAIT, part->index, membership, began);
    return TU_OK;
}

tu_status tu__collective_run(tu__execution *e, tu__part *part, const tu__collective *c) {
    const tu__member *member = member_of(part, c);
    if (c->path == TU__COLLECTIVE_OVER_PROCESSES) return tu__group_collective_await(e, part, c);
    TU_TRY(wait_traced(e, part, c, member->membership, false));
    if (tu__run_sync_is_aborted(&e->sync)) return TU_OK;
    double began = tu__trace_now(e);
    tu_status status = reduce_slice(e, part, c, member);
    if (status != TU_OK) return fail_reduction(e, c, status);
    tu__trace_add(e, TU__SPAN_COLLECTIVE, part->index, member->membership, began);
    tu__run_sync_signal(&e->sync, member->done);
    return wait_traced(e, part, c, member->membership, true);
}
