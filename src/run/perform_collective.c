/* Runs collectives.
 *
 * Between host devices, each rank reduces its slice of the values with its own threads (comm/local.c). Logical
 * devices of one GPU, and GPUs with peer access, do the same with a kernel (`combine` of the device interface).
 * Otherwise values go through the host: each rank downloads its slice from all ranks, adds, and uploads the sum to
 * all ranks. The trace shows which of these was used. */
#include "run/perform_collective.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "comm/comm.h"
#include "device/rank_slice.h"
#include "run/trace.h"

/* ---- Timeouts ---- */

static tu_status fail_rank_timeout(tu_program *program, const tu__partition *partition,
                                   const tu__collective *c, uint32_t missing, bool is_reduced) {
    const tu__member *member = &c->members[missing];
    tu__partition *other = &program->partitions[member->partition];
    return tu_fail(TU_DEVICE,
                   "device '%s' waited %g s for device '%s' (rank %u of %u of collective %" PRId64
                   ") to %s '%s'%s; '%s' is late: %s",
                   partition->device->name, program->sync.timeout, other->device->name, missing, c->ranks,
                   c->id, is_reduced ? "reduce its slice of" : "post",
                   program->unit.graph->nodes[member->nodes[0]]->name, c->value_count > 1 ? " and more" : "",
                   other->device->name, tu__partition_activity(program, other).text);
}

/* Waits until every rank has posted its values (`is_reduced`: has reduced its slice). */
static tu_status wait_for_all_ranks(tu_program *program, tu__partition *partition, const tu__collective *c,
                                    bool is_reduced) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        const tu__member *member = &c->members[r];
        if (!tu__run_sync_wait(&program->sync, (size_t)(partition - program->partitions),
                               is_reduced ? member->done : member->posted))
            return fail_rank_timeout(program, partition, c, r, is_reduced);
        if (is_reduced || !member->posted_event || tu__run_sync_is_aborted(&program->sync)) continue;
        TU_TRY(tu__partition_wait_event(program, &program->partitions[member->partition],
                                        member->posted_event, &partition->compute_thread_awaits));
    }
    return TU_OK;
}

/* ---- Reducing a rank's slice ---- */

static tu_status reduce_on_host(const tu__partition *partition, const tu_combination *combination) {
    tu__parallel_setting saved = tu__parallel_begin(tu__device_threads(partition->device));
    tu__local_collective(TU__ALL_REDUCE, 0, combination);
    tu__parallel_end(saved);
    return TU_OK;
}

static tu_status reduce_on_device(const tu__partition *partition, const tu_combination *combination) {
    tu_status status = partition->device->api->combine(partition->device->instance, combination);
    return status == TU_OK ? tu__partition_synchronize(partition) : tu__partition_fail(partition, status);
}

/* Reduces one chunk of a slice, which fits the staging buffer: one area per rank. */
static tu_status reduce_chunk(const tu_program *program, const tu__collective *c,
                              const tu_combination *combination, const tu__rank_slice_range *chunk,
                              char *staging) {
    const tu_combine_segment *s = &combination->segments[chunk->segment];
    size_t size = tu_dtype_size(combination->dtype), bytes = chunk->count * size,
           offset = chunk->first * size;
    const void *in[TU__MAX_DEVICES];
    for (uint32_t r = 0; r < c->ranks; r++) {
        const tu__partition *other = &program->partitions[c->members[r].partition];
        const tu__device *d = other->device;
        char *area = staging + r * (size_t)TU__STAGED_BYTES;
        in[r] = area;
        tu_status status = d->api->download(d->instance, area, (const char *)s->in[r] + offset, bytes);
        if (status != TU_OK) return tu__partition_fail(other, status);
    }
    tu__local_add(combination->dtype, c->ranks, in, chunk->count, staging);
    for (uint32_t r = 0; r < c->ranks; r++) {
        const tu__partition *other = &program->partitions[c->members[r].partition];
        const tu__device *d = other->device;
        tu_status status = d->api->upload(d->instance, (char *)s->out[r] + offset, staging, bytes);
        if (status != TU_OK) return tu__partition_fail(other, status);
    }
    return TU_OK;
}

static tu_status reduce_through_host(const tu_program *program, const tu__collective *c,
                                     const tu_combination *combination, char *staging) {
    tu__rank_slice_range chunk;
    tu__rank_slice_iterator iterator =
        tu__rank_slice_begin(combination, 0, tu__rank_slice_lines(combination));
    while (tu__rank_slice_next(&iterator, TU__STAGED_BYTES / tu_dtype_size(combination->dtype), &chunk))
        TU_TRY(reduce_chunk(program, c, combination, &chunk, staging));
    return TU_OK;
}

static tu_status reduce_slice(const tu_program *program, const tu__partition *partition,
                              const tu__collective *c, uint32_t rank) {
    for (uint32_t i = 0; i < c->combination_count; i++) {
        tu_combination combination = c->combinations[i];
        combination.rank = rank;
        switch (c->path) {
        case TU__COLLECTIVE_ON_HOST: TU_TRY(reduce_on_host(partition, &combination)); break;
        case TU__COLLECTIVE_ON_ONE_GPU:
        case TU__COLLECTIVE_PEER_TO_PEER: TU_TRY(reduce_on_device(partition, &combination)); break;
        case TU__COLLECTIVE_THROUGH_HOST:
            TU_TRY(reduce_through_host(program, c, &combination, partition->staging));
            break;
        }
    }
    return TU_OK;
}

/* ---- Commands ---- */

static const tu__member *member_of(const tu_program *program, const tu__partition *partition,
                                   const tu__collective *c) {
    const tu__member *member = c->members;
    while (&program->partitions[member->partition] != partition) member++;
    return member;
}

tu_status tu__collective_post(tu_program *program, tu__partition *partition, const tu__collective *c) {
    const tu__member *member = member_of(program, partition, c);
    tu_status status =
        member->posted_event
            ? partition->device->api->event_record(partition->device->instance, member->posted_event)
            : TU_OK;
    if (status != TU_OK) return tu__partition_fail(partition, status);
    if (!member->posted_event) TU_TRY(tu__partition_synchronize(partition));
    tu__run_sync_signal(&program->sync, member->posted);
    return TU_OK;
}

/* Adds the collective and its first value to a message that already names the device. */
static tu_status fail_reduction(const tu_program *program, const tu__collective *c, tu_status status) {
    return tu_fail(status, "collective %" PRId64 ", '%s'%s: %s", c->id,
                   program->unit.graph->nodes[c->members[0].nodes[0]]->name,
                   c->value_count > 1 ? " and more" : "", tu_message());
}

static tu_status wait_traced(tu_program *program, tu__partition *partition, uint32_t membership,
                             bool is_reduced) {
    double began = tu__trace_now(program);
    TU_TRY(wait_for_all_ranks(program, partition, partition->collectives[membership].collective, is_reduced));
    tu__trace_add(program, TU__SPAN_COLLECTIVE_WAIT, (size_t)(partition - program->partitions), membership,
                  began);
    return TU_OK;
}

tu_status tu__collective_run(tu_program *program, tu__partition *partition, const tu__collective *c) {
    const tu__member *member = member_of(program, partition, c);
    uint32_t rank = (uint32_t)(member - c->members), membership = member->membership;
    TU_TRY(wait_traced(program, partition, membership, false));
    if (tu__run_sync_is_aborted(&program->sync)) return TU_OK;
    double began = tu__trace_now(program);
    tu_status status = reduce_slice(program, partition, c, rank);
    if (status != TU_OK) return fail_reduction(program, c, status);
    tu__trace_add(program, TU__SPAN_COLLECTIVE, (size_t)(partition - program->partitions), membership, began);
    tu__run_sync_signal(&program->sync, member->done);
    return wait_traced(program, partition, membership, true);
}
