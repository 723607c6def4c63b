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
static tu_status upload_constants(const tu_program *program, tu__partition *partition) {
    const tu_graph *g = program->unit.graph;
    size_t bytes = 0;
    for (uint32_t i = 0; i < partition->leaf_count; i++)
        if (g->nodes[partition->leaves[i].node]->op->code == TU__OP_CONSTANT)
            bytes += (partition->plan->buffers[partition->leaves[i].buffer].bytes + 63) & ~(size_t)63;
    if (!bytes || partition->constants_filled) return TU_OK;
    if (!partition->constants) {
        TU_TRY(partition->device->api->allocate(partition->device->instance, bytes, &partition->constants));
        partition->constant_bytes += bytes;
    }
    char *address = partition->constants;
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        const tu__node *node = g->nodes[partition->leaves[i].node];
        if (node->op->code != TU__OP_CONSTANT) continue;
        uint32_t b = partition->leaves[i].buffer;
        partition->addresses[b] = address;
        TU_TRY(partition->device->api->upload(partition->device->instance, address, node->data,
                                              partition->plan->buffers[b].bytes));
        address += (partition->plan->buffers[b].bytes + 63) & ~(size_t)63;
    }
    partition->constants_filled = true;
    return TU_OK;
}

/* Finds the variable of a node, or its mirror on the partition's device, and moves it there. */
static tu_status bind_variable(const tu_program *program, const tu__partition *partition, tu_state *state,
                               uint32_t id, tu__variable **variable, tu__mirror **mirror) {
    const tu__node *node = program->unit.graph->nodes[id];
    *mirror = NULL;
    *variable =
        tu__state_find_variable(state, node->stands_for ? node->stands_for : node->name, node->outputs[0]);
    if (!*variable) return TU_INVALID;
    if (node->stands_for) return tu__state_mirror(state, *variable, partition->device, mirror);
    return tu__state_move(state, *variable, partition->device);
}

static tu_status bind_variables(const tu_program *program, tu__partition *partition, tu_state *state) {
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        tu__leaf *l = &partition->leaves[i];
        if (program->unit.graph->nodes[l->node]->op->code == TU__OP_VARIABLE)
            TU_TRY(bind_variable(program, partition, state, l->node, &l->variable, &l->mirror));
    }
    /* Variables that are assigned but not read must be in the state, too. */
    for (uint32_t i = 0; i < partition->update_count; i++) {
        tu__update *u = &partition->updates[i];
        TU_TRY(bind_variable(program, partition, state, u->variable, &u->target, &u->mirror));
    }
    return TU_OK;
}

/* Allocates staging buffers for next values that are the memory of another variable. */
static tu_status allocate_staging(tu__partition *partition) {
    for (uint32_t i = 0; i < partition->update_count; i++) {
        tu__update *u = &partition->updates[i];
        size_t bytes = partition->plan->buffers[u->buffer].bytes;
        if (u->staging || !tu__update_needs_staging(partition, u)) continue;
        TU_TRY(partition->device->api->allocate(partition->device->instance, bytes, &u->staging));
        partition->constant_bytes += bytes;
    }
    return TU_OK;
}

static bool has_events(const tu_device_api *api) {
    return api->event_new && api->event_wait && api->event_synchronize;
}

/* True if the copying device can copy asynchronously. */
static bool can_copy_async(const tu__device *copying, const tu__device *from, const tu__device *to) {
    const tu_device_api *api = copying->api;
    if (!has_events(api)) return false;
    return copying == to ? from->api->host_memory && api->upload_begin : api->download_begin != NULL;
}

/* Creates the device events that signal that a value is produced and that a copy is complete. */
static tu_status create_events(const tu_program *program, const tu__partition *partition) {
    for (uint32_t i = 0; i < partition->receive_count; i++) {
        tu__receive *receive = &partition->receives[i];
        const tu__device *from = program->devices[receive->source_partition],
                         *copying = program->devices[receive->copied_by];
        if (has_events(from->api) && !receive->source_event)
            TU_TRY(from->api->event_new(from->instance, &receive->source_event));
        if (can_copy_async(copying, from, partition->device) && !receive->copy_event)
            TU_TRY(copying->api->event_new(copying->instance, &receive->copy_event));
    }
    return TU_OK;
}

static tu_status build_partition(tu_program *program, tu__partition *partition) {
    char *scratch = partition->device->scratch;
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        const tu__leaf *l = &partition->leaves[i];
        if (l->variable) partition->addresses[l->buffer] = l->mirror ? l->mirror->data : l->variable->data;
    }
    for (uint32_t b = 0; b < partition->plan->buffer_count; b++) {
        if (partition->memory.alias_of[b] != TU_NO_NODE)
            partition->addresses[b] = partition->addresses[partition->memory.alias_of[b]];
        else if (partition->memory.storage[b] == TU__STORAGE_SCRATCH)
            partition->addresses[b] = scratch + partition->memory.offset[b];
    }
    for (uint32_t i = 0; i < partition->update_count; i++) {
        const tu__update *u = &partition->updates[i];
        if (u->staging_buffer != TU_NO_NODE) partition->addresses[u->staging_buffer] = u->staging;
        if (u->target_buffer >= partition->plan->buffer_count)
            partition->addresses[u->target_buffer] = u->mirror ? u->mirror->data : u->target->data;
    }
    for (uint32_t k = 0; k < partition->plan->kernel_count; k++)
        partition->workspaces[k] =
            partition->plan->kernels[k].workspace ? scratch + partition->memory.workspace_offset[k] : NULL;
    tu_binding binding = {.struct_size = sizeof binding,
                          .order = partition->order,
                          .buffers = partition->addresses,
                          .workspaces = partition->workspaces,
                          .seed = &program->seed};
    partition->scratch_generation = partition->device->scratch_generation;
    return partition->device->api->build(partition->device->instance, partition->plan, &binding);
}

/* Pins variables in host memory that a GPU reads in every run. */
static void pin_variables(const tu_program *program, const tu__partition *gpu, const tu_state *state) {
    for (uint32_t i = 0; i < gpu->receive_count; i++) {
        const tu__node *node = program->unit.graph->nodes[gpu->receives[i].source.node];
        if (node->op->code != TU__OP_VARIABLE || node->stands_for) continue;
        tu__variable *variable = tu__state_find_variable(state, node->name, node->outputs[0]);
        if (variable) tu__state_pin(variable, gpu->device);
    }
}

/* Pins the host memory that is copied to and from GPUs: scratch memory of host devices, and variables. */
static void pin_memory(const tu_program *program, const tu_state *state) {
    tu__device *gpu = NULL;
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *partition = &program->partitions[i];
        if (partition->is_idle || !partition->device->api->pin) continue;
        pin_variables(program, partition, state);
        gpu = partition->device;
    }
    for (size_t i = 0; gpu && i < program->device_count; i++)
        if (program->devices[i]->api->host_memory && !program->partitions[i].is_idle)
            tu__device_pin_scratch(program->devices[i], gpu);
}

/* Returns the variable in a buffer; NULL if it contains none. */
static const tu__variable *variable_in(const tu__partition *partition, uint32_t buffer) {
    for (uint32_t i = 0; i < partition->leaf_count; i++)
        if (partition->leaves[i].buffer == buffer) return partition->leaves[i].variable;
    return NULL;
}

/* True if the copying device can access the host end of a copy directly: it is pinned, or an upload too small to
 * pin. */
static bool can_access_host_end(const tu_program *program, const tu__receive *receive) {
    const tu__partition *from = &program->partitions[receive->source_partition],
                        *to = &program->partitions[receive->partition];
    const tu_device_api *copying = program->devices[receive->copied_by]->api;
    bool is_upload = receive->copied_by == receive->partition;
    const tu__device *pinned_by = is_upload ? from->device->pinned_by : to->device->pinned_by;
    if (is_upload && receive->is_persistent) { /* not in scratch memory */
        const tu__variable *variable = variable_in(from, receive->source_buffer);
        if (to->plan->buffers[receive->buffer].bytes < TU__PINNABLE_BYTES) return true;
        pinned_by = variable ? variable->reader : NULL;
    }
    return pinned_by && pinned_by->api == copying;
}

static void find_pinned_copies(const tu_program *program) {
    for (size_t p = 0; p < program->device_count; p++)
        for (uint32_t i = 0; i < program->partitions[p].receive_count; i++) {
            tu__receive *receive = &program->partitions[p].receives[i];
            receive->is_pinned = receive->copy_event && can_access_host_end(program, receive);
        }
}

static bool is_bound(const tu_program *program, const tu_state *state) {
    if (program->bound_state != state->id || program->bound_generation != state->generation) return false;
    for (size_t i = 0; i < program->device_count; i++)
        if (program->partitions[i].scratch_generation != program->devices[i]->scratch_generation ||
            program->devices[i]->scratch_bytes < program->partitions[i].memory.scratch_bytes)
            return false;
    return true;
}

/* Updates all outdated mirrors before a run. */
static tu_status refresh_mirrors(const tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *partition = &program->partitions[i];
        for (uint32_t k = 0; k < partition->leaf_count; k++)
            if (partition->leaves[k].mirror)
                TU_TRY(tu__mirror_refresh(partition->leaves[k].variable, partition->leaves[k].mirror));
    }
    return TU_OK;
}

static tu_status bind_buffers(tu_program *program, tu_state *state) {
    if (is_bound(program, state)) return TU_OK;
    program->bound_state = 0;
    for (size_t i = 0; i < program->device_count; i++) {
        tu__partition *partition = &program->partitions[i];
        TU_TRY(tu__device_scratch(partition->device, partition->memory.scratch_bytes));
        TU_TRY(upload_constants(program, partition));
        TU_TRY(bind_variables(program, partition, state));
        TU_TRY(allocate_staging(partition));
        TU_TRY(create_events(program, partition));
    }
    TU_TRY(tu__collectives_allocate(&program->collectives, program->partitions));
    pin_memory(program, state);
    find_pinned_copies(program);
    for (size_t i = 0; i < program->device_count; i++)
        TU_TRY(build_partition(program, &program->partitions[i]));
    tu__collectives_bind(&program->collectives, program->unit.graph, program->partitions);
    program->bound_state = state->id;
    program->bound_generation = state->generation;
    return TU_OK;
}

tu_status tu__program_bind(tu_program *program, tu_state *state) {
    TU_TRY(bind_buffers(program, state));
    return refresh_mirrors(program);
}

/* Marks the mirrors that a run changes as out of date until the run has succeeded. */
void tu__program_begin_updates(tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++)
        for (uint32_t k = 0; k < program->partitions[i].update_count; k++) {
            tu__update *u = &program->partitions[i].updates[k];
            u->version_before = u->target->version;
            if (u->mirror) u->mirror->version = 0;
        }
}

/* Increments the versions of updated variables. A mirror that got the same update as its variable is up to date. */
void tu__program_end_updates(tu_program *program, tu_state *state, size_t steps) {
    for (size_t i = 0; i < program->device_count; i++)
        for (uint32_t k = 0; k < program->partitions[i].update_count; k++)
            if (!program->partitions[i].updates[k].mirror)
                program->partitions[i].updates[k].target->version++;
    for (size_t i = 0; i < program->device_count; i++)
        for (uint32_t k = 0; k < program->partitions[i].update_count; k++) {
            const tu__update *u = &program->partitions[i].updates[k];
            if (u->mirror && u->target->version != u->version_before) u->mirror->version = u->target->version;
        }
    if (program->unit.updates) state->next_sample += program->samples * (int64_t)steps;
}
