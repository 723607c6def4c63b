/* The memory planner: turns lifetimes into offsets.
 *
 * A buffer is alive from the kernel that writes it (or from the start, if it is filled before the run) to the last
 * kernel that reads it (or to the end, if it is read afterwards). A workspace is alive during one kernel. If a kernel
 * may overwrite an input that no later kernel reads, the output shares the input's memory. The remaining intervals
 * are placed largest first, each at the lowest offset where no placed interval overlaps it in time and space. The
 * highest end is the partition's scratch size; a running program allocates nothing else.
 *
 * The output of an all-reduce is alive from when other ranks may write it until they have read it. If nothing else
 * reads the input, the output shares its memory.
 *
 * If a kernel computes a variable's next value after the last read of the old one, the value is written directly into
 * the variable's memory. */
#include "compile/plan_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { ALIGNMENT = 64 };

typedef struct interval { /* lifetime and size of a group of buffers that share memory, or of a workspace */
    size_t bytes;
    int64_t first, last; /* positions in the kernel order; -1: before the first kernel */
    size_t offset;
    uint32_t id; /* a buffer's group, or buffer_count + kernel for a workspace */
} interval;

typedef struct planner {
    const tu__memory_request *request;
    const tu_plan *plan;
    tu__memory_plan *out;
    int64_t *written, *read_last; /* per buffer: positions; -2: never */
    uint32_t *group;              /* per buffer: a buffer whose memory it shares (itself at the root) */
    int64_t *interval_of;         /* per group: its interval, or -1 */
    interval *intervals;
    size_t interval_count;
} planner;

static uint32_t group_root(const planner *p, uint32_t buffer) {
    while (p->group[buffer] != buffer) buffer = p->group[buffer];
    return buffer;
}

/* ---- Lifetimes ---- */

/* Other ranks may write the output as soon as the kernel before post_position has finished, and read the input until
 * the kernel at wait_position begins. So that kernel is the first that may reuse the input's memory. */
static void find_collective_lifetime(planner *p, const tu__collective_value *value) {
    if (!value->has_no_result) p->written[value->out] = (int64_t)value->post_position - 1;
    if (p->read_last[value->in] < value->wait_position) p->read_last[value->in] = value->wait_position;
    if (p->read_last[value->out] < value->wait_position) p->read_last[value->out] = value->wait_position;
}

static void find_lifetimes(planner *p) {
    const tu_plan *plan = p->plan;
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        p->group[b] = b;
        p->written[b] = p->request->is_written_before_run[b] || p->request->is_external[b] ? -1 : -2;
        p->read_last[b] = -2;
    }
    for (uint32_t i = 0; i < plan->kernel_count; i++) {
        const tu_kernel *k = &plan->kernels[p->request->order[i]];
        for (uint32_t r = 0; r < k->read_count; r++) p->read_last[k->reads[r]] = i;
        for (uint32_t w = 0; w < k->write_count; w++) {
            if (p->written[k->writes[w]] == -2) p->written[k->writes[w]] = i;
            if (p->read_last[k->writes[w]] < i)
                p->read_last[k->writes[w]] = i; /* it is alive while it is written */
        }
    }
    for (uint32_t i = 0; i < p->request->collective_value_count; i++)
        find_collective_lifetime(p, &p->request->collective_values[i]);
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if (p->request->is_read_after_run[b]) p->read_last[b] = plan->kernel_count;
}

/* ---- Sharing ---- */

/* True if a buffer that is assigned to a variable can be the variable's memory: when the kernel that writes it runs,
 * no later kernel reads the old value, and the kernel itself reads it only if it can work in place. */
static bool can_share_variable_memory(const planner *p, uint32_t buffer, uint32_t target) {
    if (p->request->is_external[buffer] || p->request->is_written_before_run[buffer] ||
        p->request->is_read_after_run[target])
        return false;
    if (p->plan->buffers[buffer].bytes != p->plan->buffers[target].bytes) return false;
    int64_t write_position = p->written[buffer];
    if (write_position < (int64_t)p->plan->kernel_count - p->request->update_kernel_count ||
        p->read_last[target] > write_position)
        return false;
    if (p->read_last[target] < write_position) return true;
    const tu_kernel *k = &p->plan->kernels[p->request->order[write_position]];
    for (uint32_t w = 0; w < k->write_count; w++)
        if (k->writes[w] == buffer && k->in_place && k->in_place[w] >= 0)
            return k->reads[k->in_place[w]] == target;
    return false;
}

static void alias_variables(planner *p) {
    for (uint32_t b = 0; b < p->plan->buffer_count; b++) {
        uint32_t target = p->request->assigned_to[b];
        p->out->alias_of[b] =
            target != TU_NO_NODE && can_share_variable_memory(p, b, target) ? target : TU_NO_NODE;
    }
}

static void share_collective_buffers(planner *p) {
    for (uint32_t i = 0; i < p->request->collective_value_count; i++) {
        const tu__collective_value *value = &p->request->collective_values[i];
        bool in_variable =
            p->out->alias_of[value->in] != TU_NO_NODE || p->out->alias_of[value->out] != TU_NO_NODE;
        if (value->in_place && !in_variable) p->group[value->out] = value->in;
    }
}

static void share_in_place_buffers(planner *p) {
    for (uint32_t i = 0; i < p->plan->kernel_count; i++) {
        const tu_kernel *k = &p->plan->kernels[p->request->order[i]];
        for (uint32_t w = 0; k->in_place && w < k->write_count; w++) {
            if (k->in_place[w] < 0) continue;
            uint32_t out = k->writes[w], in = k->reads[k->in_place[w]];
            bool is_free =
                p->read_last[in] == i && !p->request->is_external[in] && !p->request->is_read_after_run[in];
            bool can_move = p->written[out] == i && p->group[out] == out && !p->request->is_external[out];
            bool is_large_enough = p->plan->buffers[out].bytes <= p->plan->buffers[in].bytes;
            bool in_variable = p->out->alias_of[out] != TU_NO_NODE || p->out->alias_of[in] != TU_NO_NODE;
            if (!is_free || !can_move || !is_large_enough || in_variable || in == out) continue;
            p->group[out] = group_root(p, in);
            p->read_last[in] = (int64_t)i - 1; /* a second output must not reuse it too */
        }
    }
}

/* ---- Offsets ---- */

static void collect_intervals(planner *p) {
    const tu_plan *plan = p->plan;
    int64_t *interval_of = p->interval_of;
    for (uint32_t b = 0; b < plan->buffer_count; b++) interval_of[b] = -1;
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        bool used = p->written[b] != -2 && (p->read_last[b] != -2 || p->group[b] != b);
        bool is_external = p->request->is_external[b] || p->out->alias_of[b] != TU_NO_NODE;
        p->out->storage[b] = is_external ? TU__STORAGE_EXTERNAL
                             : used      ? TU__STORAGE_SCRATCH
                                         : TU__STORAGE_UNUSED;
        if (is_external || !used) continue;
        uint32_t r = group_root(p, b);
        if (interval_of[r] < 0) {
            interval_of[r] = (int64_t)p->interval_count;
            p->intervals[p->interval_count++] = (interval){.first = INT64_MAX, .last = -2, .id = r};
        }
        interval *v = &p->intervals[interval_of[r]];
        if (plan->buffers[b].bytes > v->bytes) v->bytes = plan->buffers[b].bytes;
        if (p->written[b] < v->first) v->first = p->written[b];
        if (p->read_last[b] > v->last) v->last = p->read_last[b];
    }
    for (uint32_t i = 0; i < plan->kernel_count; i++) {
        uint32_t k = p->request->order[i];
        if (!plan->kernels[k].workspace) continue;
        p->intervals[p->interval_count++] = (interval){
            .bytes = plan->kernels[k].workspace, .first = i, .last = i, .id = plan->buffer_count + k};
    }
}

/* Reused memory forces one kernel to wait for another. If a device runs small kernels in parallel, their buffers do
 * not share memory, as long as the total is small. */
static void separate_small_buffers(planner *p) {
    enum { SMALL = 1 << 20, MAX_TOTAL = 64 << 20 };
    size_t bytes = 0;
    for (size_t i = 0; i < p->interval_count; i++)
        if (p->intervals[i].bytes <= SMALL) bytes += p->intervals[i].bytes;
    if (!p->request->separate_small || bytes > MAX_TOTAL) return;
    for (size_t i = 0; i < p->interval_count; i++) {
        interval *v = &p->intervals[i];
        if (v->bytes > SMALL) continue;
        v->first = -1;
        v->last = p->plan->kernel_count;
    }
}

static int compare_by_size(const void *left, const void *right) {
    const interval *a = left, *b = right;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a->id < b->id ? -1 : 1; /* deterministic order */
}

static size_t align_up(size_t bytes) {
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

/* The intervals placed so far. An interval must avoid only those that are alive at the same time. Often these are few
 * among many, so a tree over the times finds them: the intervals in the order of their beginnings, and for each
 * subtree the last end of those that are placed. If they are many, all placed intervals are scanned. */
typedef struct placement {
    size_t count;              /* all intervals */
    interval **by_first;       /* in the order of `first` */
    size_t *index_of;          /* interval -> index in by_first */
    size_t leaves;             /* of the tree: a power of two */
    int64_t *last_end;         /* per node of the tree, root 1; -3: none is placed */
    const interval **overlaps; /* found by the last search */
    size_t overlap_count;
    const interval **placed; /* sorted by offset; the last `placed_count - sorted_count` are not sorted yet */
    size_t placed_count, sorted_count;
} placement;

static int compare_by_first(const void *left, const void *right) {
    const interval *a = *(interval *const *)left, *b = *(interval *const *)right;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static int compare_by_offset(const void *left, const void *right) {
    const interval *a = *(const interval *const *)left, *b = *(const interval *const *)right;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static tu_status begin_placement(placement *p, size_t count, interval *intervals) {
    *p = (placement){.count = count, .leaves = 1};
    while (p->leaves < count) p->leaves *= 2;
    p->by_first = tu__alloc_array(count + 1, sizeof(interval *), "a memory plan");
    p->index_of = tu__alloc_array(count + 1, sizeof *p->index_of, "a memory plan");
    p->last_end = tu__alloc_array(2 * p->leaves, sizeof *p->last_end, "a memory plan");
    p->overlaps = tu__alloc_array(count + 1, sizeof *p->overlaps, "a memory plan");
    p->placed = tu__alloc_array(count + 1, sizeof *p->placed, "a memory plan");
    if (!p->by_first || !p->index_of || !p->last_end || !p->overlaps || !p->placed) return TU_NO_MEMORY;
    for (size_t i = 0; i < count; i++) p->by_first[i] = &intervals[i];
    qsort(p->by_first, count, sizeof(interval *), compare_by_first);
    for (size_t i = 0; i < count; i++) p->index_of[p->by_first[i] - intervals] = i;
    for (size_t i = 0; i < 2 * p->leaves; i++) p->last_end[i] = -3;
    return TU_OK;
}

static void end_placement(placement *p) {
    tu__free(p->by_first);
    tu__free(p->index_of);
    tu__free(p->last_end);
    tu__free(p->overlaps);
    tu__free(p->placed);
}

/* How much longer it takes to collect and sort an interval than to scan one. */
enum { COLLECTING = 32 };

static bool are_many(const placement *p) {
    return p->overlap_count > p->placed_count / COLLECTING;
}

/* Collects the placed intervals below a node, which has the leaves `first` to `first + size - 1`, that overlap `v`, until
 * they are many. */
static void collect_overlaps(placement *p, size_t node, size_t first, size_t size, const interval *v) {
    bool begins_later = first >= p->count || p->by_first[first]->first > v->last;
    if (begins_later || p->last_end[node] < v->first || are_many(p)) return;
    if (size == 1) {
        p->overlaps[p->overlap_count++] = p->by_first[first];
        return;
    }
    collect_overlaps(p, 2 * node, first, size / 2, v);
    collect_overlaps(p, 2 * node + 1, first + size / 2, size / 2, v);
}

/* Sorts the intervals that were placed since the last call. */
static void sort_placed(placement *p) {
    while (p->sorted_count < p->placed_count) {
        const interval *v = p->placed[p->sorted_count];
        size_t low = 0, high = p->sorted_count;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (p->placed[middle]->offset < v->offset)
                low = middle + 1;
            else
                high = middle;
        }
        memmove(p->placed + low + 1, p->placed + low, (p->sorted_count - low) * sizeof *p->placed);
        p->placed[low] = v;
        p->sorted_count++;
    }
}

/* Returns the lowest offset where `v` fits. `list`: intervals sorted by offset, with all that overlap `v`. */
static size_t lowest_offset(const interval *v, size_t count, const interval *const *list) {
    size_t offset = 0;
    for (size_t i = 0; i < count && list[i]->offset < offset + align_up(v->bytes); i++) {
        if (list[i]->first > v->last || v->first > list[i]->last) continue;
        size_t end = list[i]->offset + align_up(list[i]->bytes);
        if (end > offset) offset = end;
    }
    return offset;
}

static size_t find_offset(placement *p, const interval *v) {
    p->overlap_count = 0;
    collect_overlaps(p, 1, 0, p->leaves, v);
    if (!are_many(p)) {
        qsort(p->overlaps, p->overlap_count, sizeof *p->overlaps, compare_by_offset);
        return lowest_offset(v, p->overlap_count, p->overlaps);
    }
    sort_placed(p);
    return lowest_offset(v, p->placed_count, p->placed);
}

static void add_placed(placement *p, const interval *v, size_t index) {
    p->placed[p->placed_count++] = v;
    size_t node = p->leaves + p->index_of[index];
    for (p->last_end[node] = v->last; node > 1; node /= 2)
        if (p->last_end[node / 2] < v->last) p->last_end[node / 2] = v->last;
}

static tu_status place_intervals(planner *p) {
    placement placed;
    qsort(p->intervals, p->interval_count, sizeof *p->intervals, compare_by_size);
    tu_status status = begin_placement(&placed, p->interval_count, p->intervals);
    for (size_t i = 0; status == TU_OK && i < p->interval_count; i++) {
        interval *v = &p->intervals[i];
        v->offset = find_offset(&placed, v);
        add_placed(&placed, v, i);
        size_t end = v->offset + align_up(v->bytes);
        if (end > p->out->scratch_bytes) p->out->scratch_bytes = end;
    }
    end_placement(&placed);
    return status;
}

static void write_offsets(planner *p) {
    uint32_t buffers = p->plan->buffer_count;
    for (size_t i = 0; i < p->interval_count; i++) {
        const interval *v = &p->intervals[i];
        if (v->id < buffers)
            p->out->offset[v->id] = v->offset;
        else
            p->out->workspace_offset[v->id - buffers] = v->offset;
    }
    for (uint32_t b = 0; b < buffers; b++)
        if (p->out->storage[b] == TU__STORAGE_SCRATCH) p->out->offset[b] = p->out->offset[group_root(p, b)];
}

/* ---- The peak ---- */

/* Finds the first position at which the maximum number of bytes is alive. */
static tu_status find_peak(const planner *p, int64_t *position) {
    size_t count =
        (size_t)p->plan->kernel_count + 3; /* from -1, before the first kernel, to one after the last */
    size_t *begins = tu__alloc_array(2 * count, sizeof *begins, "a memory plan"), *ends = begins + count;
    if (!begins) return TU_NO_MEMORY;
    for (size_t i = 0; i < p->interval_count; i++) {
        const interval *v = &p->intervals[i];
        begins[v->first + 1] += align_up(v->bytes);
        ends[v->last + 2] += align_up(v->bytes);
    }
    size_t alive = 0, peak = 0;
    *position = -1;
    for (size_t i = 0; i < count; i++) {
        alive = alive + begins[i] - ends[i];
        if (alive > peak) peak = alive, *position = (int64_t)i - 1;
    }
    tu__free(begins);
    return TU_OK;
}

/* Stores for each group the buffer that uses the group's memory at `position`: the one written last. */
static void find_users(const planner *p, int64_t position, uint32_t *user_of) {
    for (uint32_t b = 0; b < p->plan->buffer_count; b++) user_of[b] = b;
    for (uint32_t b = 0; b < p->plan->buffer_count; b++) {
        if (p->out->storage[b] != TU__STORAGE_SCRATCH) continue;
        uint32_t *user = &user_of[group_root(p, b)];
        if (p->written[b] <= position && p->written[b] >= p->written[*user]) *user = b;
    }
}

static tu_status list_live_at_peak(planner *p) {
    int64_t peak;
    TU_TRY(find_peak(p, &peak));
    p->out->live_at_peak = tu__alloc_array(p->interval_count, sizeof *p->out->live_at_peak, "a memory plan");
    uint32_t *user_of = tu__alloc_array(p->plan->buffer_count, sizeof *user_of, "a memory plan");
    if (!p->out->live_at_peak || !user_of) {
        tu__free(user_of);
        return TU_NO_MEMORY;
    }
    find_users(p, peak, user_of);
    for (size_t i = 0; i < p->interval_count; i++) {
        const interval *v = &p->intervals[i];
        if (v->first > peak || v->last < peak) continue;
        tu__live_block *r = &p->out->live_at_peak[p->out->live_at_peak_count++];
        *r = (tu__live_block){.buffer = TU_NO_NODE, .bytes = align_up(v->bytes)};
        if (v->id < p->plan->buffer_count)
            r->buffer = user_of[v->id];
        else
            r->kernel = v->id - p->plan->buffer_count;
    }
    tu__free(user_of);
    return TU_OK;
}

static tu_status plan_partition_memory(planner *p) {
    size_t buffers = p->plan->buffer_count, kernels = p->plan->kernel_count;
    p->out->storage = tu__alloc_array(buffers, sizeof *p->out->storage, "a memory plan");
    p->out->offset = tu__alloc_array(buffers, sizeof *p->out->offset, "a memory plan");
    p->out->alias_of = tu__alloc_array(buffers, sizeof *p->out->alias_of, "a memory plan");
    p->out->workspace_offset = tu__alloc_array(kernels, sizeof *p->out->workspace_offset, "a memory plan");
    p->written = tu__alloc_array(buffers, sizeof *p->written, "a memory plan");
    p->read_last = tu__alloc_array(buffers, sizeof *p->read_last, "a memory plan");
    p->group = tu__alloc_array(buffers, sizeof *p->group, "a memory plan");
    p->interval_of = tu__alloc_array(buffers, sizeof *p->interval_of, "a memory plan");
    p->intervals = tu__alloc_array(buffers + kernels, sizeof *p->intervals, "a memory plan");
    if (!p->out->storage || !p->out->offset || !p->out->alias_of || !p->out->workspace_offset ||
        !p->written || !p->read_last || !p->group || !p->interval_of || !p->intervals)
        return TU_NO_MEMORY;
    find_lifetimes(p);
    alias_variables(p);
    share_collective_buffers(p);
    share_in_place_buffers(p);
    collect_intervals(p);
    separate_small_buffers(p);
    TU_TRY(place_intervals(p));
    write_offsets(p);
    return list_live_at_peak(p);
}

tu_status tu__plan_memory(const tu__memory_request *request, tu__memory_plan *plan) {
    *plan = (tu__memory_plan){0};
    planner p = {.request = request, .plan = request->plan, .out = plan};
    tu_status status = plan_partition_memory(&p);
    tu__free(p.written);
    tu__free(p.read_last);
    tu__free(p.group);
    tu__free(p.interval_of);
    tu__free(p.intervals);
    if (status != TU_OK) tu__memory_plan_free(plan);
    return status;
}

void tu__memory_plan_free(tu__memory_plan *plan) {
    tu__free(plan->storage);
    tu__free(plan->offset);
    tu__free(plan->alias_of);
    tu__free(plan->workspace_offset);
    tu__free(plan->live_at_peak);
    *plan = (tu__memory_plan){0};
}
