/* Executes many steps in one call of the program's devices.
 *
 * Between two steps the host has little to do: upload the inputs, read the results. For a fast GPU this takes most of
 * the time. So a device kind with `submit` gets the whole command list, the addresses of all buffers, and the location
 * of the data of every step, and returns when all steps are done. The steps are not interpreted then: a step that
 * fails may leave variables changed. */
#include "run/submit.h"

#include <stdio.h>

#include "base/alloc.h"
#include "run/execution.h"
#include "run/watch_steps.h"

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

/* True if the devices run all collectives themselves. */
static bool devices_run_collectives(const tu_program *p) {
    for (uint32_t i = 0; i < p->collectives.count; i++)
        if (p->collectives.list[i].path != TU__COLLECTIVE_ON_ONE_GPU &&
            p->collectives.list[i].path != TU__COLLECTIVE_PEER_TO_PEER &&
            p->collectives.list[i].path != TU__COLLECTIVE_BY_DEVICES)
            return false;
    return true;
}

static void write_notice(tu_program *p, const tu_device_api *api) {
    if (p->active_count > 1 || !api)
        snprintf(p->submit_notice, sizeof p->submit_notice,
                 "the program has %zu devices, which exchange values in every step", p->device_count);
    else
        snprintf(p->submit_notice, sizeof p->submit_notice, "device '%s' runs one step per call",
                 p->only_active->device->name);
}

bool tu__can_submit(const tu_program *p) {
    return !p->submit_notice[0];
}

tu_status tu__submit_check(tu_program *p) {
    const tu_device_api *api = common_api(p);
    if (!api || !api->submit || !devices_run_collectives(p)) {
        write_notice(p, api);
        return TU_OK;
    }
    const tu__device *first = p->partitions[p->list.list.queues[0].partition].device;
    const tu_list_binding binding = {.struct_size = sizeof binding, .list = &p->list.list};
    tu_status status = api->build_list(first->instance, &binding, NULL);
    if (status == TU_UNSUPPORTED)
        snprintf(p->submit_notice, sizeof p->submit_notice,
                 "the program's devices run one step per call: %.200s", tu_message());
    return status == TU_UNSUPPORTED ? TU_OK : status;
}

/* ---- Building ---- */

static const tu__device *first_device(const tu__execution *e) {
    return e->parts[e->program->list.list.queues[0].partition].device;
}

static size_t count_ranks(const tu_program *p) {
    size_t count = 0;
    for (uint32_t i = 0; i < p->collectives.count; i++) count += p->collectives.list[i].ranks;
    return count;
}

static tu_status allocate(tu__execution *e) {
    tu__submit *s = &e->submit;
    const tu_program *p = e->program;
    if (s->parts) return TU_OK;
    s->collectives = tu__alloc_array(p->collectives.count, sizeof *s->collectives, "many steps");
    s->routes = tu__alloc_array(p->collectives.count, sizeof *s->routes, "many steps");
    s->ranks = tu__alloc_array(count_ranks(p), sizeof *s->ranks, "many steps");
    s->fetches = tu__alloc_array(p->unit.fetch_count, sizeof *s->fetches, "many steps");
    if (s->collectives && s->routes && s->ranks && s->fetches)
        s->parts = tu__alloc_array(p->device_count, sizeof *s->parts, "many steps");
    if (s->parts) return TU_OK;
    tu__submit_free(s);
    return TU_NO_MEMORY;
}

static void fill_parts(tu__execution *e) {
    const tu_command_list *list = &e->program->list.list;
    for (uint32_t q = 0; q < list->queue_count; q++) {
        const tu__part *part = &e->parts[list->queues[q].partition];
        e->submit.parts[part->index] = (tu_list_part){
            .device = part->device->instance, .executable = part->executable, .buffers = part->addresses};
    }
}

static tu_status fill_collectives(tu__execution *e) {
    uint32_t *next = e->submit.ranks;
    for (uint32_t i = 0; i < e->program->collectives.count; i++) {
        const tu__collective *c = &e->program->collectives.list[i];
        tu_collective what = {.count = e->communicators[i].combination_count,
                              .combinations = e->communicators[i].combinations};
        if (e->program->connection) TU_TRY(tu__group_describe(e, i, &what));
        e->submit.collectives[i] = (tu_list_collective){.ranks = c->ranks,
                                                        .partitions = next,
                                                        .combination_count = what.count,
                                                        .combinations = what.combinations,
                                                        .processes = what.processes};
        e->submit.routes[i] = what.routes;
        for (uint32_t r = 0; r < c->ranks; r++) *next++ = c->members[r].partition;
    }
    return TU_OK;
}

tu_status tu__submit_bind(tu__execution *e) {
    tu__submit *s = &e->submit;
    if (s->executable) return TU_OK;
    TU_TRY(allocate(e));
    fill_parts(e);
    TU_TRY(fill_collectives(e));
    const tu_list_binding binding = {.struct_size = sizeof binding,
                                     .list = &e->program->list.list,
                                     .parts = s->parts,
                                     .collectives = s->collectives,
                                     .routes = s->routes};
    tu_executable *built;
    TU_TRY(first_device(e)->api->build_list(first_device(e)->instance, &binding, &built));
    s->executable = built;
    return TU_OK;
}

void tu__submit_unbind(tu__execution *e) {
    if (e->submit.executable)
        first_device(e)->api->executable_free(first_device(e)->instance, e->submit.executable);
    e->submit.executable = NULL;
}

void tu__submit_free(tu__submit *s) {
    tu__free(s->parts);
    tu__free(s->collectives);
    tu__free(s->routes);
    tu__free(s->ranks);
    tu__free(s->fetches);
    *s = (tu__submit){0};
}

/* ---- A call ---- */

static void call_device(void *argument) {
    const tu__job *j = argument;
    const tu__device *d = j->part->device;
    tu_status status = d->api->submit(d->instance, j->execution->submit.executable, j->submission);
    if (status != TU_OK) tu__run_sync_abort(&j->execution->sync, status);
}

tu_status tu__submit_steps(tu__execution *e, tu_state *state, void *const *fetches, size_t done,
                           uint32_t steps) {
    const tu_command_list *list = &e->program->list.list;
    uint32_t steps_done = 0;
    TU_TRY(tu__submit_bind(e));
    for (uint32_t i = 0; i < list->fetch_count; i++)
        e->submit.fetches[i] =
            fetches && fetches[i] ? (char *)fetches[i] + done * list->fetches[i].bytes : NULL;
    const tu_submission submission = {.struct_size = sizeof submission,
                                      .feeds = e->inputs.feeds,
                                      .fetches = e->submit.fetches,
                                      .steps = steps,
                                      .timeout = e->sync.timeout,
                                      .steps_done = &steps_done};
    tu__step_watch watch;
    tu__begin_updates(e);
    tu__watch_steps_begin(&watch, e->program, &submission);
    tu_status status = tu__run_on_one_thread(
        e, call_device, (tu__job){.part = &e->parts[list->queues[0].partition], .submission = &submission});
    TU_TRY(tu__watch_steps_end(&watch, status));
    tu__end_updates(e, state, steps);
    return TU_OK;
}
