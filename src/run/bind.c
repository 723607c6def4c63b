/* Binding: sets the address of every buffer of a program for one session and state.
 *
 * Addresses stay the same from run to run, so devices build their kernels for them once. They change only if the
 * program runs with another state, a variable's memory has moved, or another program of the session has enlarged a
 * device's scratch memory. Then the partitions are bound and built again. */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "run/execution.h"

/* ---- Constants, variables and staging buffers ---- */

static size_t aligned_bytes(const tu__partition *partition, uint32_t buffer) {
    return (partition->plan->buffers[buffer].bytes + 63) & ~(size_t)63;
}

static const tu__node *constant_of(const tu_program *p, const tu__leaf *leaf) {
    const tu__node *node = p->unit.graph->nodes[leaf->node];
    return node->op->code == TU__OP_CONSTANT ? node : NULL;
}

static bool is_own_constant(const tu_program *p, const tu__leaf *leaf) {
    const tu__node *node = constant_of(p, leaf);
    return node && !node->shared;
}

/* Uploads the constants that belong to the graph alone into one block of device memory. */
static tu_status upload_own_constants(const tu_program *p, const tu__partition *partition, void **block) {
    const tu__device *d = partition->device;
    size_t bytes = 0, offset = 0;
    for (uint32_t i = 0; i < partition->leaf_count; i++)
        if (is_own_constant(p, &partition->leaves[i]))
            bytes += aligned_bytes(partition, partition->leaves[i].buffer);
    if (!bytes) return TU_OK;
    TU_TRY(tu__device_allocate(partition->device, bytes, block));
    void *created = *block;
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        const tu__leaf *leaf = &partition->leaves[i];
        if (!is_own_constant(p, leaf)) continue;
        TU_TRY(tu__upload(d, (char *)created + offset, p->unit.graph->nodes[leaf->node]->data,
                          partition->plan->buffers[leaf->buffer].bytes));
        offset += aligned_bytes(partition, leaf->buffer);
    }
    return TU_OK;
}

static tu_status keep_shared_constants(const tu_program *p, const tu__partition *partition, void ***shared) {
    *shared = tu__alloc_array((size_t)partition->leaf_count + 1, sizeof **shared, "a program");
    if (!*shared) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        const tu__node *node = constant_of(p, &partition->leaves[i]);
        if (node && node->shared)
            TU_TRY(tu__device_constant_keep(partition->device, node->shared, &(*shared)[i]));
    }
    return TU_OK;
}

static void release_constants(const tu_program *p, size_t index) {
    const tu__partition *partition = &p->partitions[index];
    const tu__device *d = partition->device;
    tu__bound_constants *bound = &p->constants[index];
    for (uint32_t i = 0; bound->shared && i < partition->leaf_count; i++)
        if (bound->shared[i])
            tu__device_constant_release(partition->device,
                                        p->unit.graph->nodes[partition->leaves[i].node]->shared);
    if (bound->block) d->api->release(d->instance, bound->block);
    tu__free(bound->shared);
    *bound = (tu__bound_constants){0};
}

void tu__program_free_constants(tu_program *p) {
    for (size_t i = 0; p->constants && i < p->device_count; i++) release_constants(p, i);
}

/* Called with the program's lock. */
static tu_status create_constants(const tu_program *p, size_t index) {
    const tu__partition *partition = &p->partitions[index];
    tu__bound_constants *bound = &p->constants[index];
    if (bound->are_bound) return TU_OK;
    tu_status status = upload_own_constants(p, partition, &bound->block);
    if (status == TU_OK) status = keep_shared_constants(p, partition, &bound->shared);
    bound->are_bound = status == TU_OK;
    if (status != TU_OK) release_constants(p, index);
    return status;
}

/* Constants exist once per program, whatever the number of sessions; shared data once per device. */
static tu_status bind_constants(tu_program *p, tu__part *part) {
    const tu__partition *partition = part->partition;
    pthread_mutex_lock(&p->lock);
    tu_status status = create_constants(p, part->index);
    pthread_mutex_unlock(&p->lock);
    TU_TRY(status);
    const tu__bound_constants *bound = &p->constants[part->index];
    char *next = bound->block;
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        uint32_t buffer = partition->leaves[i].buffer;
        if (bound->shared[i]) part->addresses[buffer] = bound->shared[i];
        if (!is_own_constant(p, &partition->leaves[i])) continue;
        part->addresses[buffer] = next;
        next += aligned_bytes(partition, buffer);
    }
    return TU_OK;
}

/* Finds the variable of a node, or its mirror on the partition's device, and moves it there. */
static tu_status bind_variable(const tu_program *p, const tu__part *part, tu_state *state, uint32_t id,
                               tu__variable **variable, tu__mirror **mirror) {
    const tu__node *node = p->unit.graph->nodes[id];
    *mirror = NULL;
    *variable =
        tu__state_find_variable(state, node->stands_for ? node->stands_for : node->name, node->outputs[0]);
    if (!*variable) return TU_INVALID;
    if (node->stands_for) return tu__state_mirror(state, *variable, part->device, mirror);
    return tu__state_move(state, *variable, part->device);
}

static tu_status bind_variables(const tu_program *p, tu__part *part, tu_state *state) {
    const tu__partition *partition = part->partition;
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        uint32_t node = partition->leaves[i].node;
        if (p->unit.graph->nodes[node]->op->code == TU__OP_VARIABLE)
            TU_TRY(bind_variable(p, part, state, node, &part->leaves[i].variable, &part->leaves[i].mirror));
    }
    /* Variables that are assigned but not read must be in the state, too. */
    for (uint32_t i = 0; i < partition->update_count; i++)
        TU_TRY(bind_variable(p, part, state, partition->updates[i].variable, &part->updates[i].target,
                             &part->updates[i].mirror));
    return TU_OK;
}

/* Allocates staging buffers for next values that are the memory of another variable. */
static tu_status allocate_staging(tu__part *part) {
    const tu__partition *partition = part->partition;
    for (uint32_t i = 0; i < partition->update_count; i++) {
        const tu__update *u = &partition->updates[i];
        if (u->staging_buffer == TU_NO_NODE || part->updates[i].staging) continue;
        TU_TRY(tu__device_allocate(part->device, partition->plan->buffers[u->buffer].bytes,
                                   &part->updates[i].staging));
    }
    return TU_OK;
}

/* ---- Queues and asynchronous copies ---- */

static tu_status create_queue(const tu__execution *e, const tu__part *part, tu_queue **queue) {
    tu_queue *created; /* a device may set it and fail */
    if (*queue || !part->device->api->queue_new) return TU_OK;
    TU_TRY(part->device->api->queue_new(part->device->instance, e->program->event_count, &created));
    *queue = created;
    return TU_OK;
}

/* Finds the copies that devices perform asynchronously, and creates their queues. */
static tu_status find_async_copies(const tu__execution *e, const tu__part *part) {
    for (uint32_t i = 0; i < part->partition->receive_count; i++) {
        const tu__receive *receive = &part->partition->receives[i];
        tu__part *copying = &e->parts[receive->copied_by];
        bool is_upload = copying == part;
        const tu_device_api *from = e->parts[receive->source_partition].device->api;
        /* An upload cannot wait for a queue of another kind of device. */
        bool is_ready = from->host_memory && !from->queue_new;
        part->copies[i].is_async = copying->device->api->queue_new && (!is_upload || is_ready);
        if (part->copies[i].is_async)
            TU_TRY(create_queue(e, copying, is_upload ? &copying->upload_queue : &copying->download_queue));
    }
    return TU_OK;
}

/* ---- Pinned memory ---- */

/* Moves variables in host memory that an accelerator reads in every run to memory that it copies fastest. */
static void pin_variables(const tu__execution *e, const tu__part *part, tu_state *state) {
    for (uint32_t i = 0; i < part->partition->receive_count; i++) {
        const tu__node *node = e->program->unit.graph->nodes[part->partition->receives[i].source.node];
        if (node->op->code != TU__OP_VARIABLE || node->stands_for) continue;
        tu__variable *variable = tu__state_find_variable(state, node->name, node->outputs[0]);
        if (variable) tu__state_pin(state, variable, part->device);
    }
}

/* Pins the host memory that is copied to and from accelerators: scratch memory of host devices, and variables. */
static void pin_memory(const tu__execution *e, tu_state *state) {
    tu__device *accelerator = NULL;
    for (size_t i = 0; i < e->program->device_count; i++) {
        const tu__part *part = &e->parts[i];
        if (part->partition->is_idle || part->device->api->host_memory) continue;
        pin_variables(e, part, state);
        accelerator = part->device;
    }
    for (size_t i = 0; accelerator && i < e->program->device_count; i++)
        if (e->parts[i].device->api->host_memory && !e->parts[i].partition->is_idle)
            tu__session_device_pin(e->parts[i].on, accelerator);
}

/* Returns the variable in a buffer; NULL if it contains none. */
static const tu__variable *variable_in(const tu__part *part, uint32_t buffer) {
    for (uint32_t i = 0; i < part->partition->leaf_count; i++)
        if (part->partition->leaves[i].buffer == buffer) return part->leaves[i].variable;
    return NULL;
}

/* True if the copying device can access the host end of a copy directly: it is pinned, or an upload too small to
 * pin. */
static bool can_access_host_end(const tu__execution *e, const tu__receive *receive) {
    const tu__part *from = &e->parts[receive->source_partition], *to = &e->parts[receive->partition];
    const tu_device_api *copying = e->parts[receive->copied_by].device->api;
    bool is_upload = receive->copied_by == receive->partition;
    const tu__device *pinned_by = is_upload ? from->on->pinned_by : to->on->pinned_by;
    if (is_upload && receive->is_persistent) { /* not in scratch memory */
        const tu__variable *variable = variable_in(from, receive->source_buffer);
        if (to->partition->plan->buffers[receive->buffer].bytes < TU__PINNABLE_BYTES) return true;
        pinned_by = variable ? variable->reader : NULL;
    }
    return pinned_by && pinned_by->api == copying;
}

static void find_pinned_copies(const tu__execution *e) {
    for (size_t p = 0; p < e->program->device_count; p++)
        for (uint32_t i = 0; i < e->parts[p].partition->receive_count; i++) {
            tu__bound_copy *copy = &e->parts[p].copies[i];
            copy->is_pinned = copy->is_async && can_access_host_end(e, &e->parts[p].partition->receives[i]);
        }
}

/* ---- Building ---- */

static void set_addresses(tu__part *part) {
    const tu__partition *partition = part->partition;
    char *scratch = part->on->scratch;
    for (uint32_t i = 0; i < partition->leaf_count; i++) {
        const tu__bound_leaf *l = &part->leaves[i];
        if (l->variable)
            part->addresses[partition->leaves[i].buffer] = l->mirror ? l->mirror->data : l->variable->data;
    }
    for (uint32_t b = 0; b < partition->plan->buffer_count; b++) {
        if (partition->memory.alias_of[b] != TU_NO_NODE)
            part->addresses[b] = part->addresses[partition->memory.alias_of[b]];
        else if (partition->memory.storage[b] == TU__STORAGE_SCRATCH)
            part->addresses[b] = scratch + partition->memory.offset[b];
    }
    for (uint32_t i = 0; i < partition->update_count; i++) {
        const tu__update *u = &partition->updates[i];
        const tu__bound_update *bound = &part->updates[i];
        if (u->staging_buffer != TU_NO_NODE) part->addresses[u->staging_buffer] = bound->staging;
        if (u->target_buffer >= partition->plan->buffer_count)
            part->addresses[u->target_buffer] = bound->mirror ? bound->mirror->data : bound->target->data;
    }
    for (uint32_t k = 0; k < partition->plan->kernel_count; k++)
        part->workspaces[k] =
            partition->plan->kernels[k].workspace ? scratch + partition->memory.workspace_offset[k] : NULL;
    part->scratch_generation = part->on->scratch_generation;
}

static tu_status build_part(const tu__execution *e, tu__part *part) {
    tu_binding binding = {.struct_size = sizeof binding,
                          .order = part->partition->order,
                          .buffers = part->addresses,
                          .workspaces = part->workspaces,
                          .seed = &e->seed};
    tu_executable *built;
    TU_TRY(part->device->api->build(part->device->instance, part->queue, part->partition->plan, &binding,
                                    &built));
    part->executable = built;
    return TU_OK;
}

/* ---- Collectives ---- */

static tu_status create_communicator(const tu_graph *g, const tu__collective *c,
                                     tu__communicator *communicator) {
    tu_type *types = tu__alloc_array(c->value_count, sizeof *types, "a communicator");
    if (!types) return TU_NO_MEMORY;
    for (uint32_t v = 0; v < c->value_count; v++)
        types[v] = tu_edge_type(g, g->nodes[c->members[0].nodes[v]]->inputs[0]);
    tu_status status = tu__communicator_new(communicator, c->kind, c->root, c->ranks, c->value_count, types);
    tu__free(types);
    if (TU__SPANS_PROCESSES(c)) tu__communicator_span(communicator, c->first_rank, c->all_ranks);
    return status;
}

/* Registers the buffers of all ranks of a collective. */
static tu_status register_buffers(const tu__execution *e, const tu__collective *c,
                                  tu__communicator *communicator) {
    if (!communicator->ranks) TU_TRY(create_communicator(e->program->unit.graph, c, communicator));
    for (uint32_t r = 0; r < c->ranks; r++)
        for (uint32_t v = 0; v < c->value_count; v++) {
            const tu__member *m = &c->members[r];
            void *const *addresses = e->parts[m->partition].addresses;
            tu__communicator_register(communicator, r, v, addresses[m->in[v]], addresses[m->out[v]]);
        }
    return tu__communicator_connect(communicator);
}

/* Builds a rank's part of a collective, if its device runs it and it is not built yet; otherwise allocates the staging
 * buffer that it needs. */
static tu_status build_member(const tu__execution *e, const tu__collective *c, uint32_t rank) {
    const tu__communicator *communicator = &e->communicators[c->index];
    const tu__member *member = &c->members[rank];
    tu__part *part = &e->parts[member->partition];
    if (c->path == TU__COLLECTIVE_THROUGH_HOST && !part->staging) {
        part->staging = tu__alloc_aligned(e->program->device_count * (size_t)TU__STAGED_BYTES,
                                          "collectives through the host");
        if (!part->staging) return TU_NO_MEMORY;
    }
    if (c->path != TU__COLLECTIVE_ON_ONE_GPU && c->path != TU__COLLECTIVE_PEER_TO_PEER) return TU_OK;
    if (part->collectives[member->membership]) return TU_OK;
    const tu_collective what = {.struct_size = sizeof what,
                                .count = communicator->combination_count,
                                .combinations = tu__communicator_of_rank(communicator, rank)};
    tu_executable *built;
    TU_TRY(part->device->api->build_collective(part->device->instance, part->queue, &what, &built));
    part->collectives[member->membership] = built;
    return TU_OK;
}

tu_status tu__build_collectives(tu__execution *e) {
    for (uint32_t i = 0; i < e->program->collectives.count; i++) {
        const tu__collective *c = &e->program->collectives.list[i];
        for (uint32_t r = 0; r < c->ranks; r++) TU_TRY(build_member(e, c, r));
    }
    return tu__group_run_build(e);
}

/* If devices execute the list as a whole, the parts of ranks are only built for steps that are interpreted. */
static tu_status bind_collectives(tu__execution *e) {
    for (uint32_t i = 0; i < e->program->collectives.count; i++)
        TU_TRY(register_buffers(e, &e->program->collectives.list[i], &e->communicators[i]));
    return tu__can_submit(e->program) ? TU_OK : tu__build_collectives(e);
}

/* ---- Binding and unbinding ---- */

static bool has_addresses_for(const tu__execution *e, const tu_state *state) {
    if (e->bound_state != state->id || e->bound_generation != state->generation) return false;
    for (size_t i = 0; i < e->program->device_count; i++)
        if (e->parts[i].scratch_generation != e->parts[i].on->scratch_generation ||
            e->parts[i].on->scratch_bytes < e->parts[i].partition->memory.scratch_bytes)
            return false;
    return true;
}

static void free_executables(tu__execution *e) {
    e->bound_state = 0;
    tu__submit_unbind(e);
    tu__group_run_unbuild(e);
    for (size_t i = 0; i < e->program->device_count; i++) {
        tu__part *part = &e->parts[i];
        const tu__device *d = part->device;
        for (uint32_t k = 0; part->collectives && k < part->partition->collective_count; k++) {
            if (part->collectives[k]) d->api->executable_free(d->instance, part->collectives[k]);
            part->collectives[k] = NULL;
        }
        if (part->executable) d->api->executable_free(d->instance, part->executable);
        part->executable = NULL;
    }
}

void tu__unbind(tu__execution *e) {
    free_executables(e);
    for (size_t i = 0; i < e->program->device_count; i++) {
        tu__part *part = &e->parts[i];
        const tu__device *d = part->device;
        tu_queue **queues[] = {&part->queue, &part->upload_queue, &part->download_queue};
        for (size_t q = 0; q < sizeof queues / sizeof *queues; q++)
            if (*queues[q]) d->api->queue_free(d->instance, *queues[q]);
        for (uint32_t k = 0; part->updates && k < part->partition->update_count; k++)
            if (part->updates[k].staging) d->api->release(d->instance, part->updates[k].staging);
        tu__free_aligned(part->staging);
    }
    for (uint32_t i = 0; e->communicators && i < e->program->collectives.count; i++)
        tu__communicator_free(&e->communicators[i]);
}

static tu_status bind_buffers(tu__execution *e, tu_state *state) {
    tu_program *p = e->program;
    if (has_addresses_for(e, state)) return TU_OK;
    free_executables(e);
    for (size_t i = 0; i < p->device_count; i++) {
        tu__part *part = &e->parts[i];
        TU_TRY(tu__session_device_scratch(part->on, part->partition->memory.scratch_bytes));
        if (p->unit.graph->is_frozen) TU_TRY(tu__session_device_pool(part->on));
        TU_TRY(bind_constants(p, part));
        TU_TRY(bind_variables(p, part, state));
        TU_TRY(allocate_staging(part));
        TU_TRY(create_queue(e, part, &part->queue));
        TU_TRY(find_async_copies(e, part));
    }
    pin_memory(e, state);
    find_pinned_copies(e);
    for (size_t i = 0; i < p->device_count; i++) set_addresses(&e->parts[i]);
    for (size_t i = 0; i < p->device_count; i++) TU_TRY(build_part(e, &e->parts[i]));
    TU_TRY(bind_collectives(e));
    e->bound_state = state->id;
    e->bound_generation = state->generation;
    return TU_OK;
}

/* Updates all outdated mirrors before a run. */
static tu_status refresh_mirrors(const tu__execution *e) {
    for (size_t i = 0; i < e->program->device_count; i++)
        for (uint32_t k = 0; k < e->parts[i].partition->leaf_count; k++) {
            const tu__bound_leaf *leaf = &e->parts[i].leaves[k];
            if (leaf->mirror) TU_TRY(tu__mirror_refresh(leaf->variable, leaf->mirror));
        }
    return TU_OK;
}

static bool are_mirrors_fresh(const tu__execution *e) {
    for (size_t i = 0; i < e->program->device_count; i++)
        for (uint32_t k = 0; k < e->parts[i].partition->leaf_count; k++) {
            const tu__bound_leaf *leaf = &e->parts[i].leaves[k];
            if (leaf->mirror && leaf->mirror->version != leaf->variable->version) return false;
        }
    return true;
}

bool tu__is_bound(const tu__execution *e, const tu_state *state) {
    return has_addresses_for(e, state) && are_mirrors_fresh(e);
}

tu_status tu__bind(tu__execution *e, tu_state *state) {
    TU_TRY(bind_buffers(e, state));
    return refresh_mirrors(e);
}

/* ---- Versions ---- */

/* Marks the mirrors that a run changes as out of date until the run has succeeded. */
void tu__begin_updates(tu__execution *e) {
    for (size_t i = 0; i < e->program->device_count; i++)
        for (uint32_t k = 0; k < e->parts[i].partition->update_count; k++) {
            tu__bound_update *u = &e->parts[i].updates[k];
            u->version_before = u->target->version;
            if (u->mirror) u->mirror->version = 0;
        }
}

/* Increments the versions of updated variables. A mirror that got the same update as its variable is up to date. */
void tu__end_updates(tu__execution *e, tu_state *state, size_t steps) {
    for (size_t i = 0; i < e->program->device_count; i++)
        for (uint32_t k = 0; k < e->parts[i].partition->update_count; k++)
            if (!e->parts[i].updates[k].mirror) e->parts[i].updates[k].target->version++;
    for (size_t i = 0; i < e->program->device_count; i++)
        for (uint32_t k = 0; k < e->parts[i].partition->update_count; k++) {
            const tu__bound_update *u = &e->parts[i].updates[k];
            if (u->mirror && u->target->version != u->version_before) u->mirror->version = u->target->version;
        }
    if (e->program->unit.updates) state->next_sample += e->program->samples * (int64_t)steps;
}
