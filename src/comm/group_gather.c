/* Gathers few bytes of all processes of a group in shared memory.
 *
 * A process writes its bytes into one of two buffers in turn. It may overwrite the one of gather n in gather n + 2: by
 * then it has seen that all others have begun gather n + 1, and so have read the results of gather n. */
#include <string.h>

#include "base/clock.h"
#include "comm/process_group.h"

static tu__shared_area *area_of(const tu_process_group *g, uint32_t process) {
    return g->areas[process];
}

static tu_status read_all(tu_process_group *g, size_t bytes, void *all) {
    double deadline = tu__now() + g->timeout, waited = 0;
    for (uint32_t i = 0; i < g->node_size; i++) {
        tu__shared_area *area = area_of(g, i);
        TU_TRY(tu__group_wait_counter(g, &area->gathered, g->gathers, deadline, &waited));
        memcpy((char *)all + i * bytes, area->gather_buffers[g->gathers % 2], bytes);
    }
    tu__group_add_waited(g, waited);
    return TU_OK;
}

tu_status tu__group_gather_in_memory(tu_process_group *g, const void *mine, size_t bytes, void *all) {
    tu__shared_area *own = area_of(g, g->node_rank);
    g->gathers++;
    memcpy(own->gather_buffers[g->gathers % 2], mine, bytes);
    tu__counter_set(&own->gathered, g->gathers);
    tu__group_enter(g, tu__group_number(g, 1), "gather");
    atomic_fetch_add(&g->awaiting, 1);
    tu_status status = read_all(g, bytes, all);
    atomic_fetch_sub(&g->awaiting, 1);
    tu__group_leave(g);
    return status;
}
