/* Which processes of a group share memory and cores. */
#include "base/alloc.h"
#include "comm/process_group.h"

/* The number of processes below rank `end` that may use the same cores as `rank`. */
static uint32_t count_sharers(const tu_process_group *g, uint32_t rank, uint32_t end) {
    const tu__process *own = &g->processes[rank];
    uint32_t count = 0;
    for (uint32_t r = 0; r < end; r++)
        count += g->processes[r].first_on_host == own->first_on_host &&
                 CPU_EQUAL(&g->processes[r].cores, &own->cores);
    return count;
}

uint32_t tu__group_count_sharers(const tu_process_group *g, uint32_t end) {
    return count_sharers(g, g->info.rank, end);
}

/* True if all hosts have equally many processes with contiguous ranks, and adding host by host is the order of adding
 * all processes pairwise. */
static bool can_add_by_host(const tu_process_group *g) {
    uint32_t size = g->info.host_size;
    if (size < g->info.size && (size & (size - 1))) return false;
    for (uint32_t r = 0; r < g->info.size; r++) {
        const tu__process *p = &g->processes[r];
        if (p->host_size != size || p->first_on_host % size || p->first_on_host + p->host_rank != r)
            return false;
    }
    return true;
}

/* The number of cores that each process of this host has for itself; at least 1. The same for all of them. */
static uint32_t cores_per_process(const tu_process_group *g) {
    uint32_t cores = UINT32_MAX;
    for (uint32_t r = 0; r < g->info.size; r++) {
        if (g->processes[r].first_on_host != g->info.first_on_host) continue;
        uint32_t own = (uint32_t)CPU_COUNT(&g->processes[r].cores) / count_sharers(g, r, g->info.size);
        if (own < cores) cores = own;
    }
    return cores ? cores : 1;
}

tu_status tu__group_choose_nodes(tu_process_group *g) {
    bool by_host = can_add_by_host(g);
    g->node_size = by_host ? g->info.host_size : 1;
    g->node_rank = by_host ? g->info.host_rank : 0;
    g->node_count = g->info.size / g->node_size;
    g->node = g->info.rank / g->node_size;
    void **areas = tu__alloc_array(g->info.host_size, sizeof *areas, "a process group");
    if (!areas) return TU_NO_MEMORY;
    g->areas = areas;
    TU_TRY(g->api->share(g->transport, sizeof(tu__shared_area), areas));
    if (!by_host) areas[0] = areas[g->info.host_rank];
    g->is_crowded =
        tu__group_count_sharers(g, g->info.size) > (uint32_t)CPU_COUNT(&g->processes[g->info.rank].cores);
    uint32_t cores = cores_per_process(g);
    g->lanes = cores < TU__MAX_LANES ? cores : TU__MAX_LANES;
    if (g->node_count == 1) return TU_OK;
    g->receive_buffers =
        tu__alloc_aligned(TU__RECEIVE_BUFFERS * (size_t)TU__RECEIVE_BYTES, "messages of a process group");
    return g->receive_buffers ? TU_OK : TU_NO_MEMORY;
}
