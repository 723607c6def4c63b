/* Enables peer access between devices.
 *
 * Logical devices of one GPU share its memory. Between two GPUs, peer access depends on the machine and must be
 * enabled. It is enabled in both directions for all pairs of devices that copy values or take part in a
 * collective. This must happen first: how a collective runs (collectives.c), whether devices can execute the
 * command list (submit.c), and what reports print depend on it. Without peer access, values go through the host. */
#include "compile/collectives.h"

bool tu__on_same_physical_device(const tu__partition *partition, const tu__partition *other) {
    const tu__device *a = partition->device, *b = other->device;
    return a->api == b->api && a->options.index == b->options.index;
}

/* Sets bit q of `pairs[p]` and bit p of `pairs[q]`: the partitions exchange values. */
static void add_pair(uint64_t *pairs, uint32_t p, uint32_t q) {
    pairs[p] |= UINT64_C(1) << q;
    pairs[q] |= UINT64_C(1) << p;
}

static void add_copy_pairs(const tu__partition *partition, uint64_t *pairs) {
    for (uint32_t i = 0; i < partition->receive_count; i++)
        add_pair(pairs, partition->receives[i].source_partition, partition->receives[i].partition);
}

static void add_collective_pairs(const tu__collective *collective, uint64_t *pairs) {
    for (uint32_t r = 1; r < collective->ranks; r++)
        for (uint32_t q = 0; q < r; q++)
            add_pair(pairs, collective->members[r].partition, collective->members[q].partition);
}

static tu_status enable_access(tu__partition *partition, const tu__partition *other, size_t other_index) {
    const tu_device_api *api = partition->device->api;
    if (!api->peer_access || other->device->api != api || tu__on_same_physical_device(partition, other))
        return TU_OK;
    tu_status status = api->peer_access(partition->device->instance, other->device->instance);
    if (status == TU_OK) partition->peer_access |= UINT64_C(1) << other_index;
    return status == TU_UNSUPPORTED ? TU_OK : status;
}

tu_status tu__partitions_enable_peer_access(const tu__collectives *collectives, tu__partition *partitions,
                                            size_t count) {
    uint64_t pairs[TU__MAX_DEVICES] = {0};
    for (size_t p = 0; p < count; p++) add_copy_pairs(&partitions[p], pairs);
    for (uint32_t i = 0; i < collectives->count; i++) add_collective_pairs(&collectives->list[i], pairs);
    for (size_t p = 0; p < count; p++)
        for (size_t q = 0; q < count; q++)
            if (pairs[p] >> q & 1) TU_TRY(enable_access(&partitions[p], &partitions[q], q));
    return TU_OK;
}

tu__copy_path tu__partitions_copy_path(const tu__partition *partitions, uint32_t from, uint32_t to) {
    const tu__partition *a = &partitions[from], *b = &partitions[to];
    if (a->device->api->host_memory || b->device->api->host_memory) return TU__COPY_DIRECT;
    if (b->device->api->peer_access && tu__on_same_physical_device(a, b)) return TU__COPY_DIRECT;
    return a->peer_access >> to & b->peer_access >> from & 1 ? TU__COPY_PEER_TO_PEER : TU__COPY_THROUGH_HOST;
}
