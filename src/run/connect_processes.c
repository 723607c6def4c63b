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
    bool is_on_host;   /* its values need no connection */
} answer;

/* Sets `problem` to that of the first process with one; "" if there is none, or if all are on the host. */
static tu_status exchange_answers(tu_process_group *g, const answer *mine, size_t capacity, char *problem) {
    answer *all = tu__alloc_array(g->info.size, sizeof *all, "a program of several processes");
    if (!all) return TU_NO_MEMORY;
    tu_status status = tu_process_group_gather(g, mine, sizeof *mine, all);
    bool are_on_host = true;
    *problem = 0;
    for (uint32_t r = g->info.size; status == TU_OK && r-- > 0;) {
        are_on_host = are_on_host && all[r].is_on_host;
        if (all[r].problem[0]) snprintf(problem, capacity, "rank %u: %s", r, all[r].problem);
    }
    if (are_on_host) *problem = 0;
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

static bool is_on_host(const tu_program *p) {
    return !first_partition(p)->device->api->build_collective;
}

static tu_status has_routes(const tu__device *d, bool *has) {
    tu_device_info info = TU_SIZED(tu_device_info);
    tu_status status = tu__device_describe(d->api, d->instance, d->options.index, &info);
    *has = info.has_routes;
    return status;
}

/* Returns why the devices of this process cannot be connected; "". */
static const char *find_problem(const tu_program *p, bool can_route) {
    if (is_on_host(p)) return "its central device computes in host memory";
    for (uint32_t i = 0; i < p->collectives.count; i++) {
        const tu__collective *c = &p->collectives.list[i];
        if (c->kind != TU__ALL_REDUCE && !can_route)
            return "its device performs no collectives other than sums";
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

/* Exchanges why processes cannot be connected. With the strategy mirrored all have replicas of the same kind, with
 * central one process may have a GPU where another one has a CPU. */
static tu_status find_common_problem(const tu_program *p, size_t capacity, char *problem, bool *on_host) {
    answer mine = {.is_on_host = is_on_host(p)};
    bool can_route = false;
    *on_host = mine.is_on_host;
    if (*on_host && p->unit.replication.strategy == TU__MIRRORED) return TU_OK;
    if (!*on_host) TU_TRY(has_routes(first_partition(p)->device, &can_route));
    snprintf(mine.problem, sizeof mine.problem, "%s", find_problem(p, can_route));
    return exchange_answers(p->group, &mine, capacity, problem);
}

tu_status tu__connect_processes(tu_program *p) {
    char problem[220] = "";
    bool has_collectives = p->group && p->collectives.span_processes && p->collectives.count, on_host;
    if (!has_collectives || p->plan_only) return TU_OK;
    TU_TRY(find_common_problem(p, sizeof problem, problem, &on_host));
    if (on_host) return TU_OK;
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
    answer mine = {.is_on_host = false};
    if (!p->connection) return TU_OK;
    snprintf(mine.problem, sizeof mine.problem, "%.199s", p->submit_notice);
    return exchange_answers(p->group, &mine, sizeof p->submit_notice, p->submit_notice);
}
