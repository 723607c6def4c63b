/* Connects the devices of a program to those of other processes. See connect_processes.h.
 *
 * Only devices with `build_collective` can, if one of them can access the values of all local ranks: those of one GPU,
 * or GPUs with peer access. All processes decide alike, since each of them must execute the same collectives in the
 * same way: whatever differs between processes is exchanged first. */
#include "run/connect_processes.h"

#include <stdio.h>

#include "base/alloc.h"
#include "comm/process_group.h"

/* ---- Callbacks of the device ---- */

static tu_status gather(void *group, const void *mine, size_t bytes, void *all) {
    return tu_process_group_gather(group, mine, bytes, all);
}

static tu_status check(void *group) {
    return tu__group_check(group);
}

static void progress(void *group) {
    atomic_fetch_add(&((tu_process_group *)group)->arrivals, 1);
}

/* ---- Agreement ---- */

typedef struct answer {
    char problem[200]; /* "": none */
} answer;

/* Sets `problem` to that of the first process with one; "" if there is none. */
static tu_status exchange_problems(tu_process_group *g, const char *mine, size_t capacity, char *problem) {
    answer own = {{0}}, *all = tu__alloc_array(g->info.size, sizeof *all, "a program of several processes");
    if (!all) return TU_NO_MEMORY;
    snprintf(own.problem, sizeof own.problem, "%s", mine);
    tu_status status = tu_process_group_gather(g, &own, sizeof own, all);
    *problem = 0;
    for (uint32_t r = g->info.size; status == TU_OK && r-- > 0;)
        if (all[r].problem[0]) snprintf(problem, capacity, "rank %u: %s", r, all[r].problem);
    tu__free(all);
    return status;
}

/* ---- What this process can do ---- */

static const tu__partition *first_partition(const tu_program *p) {
    return &p->partitions[p->collectives.list[0].members[0].partition];
}

/* True if kernels of the first rank's device can access the values of all ranks. */
static bool can_access_all_ranks(const tu_program *p, const tu__collective *c) {
    const tu__partition *first = first_partition(p);
    for (uint32_t r = 0; r < c->ranks; r++) {
        const tu__partition *other = &p->partitions[c->members[r].partition];
        if (other->device->api != first->device->api) return false;
        bool has_access = first->peer_access >> c->members[r].partition & 1;
        if (!tu__on_same_physical_device(first, other) && !has_access) return false;
    }
    return true;
}

static bool copies_through_host(const tu_program *p) {
    for (uint32_t i = 0; i < p->device_count; i++)
        for (uint32_t k = 0; k < p->partitions[i].receive_count; k++)
            if (tu__partitions_copy_path(p->partitions, p->partitions[i].receives[k].source_partition, i) ==
                TU__COPY_THROUGH_HOST)
                return true;
    return false;
}

/* Returns why the devices of this process cannot be connected; "". */
static const char *find_problem(const tu_program *p) {
    for (uint32_t i = 0; i < p->collectives.count; i++) {
        const tu__collective *c = &p->collectives.list[i];
        if (c->kind != TU__ALL_REDUCE) return "the program has collectives other than sums";
        if (&p->partitions[c->members[0].partition] != first_partition(p))
            return "the program's collectives begin on several devices";
        if (!can_access_all_ranks(p, c)) return "its GPUs have no peer access to each other";
    }
    return copies_through_host(p) ? "its GPUs have no peer access to each other" : "";
}

/* ---- Connecting ---- */

static tu_status connect_devices(tu_program *p) {
    const tu__device *d = first_partition(p)->device;
    const tu_process_group *g = p->group;
    p->processes = (tu_processes){.struct_size = sizeof p->processes,
                                  .rank = g->info.rank,
                                  .size = g->info.size,
                                  .node_size = g->node_size,
                                  .timeout = g->timeout,
                                  .gather = gather,
                                  .check = check,
                                  .context = p->group,
                                  .progress = progress};
    const tu_collective nothing = {.struct_size = sizeof nothing, .processes = &p->processes};
    tu_executable *connection;
    TU_TRY(d->api->build_collective(d->instance, NULL, &nothing, &connection));
    p->connection = connection;
    for (uint32_t i = 0; i < p->collectives.count; i++)
        p->collectives.list[i].path = TU__COLLECTIVE_BY_DEVICES;
    return TU_OK;
}

static void write_notice(tu_program *p, const char *why) {
    snprintf(p->host_notice, sizeof p->host_notice,
             "between processes, values of GPUs go through the host: %.250s", why);
}

tu_status tu__connect_processes(tu_program *p) {
    char problem[220];
    bool has_collectives = p->group && p->collectives.span_processes && p->collectives.count &&
                           p->unit.replication.strategy == TU__MIRRORED;
    /* All processes have replicas of the same kind. */
    if (!has_collectives || p->plan_only || !first_partition(p)->device->api->build_collective) return TU_OK;
    TU_TRY(exchange_problems(p->group, find_problem(p), sizeof problem, problem));
    tu_status status = *problem ? tu_fail(TU_UNSUPPORTED, "%s", problem) : connect_devices(p);
    if (status != TU_UNSUPPORTED) return status;
    write_notice(p, tu_message());
    return TU_OK;
}

void tu__disconnect_processes(tu_program *p) {
    if (!p->connection) return;
    const tu__device *d = first_partition(p)->device;
    d->api->executable_free(d->instance, p->connection);
    p->connection = NULL;
}

tu_status tu__agree_to_submit(tu_program *p) {
    if (!p->connection) return TU_OK;
    return exchange_problems(p->group, p->submit_notice, sizeof p->submit_notice, p->submit_notice);
}
