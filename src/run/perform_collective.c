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
#include "device/rank_share.h"
#include "run/trace.h"

/* ---- Timeouts ---- */

static tu_status late(tu_program *program, const tu__partition *part, const tu__collective *m,
                      uint32_t missing, bool done) {
    const tu__member *a = &m->members[missing];
    tu__partition *other = &program->parts[a->part];
    return tu_fail(TU_DEVICE,
                   "device '%s' waited %g s for device '%s', rank %u of %u of collective %" PRId64
                   ", to %s '%s'%s, which is late: %s",
                   part->device->name, program->exchange.allowed, other->device->name, missing, m->ranks,
                   m->number, done ? "add up its share of" : "bring",
                   program->unit.graph->nodes[a->nodes[0]]->name, m->value_count > 1 ? " and more" : "",
                   tu__partition_doing(program, other).text);
}

/* Waits until every rank has posted its values (`done`: has reduced its slice). */
static tu_status wait_for_all(tu_program *program, tu__partition *part, const tu__collective *m, bool done) {
    for (uint32_t r = 0; r < m->ranks; r++) {
        const tu__member *a = &m->members[r];
        if (!tu__exchange_await(&program->exchange, (size_t)(part - program->parts),
                                done ? a->done : a->brought))
            return late(program, part, m, r, done);
        if (done || !a->recorded || tu__exchange_is_aborted(&program->exchange)) continue;
        TU_TRY(
            tu__partition_await(program, &program->parts[a->part], a->recorded, &part->awaited_by_launcher));
    }
    return TU_OK;
}

/* ---- Reducing a rank's slice ---- */

static tu_status add_on_host(const tu__partition *part, const tu_combination *what) {
    tu__parallel_setting before = tu__parallel_begin(tu__device_threads(part->device));
    tu__local_collective(TU__ALL_REDUCE, 0, what);
    tu__parallel_end(before);
    return TU_OK;
}

static tu_status add_on_device(const tu__partition *part, const tu_combination *what) {
    tu_status status = part->device->api->combine(part->device->instance, what);
    return status == TU_OK ? tu__partition_synchronize(part) : tu__partition_failed(part, status);
}

/* Reduces one chunk of a slice, which fits the staging buffer: one area per rank. */
static tu_status add_piece(const tu_program *program, const tu__collective *m, const tu_combination *what,
                           const tu__rank_share_range *piece, char *staging) {
    const tu_combine_segment *s = &what->segments[piece->segment];
    size_t size = tu_dtype_size(what->dtype), bytes = piece->count * size, offset = piece->first * size;
    const void *in[TU__MAX_DEVICES];
    for (uint32_t r = 0; r < m->ranks; r++) {
        const tu__partition *other = &program->parts[m->members[r].part];
        const tu__device *d = other->device;
        char *place = staging + r * (size_t)TU__STAGED_BYTES;
        in[r] = place;
        tu_status status = d->api->download(d->instance, place, (const char *)s->in[r] + offset, bytes);
        if (status != TU_OK) return tu__partition_failed(other, status);
    }
    tu__local_add(what->dtype, m->ranks, in, piece->count, staging);
    for (uint32_t r = 0; r < m->ranks; r++) {
        const tu__partition *other = &program->parts[m->members[r].part];
        const tu__device *d = other->device;
        tu_status status = d->api->upload(d->instance, (char *)s->out[r] + offset, staging, bytes);
        if (status != TU_OK) return tu__partition_failed(other, status);
    }
    return TU_OK;
}

static tu_status add_through_host(const tu_program *program, const tu__collective *m,
                                  const tu_combination *what, char *staging) {
    tu__rank_share_range piece;
    tu__rank_share_walk walk = tu__rank_share_walk_begin(what, 0, tu__rank_share_lines(what));
    while (tu__rank_share_walk_next(&walk, TU__STAGED_BYTES / tu_dtype_size(what->dtype), &piece))
        TU_TRY(add_piece(program, m, what, &piece, staging));
    return TU_OK;
}

static tu_status do_share(const tu_program *program, const tu__partition *part, const tu__collective *m,
                          uint32_t rank) {
    for (uint32_t i = 0; i < m->combination_count; i++) {
        tu_combination what = m->combinations[i];
        what.rank = rank;
        switch (m->way) {
        case TU__COLLECTIVE_ON_HOST: TU_TRY(add_on_host(part, &what)); break;
        case TU__COLLECTIVE_ON_CARD:
        case TU__COLLECTIVE_BETWEEN_CARDS: TU_TRY(add_on_device(part, &what)); break;
        case TU__COLLECTIVE_THROUGH_HOST: TU_TRY(add_through_host(program, m, &what, part->staging)); break;
        }
    }
    return TU_OK;
}

/* ---- Steps ---- */

tu_status tu__collective_post(tu_program *program, tu__partition *part, uint32_t membership) {
    const tu__membership *at = &part->collectives[membership];
    const tu__member *a = &at->collective->members[at->rank];
    tu_status status =
        a->recorded ? part->device->api->event_record(part->device->instance, a->recorded) : TU_OK;
    if (status != TU_OK) return tu__partition_failed(part, status);
    if (!a->recorded) TU_TRY(tu__partition_synchronize(part));
    tu__exchange_signal(&program->exchange, a->brought);
    return TU_OK;
}

/* Adds the collective and its first value to a message that already names the device. */
static tu_status failed_share(const tu_program *program, const tu__collective *m, tu_status status) {
    return tu_fail(status, "collective %" PRId64 ", '%s'%s: %s", m->number,
                   program->unit.graph->nodes[m->members[0].nodes[0]]->name,
                   m->value_count > 1 ? " and more" : "", tu_message());
}

static tu_status wait_traced(tu_program *program, tu__partition *part, uint32_t membership, bool done) {
    double began = tu__trace_now(program);
    TU_TRY(wait_for_all(program, part, part->collectives[membership].collective, done));
    tu__trace_add(program, TU__SPAN_GATHERING, (size_t)(part - program->parts), membership, began);
    return TU_OK;
}

tu_status tu__collective_run(tu_program *program, tu__partition *part, uint32_t membership) {
    const tu__collective *m = part->collectives[membership].collective;
    uint32_t rank = part->collectives[membership].rank;
    TU_TRY(wait_traced(program, part, membership, false));
    if (tu__exchange_is_aborted(&program->exchange)) return TU_OK;
    double began = tu__trace_now(program);
    tu_status status = do_share(program, part, m, rank);
    if (status != TU_OK) return failed_share(program, m, status);
    tu__trace_add(program, TU__SPAN_MEETING, (size_t)(part - program->parts), membership, began);
    tu__exchange_signal(&program->exchange, m->members[rank].done);
    return wait_traced(program, part, membership, true);
}
