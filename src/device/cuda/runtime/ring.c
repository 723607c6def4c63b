/* The ring of one partition: input and result slots of submitted steps.
 *
 * Inputs of later steps are stored in slots on the GPU, results in other slots. A step counter on the GPU selects the
 * slots of the current step (kernels/ring.cu). Every step is therefore the same graph: copy inputs from their slots,
 * run the kernels, copy results into their slots. Each ring has a separate counter.
 *
 * Inputs go through pinned memory and a separate stream, so that the copy engine uploads them while the steps of the
 * other half run. submit.c decides when.
 */
#include "device/cuda/runtime/ring.h"

#include <string.h>

#include "base/alloc.h"

#include "device/cuda/kernels/ring_args.h" /* needs the types above */

enum {
    MAX_STEPS = 256,      /* per half */
    MAX_BYTES = 32 << 20, /* per half, unless a single step needs more */
    COUNT_BYTES = 256,
};

typedef struct slot_array { /* the slots of one feed or fetch */
    size_t bytes;           /* per step; for a table feed: of its row indices */
    size_t offset;          /* of the slots, on the GPU and in pinned memory */
    bool is_constant;       /* the same for all steps */
} slot_array;

typedef struct ring_slot { /* a feed or a fetch of the partition */
    uint32_t index;        /* in the command list's feeds or fetches */
    void *buffer;
    size_t bytes;
    tu_submit_feed feed; /* of a feed: a copy of the caller's, whose host addresses may be outdated */
} ring_slot;

struct cuda_ring {
    const cuda_device *device;
    uint32_t partition;
    uint32_t feed_count, fetch_count;
    ring_slot *feeds, *fetches;
    slot_array *in, *out;
    uint32_t steps_per_half;
    size_t feed_bytes, fetch_bytes; /* all slots of both halves */
    CUdeviceptr block;              /* counter, feed slots, fetch slots */
    unsigned char *pinned;          /* feed slots, fetch slots, last copy of the counter */
    CUstream copies;
    CUevent uploaded[CUDA_HALVES];
    CUevent count_copied;    /* recorded after the copy of the counter */
    bool count_requested;    /* a copy of the counter is under way */
    uint32_t finished_steps; /* last known value */
};

/* ---- Creating and freeing ---- */

void cuda_ring_free(cuda_ring *r) {
    if (!r) return;
    cuda.cuCtxSetCurrent(r->device->context); /* with several GPUs another context may be current */
    if (r->copies) cuda.cuStreamSynchronize(r->copies);
    for (int i = 0; i < CUDA_HALVES; i++)
        if (r->uploaded[i]) cuda.cuEventDestroy(r->uploaded[i]);
    if (r->count_copied) cuda.cuEventDestroy(r->count_copied);
    if (r->copies) cuda.cuStreamDestroy(r->copies);
    cuda_staging_free(r->pinned);
    cuda_memory_free(r->device->memory, r->block);
    tu__free(r->feeds);
    tu__free(r->fetches);
    tu__free(r->in);
    tu__free(r->out);
    tu__free(r);
}

static size_t aligned(size_t bytes) {
    return (bytes + 255) & ~(size_t)255;
}

static bool is_same_feed(const ring_slot *slot, const cuda_call *s) {
    const tu_submit_feed *a = &slot->feed, *b = &s->feeds[slot->index];
    return a->same == b->same && a->table == b->table && a->row_bytes == b->row_bytes;
}

/* True if the caller wants result `index` and it belongs to the partition. */
static bool is_fetched(const cuda_call *s, uint32_t partition, uint32_t index) {
    return s->fetches[index] && s->list->fetches[index].place.partition == partition;
}

static bool is_fed(const cuda_call *s, uint32_t partition, uint32_t index) {
    return s->list->feeds[index].place.partition == partition;
}

bool cuda_needs_ring(const cuda_call *s, uint32_t partition) {
    for (uint32_t i = 0; i < s->list->feed_count; i++)
        if (is_fed(s, partition, i)) return true;
    for (uint32_t i = 0; i < s->list->fetch_count; i++)
        if (is_fetched(s, partition, i)) return true;
    return false;
}

/* The command list and the buffers' addresses are the same as when the ring was created. */
bool cuda_ring_matches(const cuda_ring *r, const cuda_call *s) {
    for (uint32_t i = 0; i < r->feed_count; i++)
        if (!is_same_feed(&r->feeds[i], s)) return false;
    uint32_t known = 0;
    for (uint32_t i = 0; i < s->list->fetch_count; i++) {
        if (!is_fetched(s, r->partition, i)) continue;
        if (known == r->fetch_count || r->fetches[known++].index != i) return false;
    }
    return known == r->fetch_count;
}

static size_t bytes_of_feed(const tu_submit_feed *f, size_t bytes) {
    return f->table ? bytes / f->row_bytes * sizeof *f->rows : bytes;
}

uint32_t cuda_ring_steps_per_half(const cuda_call *s, uint32_t partition) {
    size_t bytes = 1;
    for (uint32_t i = 0; i < s->list->feed_count; i++)
        if (is_fed(s, partition, i) && !s->feeds[i].same)
            bytes += bytes_of_feed(&s->feeds[i], s->list->feeds[i].bytes);
    for (uint32_t i = 0; i < s->list->fetch_count; i++)
        if (is_fetched(s, partition, i)) bytes += s->list->fetches[i].bytes;
    size_t max_steps = MAX_BYTES / bytes;
    uint32_t needed = s->steps / CUDA_HALVES + (s->steps % CUDA_HALVES > 0);
    uint32_t half = max_steps < 1 ? 1 : max_steps < MAX_STEPS ? (uint32_t)max_steps : MAX_STEPS;
    return needed < half ? needed : half;
}

static ring_slot slot_of(const cuda_call *s, uint32_t index, const tu_slot *slot) {
    return (ring_slot){.index = index,
                       .buffer = s->parts[slot->place.partition].buffers[slot->place.buffer],
                       .bytes = slot->bytes};
}

/* Lists the feeds and fetches of the partition, and assigns an offset to every slot. */
static tu_status assign_offsets(cuda_ring *r, const cuda_call *s) {
    r->feeds = tu__alloc_array(s->list->feed_count + 1, sizeof *r->feeds, "a ring");
    r->fetches = tu__alloc_array(s->list->fetch_count + 1, sizeof *r->fetches, "a ring");
    r->in = tu__alloc_array(s->list->feed_count + 1, sizeof *r->in, "a ring");
    r->out = tu__alloc_array(s->list->fetch_count + 1, sizeof *r->out, "a ring");
    if (!r->feeds || !r->fetches || !r->in || !r->out) return TU_NO_MEMORY;
    size_t slots = CUDA_HALVES * (size_t)r->steps_per_half;
    for (uint32_t i = 0; i < s->list->feed_count; i++) {
        if (!is_fed(s, r->partition, i)) continue;
        ring_slot *feed = &r->feeds[r->feed_count];
        slot_array *in = &r->in[r->feed_count++];
        *feed = slot_of(s, i, &s->list->feeds[i]);
        feed->feed = s->feeds[i];
        *in = (slot_array){bytes_of_feed(&feed->feed, feed->bytes), r->feed_bytes, feed->feed.same};
        r->feed_bytes += aligned(in->bytes * (in->is_constant ? 1 : slots));
    }
    for (uint32_t i = 0; i < s->list->fetch_count; i++) {
        if (!is_fetched(s, r->partition, i)) continue;
        slot_array *out = &r->out[r->fetch_count];
        r->fetches[r->fetch_count++] = slot_of(s, i, &s->list->fetches[i]);
        *out = (slot_array){.bytes = s->list->fetches[i].bytes, .offset = r->fetch_bytes};
        r->fetch_bytes += aligned(out->bytes * slots);
    }
    return TU_OK;
}

static tu_status allocate_resources(cuda_ring *r) {
    size_t bytes = r->feed_bytes + r->fetch_bytes;
    TU_TRY(cuda_memory_allocate(r->device->memory, COUNT_BYTES + bytes, &r->block));
    TU_TRY(cuda_staging_allocate(bytes + sizeof(ring_counter), (void **)&r->pinned));
    CUDA_TRY(cuStreamCreate, &r->copies, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < CUDA_HALVES; i++) CUDA_TRY(cuEventCreate, &r->uploaded[i], CU_EVENT_DISABLE_TIMING);
    CUDA_TRY(cuEventCreate, &r->count_copied, CU_EVENT_DISABLE_TIMING);
    return TU_OK;
}

tu_status cuda_ring_new(const cuda_device *device, uint32_t steps_per_half, const cuda_call *s,
                        uint32_t partition, cuda_ring **ring) {
    cuda_ring *r = *ring = tu__alloc(sizeof *r, "a ring");
    if (!r) return TU_NO_MEMORY;
    r->device = device;
    r->partition = partition;
    TU_TRY(cuda_make_current(device));
    r->steps_per_half = steps_per_half;
    TU_TRY(assign_offsets(r, s));
    return allocate_resources(r);
}

double cuda_ring_mebibytes(const cuda_ring *r) {
    return (double)(r->feed_bytes + r->fetch_bytes) / 1048576;
}

/* ---- The kernels of a step ---- */

static unsigned char *feed_slots(const cuda_ring *r, uint32_t i) {
    return (unsigned char *)cuda_pointer(r->block) + COUNT_BYTES + r->in[i].offset;
}

static unsigned char *fetch_slots(const cuda_ring *r, uint32_t i) {
    return (unsigned char *)cuda_pointer(r->block) + COUNT_BYTES + r->feed_bytes + r->out[i].offset;
}

static int widest_word(size_t bytes) {
    int word = 16;
    while (bytes % (size_t)word) word /= 2;
    return word;
}

static void set_feed_args(const cuda_ring *r, uint32_t i, ring_feed *f, long long begin) {
    const ring_slot *slot = &r->feeds[i];
    const tu_submit_feed *feed = &slot->feed;
    f->to = slot->buffer;
    f->slots = r->in[i].is_constant ? 1 : CUDA_HALVES * r->steps_per_half;
    f->word = widest_word(feed->table ? feed->row_bytes : slot->bytes);
    f->end = begin + (long long)(slot->bytes / (size_t)f->word);
    f->row = cuda_fast_divmod(1);
    f->from = feed_slots(r, i);
    f->stride = (long long)(slot->bytes / (size_t)f->word);
    if (!feed->table) return;
    f->from = feed->table;
    f->rows = (const long long *)(const void *)feed_slots(r, i);
    f->stride = (long long)(slot->bytes / feed->row_bytes);
    f->row = cuda_fast_divmod((uint32_t)(feed->row_bytes / (size_t)f->word));
}

/* Copies up to RING_MAX feeds per launch. Without feeds one launch is still needed to advance the counter. */
tu_status cuda_ring_enqueue_inputs(const cuda_ring *r, const cuda_kernels *kernels) {
    const tu__kernel k = {.device = kernels->device, .queue = kernels->queue};
    uint32_t done = 0;
    do {
        ring_in_args a = {.count = cuda_pointer(r->block)};
        for (; a.feeds < RING_MAX && done < r->feed_count; done++) {
            set_feed_args(r, done, &a.feed[a.feeds], a.words);
            a.words = a.feed[a.feeds++].end;
        }
        TU_TRY(cuda_launch(&k, kernels->runtime->ring_in, cuda_grid_for(&k, a.words ? a.words : 1), &a));
    } while (done < r->feed_count);
    return TU_OK;
}

tu_status cuda_ring_enqueue_results(const cuda_ring *r, const cuda_kernels *kernels) {
    const tu__kernel k = {.device = kernels->device, .queue = kernels->queue};
    uint32_t done = 0;
    do {
        ring_out_args a = {.count = cuda_pointer(r->block)};
        for (; a.fetches < RING_MAX && done < r->fetch_count; done++) {
            ring_fetch *f = &a.fetch[a.fetches++];
            const ring_slot *fetch = &r->fetches[done];
            f->word = widest_word(fetch->bytes);
            f->stride = (long long)(fetch->bytes / (size_t)f->word);
            f->end = a.words += f->stride;
            f->from = fetch->buffer;
            f->to = fetch_slots(r, done);
            f->slots = CUDA_HALVES * r->steps_per_half;
        }
        TU_TRY(cuda_launch(&k, kernels->runtime->ring_out, cuda_grid_for(&k, a.words ? a.words : 1), &a));
    } while (done < r->fetch_count);
    return TU_OK;
}

/* ---- Halves ---- */

static const unsigned char *host_source(const tu_submit_feed *f) {
    return f->table ? (const unsigned char *)f->rows : f->host;
}

/* Copies the inputs of steps first … first + count - 1 into consecutive slots. */
static void copy_steps(unsigned char *to, const tu_submit_feed *f, size_t bytes, size_t first, size_t count) {
    size_t stride = f->table ? f->stride * sizeof *f->rows : f->stride;
    const unsigned char *from = host_source(f) + first * stride;
    if (stride == bytes)
        memcpy(to, from, count * bytes);
    else
        for (size_t i = 0; i < count; i++) memcpy(to + i * bytes, from + i * stride, bytes);
}

static tu_status upload(const cuda_ring *r, uint32_t i, size_t from, size_t bytes) {
    CUdeviceptr to = cuda_address(feed_slots(r, i) + from);
    CUDA_TRY(cuMemcpyHtoDAsync, to, r->pinned + r->in[i].offset + from, bytes, r->copies);
    return TU_OK;
}

tu_status cuda_ring_begin(cuda_ring *r, const cuda_call *s) {
    r->count_requested = false;
    r->finished_steps = 0;
    CUDA_TRY(cuMemsetD8Async, r->block, 0, COUNT_BYTES, r->copies);
    for (uint32_t i = 0; i < r->feed_count; i++) {
        if (!r->in[i].is_constant || !r->in[i].bytes) continue;
        memcpy(r->pinned + r->in[i].offset, host_source(&s->feeds[r->feeds[i].index]), r->in[i].bytes);
        TU_TRY(upload(r, i, 0, r->in[i].bytes));
    }
    return TU_OK;
}

tu_status cuda_ring_stage(const cuda_ring *r, const cuda_call *s, uint32_t half, uint32_t first,
                          uint32_t count, CUstream steps) {
    for (uint32_t i = 0; i < r->feed_count; i++) {
        size_t bytes = r->in[i].bytes, slot = (size_t)half * r->steps_per_half * bytes;
        if (r->in[i].is_constant || !bytes) continue;
        copy_steps(r->pinned + r->in[i].offset + slot, &s->feeds[r->feeds[i].index], bytes, first, count);
        TU_TRY(upload(r, i, slot, count * bytes));
    }
    CUDA_TRY(cuEventRecord, r->uploaded[half], r->copies);
    CUDA_TRY(cuStreamWaitEvent, steps, r->uploaded[half], 0);
    return TU_OK;
}

static unsigned char *pinned_fetches(const cuda_ring *r, uint32_t i) {
    return r->pinned + r->feed_bytes + r->out[i].offset;
}

tu_status cuda_ring_fetch(const cuda_ring *r, uint32_t half, uint32_t count, CUstream steps) {
    for (uint32_t i = 0; i < r->fetch_count; i++) {
        size_t bytes = r->out[i].bytes, slot = (size_t)half * r->steps_per_half * bytes;
        if (!bytes) continue;
        CUDA_TRY(cuMemcpyDtoHAsync, pinned_fetches(r, i) + slot, cuda_address(fetch_slots(r, i) + slot),
                 count * bytes, steps);
    }
    return TU_OK;
}

void cuda_ring_read_results(const cuda_ring *r, const cuda_call *s, uint32_t half, uint32_t first,
                            uint32_t count) {
    for (uint32_t i = 0; i < r->fetch_count; i++) {
        size_t bytes = r->out[i].bytes;
        unsigned char *host = s->fetches[r->fetches[i].index];
        if (host)
            memcpy(host + (size_t)first * bytes,
                   pinned_fetches(r, i) + (size_t)half * r->steps_per_half * bytes, count * bytes);
    }
}

/* ---- Progress ---- */

static ring_counter *pinned_count(const cuda_ring *r) {
    return (ring_counter *)(void *)(r->pinned + r->feed_bytes + r->fetch_bytes);
}

/* The counter is copied on the stream of the uploads, so it waits for them but not for kernels. If the copy is
 * not done, the last known value is returned. */
uint32_t cuda_ring_finished_steps(cuda_ring *r) {
    if (r->count_requested && cuda.cuEventQuery(r->count_copied) == CUDA_ERROR_NOT_READY)
        return r->finished_steps;
    if (r->count_requested) r->finished_steps = pinned_count(r)->next_step;
    r->count_requested =
        cuda.cuMemcpyDtoHAsync(pinned_count(r), r->block, sizeof(ring_counter), r->copies) == CUDA_SUCCESS &&
        cuda.cuEventRecord(r->count_copied, r->copies) == CUDA_SUCCESS;
    return r->finished_steps;
}
