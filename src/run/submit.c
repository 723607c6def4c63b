/* Executes many steps in one call of the program's devices.
 *
 * Between two steps the host has little to do: upload the inputs, read the results. For a fast GPU this takes most of
 * the time. So a device kind with `submit` gets the whole command list, the addresses of all buffers, and the location
 * of the data of every step, and returns when all steps are done. The steps are not interpreted then: a step that
 * fails may leave variables changed. */
#include "run/submit.h"

#include <stdio.h>

#include "base/alloc.h"
#include "run/program.h"

/* ---- Can the devices do it? ---- */

/* Returns the interface of all devices that have a queue; NULL if there are several kinds. */
static const tu_device_api *common_api(const tu_program *p) {
    const tu_device_api *api = NULL;
    for (uint32_t q = 0; q < p->list.list.queue_count; q++) {
        const tu_device_api *other = p->partitions[p->list.list.queues[q].partition].device->api;
        if (api && other != api) return NULL;
        api = other;
    }
    return api;
}

/* True if the devices reduce all collectives themselves. */
static bool devices_run_collectives(const tu_program *p) {
    for (uint32_t i = 0; i < p->collectives.count; i++)
        if (p->collectives.list[i].path != TU__COLLECTIVE_ON_ONE_GPU &&
            p->collectives.list[i].path != TU__COLLECTIVE_PEER_TO_PEER)
            return false;
    return true;
}

static void write_notice(const tu_program *p, const tu_device_api *api) {
    tu__submit *s = (tu__submit *)&p->submit;
    if (p->active_count > 1 || !api)
        snprintf(s->notice, sizeof s->notice,
                 "the program has %zu devices, which exchange values in every step", p->device_count);
    else
        snprintf(s->notice, sizeof s->notice, "device '%s' runs one step per call",
                 p->only_active->device->name);
}

bool tu__can_submit(const tu_program *p) {
    return !p->submit.notice[0];
}

/* ---- Creating and freeing ---- */

static size_t count_ranks(const tu_program *p) {
    size_t count = 0;
    for (uint32_t i = 0; i < p->collectives.count; i++) count += p->collectives.list[i].ranks;
    return count;
}

static void list_ranks(tu_program *p) {
    uint32_t *next = p->submit.ranks;
    for (uint32_t i = 0; i < p->collectives.count; i++) {
        const tu__collective *c = &p->collectives.list[i];
        p->submit.collectives[i].partitions = next;
        for (uint32_t r = 0; r < c->ranks; r++) *next++ = c->members[r].partition;
    }
}

static tu_status allocate(tu_program *p) {
    tu__submit *s = &p->submit;
    const char *purpose = "many steps";
    s->parts = tu__alloc_array(p->device_count, sizeof *s->parts, purpose);
    s->collectives = tu__alloc_array(p->collectives.count, sizeof *s->collectives, purpose);
    s->ranks = tu__alloc_array(count_ranks(p), sizeof *s->ranks, purpose);
    s->fetches = tu__alloc_array(p->unit.fetch_count, sizeof *s->fetches, purpose);
    if (!s->parts || !s->collectives || !s->ranks || !s->fetches) return TU_NO_MEMORY;
    list_ranks(p);
    s->submission = (tu_submission){.struct_size = sizeof s->submission,
                                    .list = &p->list.list,
                                    .parts = s->parts,
                                    .collectives = s->collectives,
                                    .fetches = s->fetches};
    return TU_OK;
}

static void fill_parts(tu_program *p) {
    for (uint32_t q = 0; q < p->list.list.queue_count; q++) {
        uint32_t index = p->list.list.queues[q].partition;
        const tu__partition *partition = &p->partitions[index];
        p->submit.parts[index] = (tu_submit_part){
            .device = partition->device->instance, .plan = partition->plan, .buffers = partition->addresses};
    }
}

tu_status tu__submit_init(tu_program *p) {
    const tu_device_api *api = common_api(p);
    if (!api || !api->submit || !devices_run_collectives(p)) {
        write_notice(p, api);
        return TU_OK;
    }
    TU_TRY(allocate(p));
    fill_parts(p);
    tu_status status = api->submit(&p->submit.submission);
    if (status == TU_UNSUPPORTED)
        snprintf(p->submit.notice, sizeof p->submit.notice,
                 "the program's devices run one step per call: %.200s", tu_message());
    return status == TU_UNSUPPORTED ? TU_OK : status;
}

void tu__submit_free(tu__submit *s) {
    tu__free(s->parts);
    tu__free(s->collectives);
    tu__free(s->ranks);
    tu__free(s->fetches);
}

/* ---- A call ---- */

static void fill_collectives(tu_program *p) {
    for (uint32_t i = 0; i < p->collectives.count; i++) {
        p->submit.collectives[i].combination_count = p->collectives.list[i].combination_count;
        p->submit.collectives[i].combinations = p->collectives.list[i].combinations;
    }
}

tu_status tu__submit_steps(tu_program *p, tu_state *state, void *const *fetches, size_t done,
                           uint32_t steps) {
    fill_parts(p);
    fill_collectives(p);
    for (uint32_t i = 0; i < p->list.list.fetch_count; i++)
        p->submit.fetches[i] =
            fetches && fetches[i] ? (char *)fetches[i] + done * p->list.list.fetches[i].bytes : NULL;
    p->submit.submission.feeds = p->inputs.feeds;
    p->submit.submission.steps = steps;
    TU_TRY(tu__submit_to_device(p, &p->submit.submission));
    tu__program_end_updates(p, state, steps);
    return TU_OK;
}
