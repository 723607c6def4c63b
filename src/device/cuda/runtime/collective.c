/* Executables of collectives: the combinations of one rank, a collective over processes, or the connection to them.
 *
 * The engine's description is copied, and kernels are compiled when the executable is built, so that a launch only
 * enqueues. Nothing is captured: a collective has few kernels. */
#include "base/alloc.h"
#include "device/cuda/runtime/combine.h"
#include "device/cuda/runtime/executable.h"

static tu_status copy_segment(tu__arena *arena, const tu_combination *of, const tu_combine_segment *from,
                              tu_combine_segment *to) {
    *to = *from;
    to->in = tu__arena_copy(arena, from->in, of->in_count * sizeof *from->in);
    to->out = tu__arena_copy(arena, from->out, of->out_count * sizeof *from->out);
    return to->in && to->out ? TU_OK : TU_NO_MEMORY;
}

static tu_status copy_combination(tu__arena *arena, const tu_combination *from, tu_combination *to) {
    tu_combine_segment *segments = tu__arena_alloc(arena, from->segment_count * sizeof *segments);
    if (!segments) return TU_NO_MEMORY;
    *to = *from;
    to->segments = segments;
    for (uint32_t i = 0; i < from->segment_count; i++)
        TU_TRY(copy_segment(arena, from, &from->segments[i], &segments[i]));
    return TU_OK;
}

static tu_status prepare_local(cuda_collective *c, const tu_collective *what) {
    c->arena.purpose = "a collective";
    c->combinations = tu__arena_alloc(&c->arena, what->count * sizeof *c->combinations);
    if (!c->combinations) return TU_NO_MEMORY;
    c->count = what->count;
    for (uint32_t i = 0; i < what->count; i++) {
        TU_TRY(copy_combination(&c->arena, &what->combinations[i], &c->combinations[i]));
        TU_TRY(cuda_combine_prepare(c->device, &c->combinations[i]));
    }
    return TU_OK;
}

static tu_status prepare(cuda_collective *c, const tu_collective *what) {
    if (!what->processes) return prepare_local(c, what);
    if (!what->count) return cuda_connect(c->device, what->processes, &c->connection);
    const cuda_process_work work = {what->processes, what->count, what->combinations, what->routes};
    TU_TRY(cuda_process_collective_prepare(&c->over_processes, &work));
    c->queue->connection = c->over_processes.connection;
    return TU_OK;
}

tu_status cuda_build_collective(cuda_device *device, cuda_queue *queue, const tu_collective *collective,
                                tu_executable **executable) {
    TU_TRY(cuda_make_current(device));
    tu_executable *created = cuda_executable_new(CUDA_COLLECTIVE);
    if (!created) return TU_NO_MEMORY;
    created->collective.device = device;
    created->collective.queue = queue ? queue : &device->own_queue;
    tu_status status = prepare(&created->collective, collective);
    if (status == TU_OK)
        *executable = created;
    else
        cuda_executable_free(device, created);
    return status;
}

tu_status cuda_collective_launch(const cuda_collective *c) {
    for (uint32_t i = 0; i < c->count; i++)
        TU_TRY(cuda_combine(c->device, &c->combinations[i], 1, 1, c->queue->stream));
    if (!c->over_processes.connection) return TU_OK;
    return cuda_process_collective_enqueue(&c->over_processes, c->queue->stream);
}

/* Its kernels contain all addresses as arguments, so they may still run. */
void cuda_collective_free(cuda_collective *c) {
    tu__arena_free(&c->arena);
    cuda_process_collective_free(&c->over_processes);
    cuda_disconnect(c->connection);
}
