/* Binding: sets the address of every buffer of a program for one state.
 *
 * Addresses stay the same from run to run, so devices build their kernels for them once. They change only if the
 * program runs with another state, a variable's memory has moved, or another program has enlarged a device's scratch
 * memory. Then the partitions are bound and built again. */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "run/program.h"

/* Uploads the constants into one block of device memory, once. */
static tu_status place_constants(const tu_program *program, tu__partition *part) {
    const tu_graph *g = program->unit.graph;
    size_t bytes = 0;
    for (uint32_t i = 0; i < part->leaf_count; i++)
        if (g->nodes[part->leaves[i].node]->op->code == TU__OP_CONSTANT)
            bytes += (part->plan->buffers[part->leaves[i].buffer].bytes + 63) & ~(size_t)63;
    if (!bytes || part->constants_filled) return TU_OK;
    if (!part->constants) {
        TU_TRY(part->device->api->allocate(part->device->instance, bytes, &part->constants));
        part->constant_bytes += bytes;
    }
    char *at = part->constants;
    for (uint32_t i = 0; i < part->leaf_count; i++) {
        const tu__node *node = g->nodes[part->leaves[i].node];
        if (node->op->code != TU__OP_CONSTANT) continue;
        uint32_t b = part->leaves[i].buffer;
        part->addresses[b] = at;
        TU_TRY(
            part->device->api->upload(part->device->instance, at, node->data, part->plan->buffers[b].bytes));
        at += (part->plan->buffers[b].bytes + 63) & ~(size_t)63;
    }
    part->constants_filled = true;
    return TU_OK;
}

/* Finds the variable of a node, or its mirror on the partition's device, and moves it there. */
static tu_status place_variable(const tu_program *program, const tu__partition *part, tu_state *state,
                                uint32_t id, tu__variable **variable, tu__mirror **mirror) {
    const tu__node *node = program->unit.graph->nodes[id];
    *mirror = NULL;
    *variable = tu__state_bind(state, node->stands_for ? node->stands_for : node->name, node->outputs[0]);
    if (!*variable) return TU_INVALID;
    if (node->stands_for) return tu__state_mirror(state, *variable, part->device, mirror);
    return tu__state_move(state, *variable, part->device);
}

static tu_status place_variables(const tu_program *program, tu__partition *part, tu_state *state) {
    for (uint32_t i = 0; i < part->leaf_count; i++) {
        tu__leaf *l = &part->leaves[i];
        if (program->unit.graph->nodes[l->node]->op->code == TU__OP_VARIABLE)
            TU_TRY(place_variable(program, part, state, l->node, &l->variable, &l->mirror));
    }
    /* Variables that are assigned but not read must be in the state, too. */
    for (uint32_t i = 0; i < part->update_count; i++) {
        tu__update *u = &part->updates[i];
        TU_TRY(place_variable(program, part, state, u->variable, &u->target, &u->mirror));
    }
    return TU_OK;
}

/* Allocates staging buffers for next values that are the memory of another variable. */
static tu_status place_staging(tu__partition *part) {
    for (uint32_t i = 0; i < part->update_count; i++) {
        tu__update *u = &part->updates[i];
        size_t bytes = part->plan->buffers[u->buffer].bytes;
        if (u->staging || !tu__update_waits(part, u)) continue;
        TU_TRY(part->device->api->allocate(part->device->instance, bytes, &u->staging));
        part->constant_bytes += bytes;
    }
    return TU_OK;
}

static bool has_events(const tu_device_api *api) {
    return api->event_new && api->event_wait && api->event_synchronize;
}

/* True if the copying device can copy asynchronously. */
static bool can_begin(const tu__device *mover, const tu__device *from, const tu__device *to) {
    const tu_device_api *api = mover->api;
    if (!has_events(api)) return false;
    return mover == to ? from->api->host_memory && api->upload_begin : api->download_begin != NULL;
}

/* Creates the device events that signal that a value is produced and that a copy is complete. */
static tu_status make_events(const tu_program *program, const tu__partition *part) {
    for (uint32_t i = 0; i < part->receive_count; i++) {
        tu__receive *a = &part->receives[i];
        const tu__device *from = program->devices[a->source_part], *mover = program->devices[a->mover];
        if (has_events(from->api) && !a->ready) TU_TRY(from->api->event_new(from->instance, &a->ready));
        if (can_begin(mover, from, part->device) && !a->landed)
            TU_TRY(mover->api->event_new(mover->instance, &a->landed));
    }
    return TU_OK;
}

static tu_status build_part(tu_program *program, tu__partition *part) {
    char *scratch = part->device->scratch;
    for (uint32_t i = 0; i < part->leaf_count; i++) {
        const tu__leaf *l = &part->leaves[i];
        if (l->variable) part->addresses[l->buffer] = l->mirror ? l->mirror->data : l->variable->data;
    }
    for (uint32_t b = 0; b < part->plan->buffer_count; b++) {
        if (part->memory.same_as[b] != TU_NO_NODE)
            part->addresses[b] = part->addresses[part->memory.same_as[b]];
        else if (part->memory.storage[b] == TU__STORAGE_SCRATCH)
            part->addresses[b] = scratch + part->memory.offset[b];
    }
    for (uint32_t k = 0; k < part->plan->kernel_count; k++)
        part->workspaces[k] = part->plan->kernels[k].workspace ? scratch + part->memory.workspace[k] : NULL;
    tu_binding binding = {.struct_size = sizeof binding,
                          .order = part->order,
                          .buffers = part->addresses,
                          .workspaces = part->workspaces,
                          .seed = &program->seed};
    part->scratch_generation = part->device->scratch_generation;
    return part->device->api->build(part->device->instance, part->plan, &binding);
}

/* Pins variables in host memory that a GPU reads in every run. */
static void pin_variables(const tu_program *program, const tu__partition *card, const tu_state *state) {
    for (uint32_t i = 0; i < card->receive_count; i++) {
        const tu__node *node = program->unit.graph->nodes[card->receives[i].source.node];
        if (node->op->code != TU__OP_VARIABLE || node->stands_for) continue;
        tu__variable *variable = tu__state_bind(state, node->name, node->outputs[0]);
        if (variable) tu__state_pin(variable, card->device);
    }
}

/* Pins the host memory that is copied to and from GPUs: scratch memory of host devices, and variables. */
static void pin_memory(const tu_program *program, const tu_state *state) {
    tu__device *card = NULL;
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *part = &program->parts[i];
        if (part->idle || !part->device->api->pin) continue;
        pin_variables(program, part, state);
        card = part->device;
    }
    for (size_t i = 0; card && i < program->device_count; i++)
        if (program->devices[i]->api->host_memory && !program->parts[i].idle)
            tu__device_pin_scratch(program->devices[i], card);
}

/* Returns the variable in a buffer; NULL if it contains none. */
static const tu__variable *variable_in(const tu__partition *part, uint32_t buffer) {
    for (uint32_t i = 0; i < part->leaf_count; i++)
        if (part->leaves[i].buffer == buffer) return part->leaves[i].variable;
    return NULL;
}

/* True if the copying device can access the host end of a copy directly: it is pinned, or an upload too small to
 * pin. */
static bool reaches_host(const tu_program *program, const tu__receive *a) {
    const tu__partition *from = &program->parts[a->source_part], *to = &program->parts[a->part];
    const tu_device_api *mover = program->devices[a->mover]->api;
    bool comes = a->mover == a->part;
    const tu__device *pinned_by = comes ? from->device->pinned_by : to->device->pinned_by;
    if (comes && a->at_hand) { /* not in scratch memory */
        const tu__variable *variable = variable_in(from, a->source_buffer);
        if (to->plan->buffers[a->buffer].bytes < TU__PINNABLE_BYTES) return true;
        pinned_by = variable ? variable->reader : NULL;
    }
    return pinned_by && pinned_by->api == mover;
}

static void note_pinned(const tu_program *program) {
    for (size_t p = 0; p < program->device_count; p++)
        for (uint32_t i = 0; i < program->parts[p].receive_count; i++) {
            tu__receive *a = &program->parts[p].receives[i];
            a->pinned = a->landed && reaches_host(program, a);
        }
}

static bool is_bound(const tu_program *program, const tu_state *state) {
    if (program->bound != state->id || program->bound_generation != state->generation) return false;
    for (size_t i = 0; i < program->device_count; i++)
        if (program->parts[i].scratch_generation != program->devices[i]->scratch_generation ||
            program->devices[i]->scratch_bytes < program->parts[i].memory.scratch_bytes)
            return false;
    return true;
}

/* Brings all mirrors up to date before a run. */
static tu_status refresh_mirrors(const tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *part = &program->parts[i];
        for (uint32_t k = 0; k < part->leaf_count; k++)
            if (part->leaves[k].mirror)
                TU_TRY(tu__mirror_refresh(part->leaves[k].variable, part->leaves[k].mirror));
    }
    return TU_OK;
}

static tu_status bind(tu_program *program, tu_state *state) {
    if (is_bound(program, state)) return TU_OK;
    program->bound = 0;
    for (size_t i = 0; i < program->device_count; i++) {
        tu__partition *part = &program->parts[i];
        TU_TRY(tu__device_scratch(part->device, part->memory.scratch_bytes));
        TU_TRY(place_constants(program, part));
        TU_TRY(place_variables(program, part, state));
        TU_TRY(place_staging(part));
        TU_TRY(make_events(program, part));
    }
    TU_TRY(tu__collectives_equip(&program->collectives, program->parts));
    pin_memory(program, state);
    note_pinned(program);
    for (size_t i = 0; i < program->device_count; i++) TU_TRY(build_part(program, &program->parts[i]));
    tu__collectives_bind(&program->collectives, program->unit.graph, program->parts);
    program->bound = state->id;
    program->bound_generation = state->generation;
    return TU_OK;
}

tu_status tu__program_bind(tu_program *program, tu_state *state) {
    TU_TRY(bind(program, state));
    return refresh_mirrors(program);
}

/* Marks the mirrors that a run changes as out of date until the run has succeeded. */
void tu__program_begin_updates(tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++)
        for (uint32_t k = 0; k < program->parts[i].update_count; k++) {
            tu__update *u = &program->parts[i].updates[k];
            u->before = u->target->version;
            if (u->mirror) u->mirror->version = 0;
        }
}

/* Increments the versions of updated variables. A mirror that got the same update as its variable is up to date. */
void tu__program_end_updates(tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++)
        for (uint32_t k = 0; k < program->parts[i].update_count; k++)
            if (!program->parts[i].updates[k].mirror) program->parts[i].updates[k].target->version++;
    for (size_t i = 0; i < program->device_count; i++)
        for (uint32_t k = 0; k < program->parts[i].update_count; k++) {
            const tu__update *u = &program->parts[i].updates[k];
            if (u->mirror && u->target->version != u->before) u->mirror->version = u->target->version;
        }
}
