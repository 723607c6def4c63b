/* Orders a plan's kernels: a topological sort that keeps the graph's order where possible.
 *
 * Which values from other devices a kernel depends on indirectly is known only after a first topological sort. So if
 * there are such values, kernels are sorted twice: in the graph's order, and then with the kernels first that can
 * start first. */
#include "compile/schedule.h"

#include <string.h>

#include "base/alloc.h"

typedef struct scheduler {
    const tu_plan *plan;
    uint32_t *writer; /* per buffer: the kernel that writes it, or TU_NO_NODE */
    const uint32_t *level;
    const bool *sends;
    /* Per kernel: the highest producer_order of the received buffers that it depends on; 0: none. */
    uint32_t *latest_producer;
    uint64_t *priority; /* per kernel: position in the graph's order; lower runs earlier */
    uint8_t *visit;     /* per kernel: 0 new, 1 on the stack, 2 in the order */
    uint32_t *sorted;
    uint32_t *stack; /* a kernel is expanded once and pushes at most its inputs' writers */
    uint32_t *order, count;
} scheduler;

/* Returns the priority of a kernel: the id of its last node, then its index in the plan. */
static uint64_t graph_priority(const tu_plan *plan, uint32_t kernel) {
    uint32_t node = 0;
    for (uint32_t i = 0; i < plan->kernels[kernel].node_count; i++)
        if (plan->kernels[kernel].nodes[i] > node) node = plan->kernels[kernel].nodes[i];
    return ((uint64_t)node << 32) | kernel;
}

static bool comes_before(const scheduler *s, uint32_t a, uint32_t b) {
    if (s->level[a] != s->level[b]) return s->level[a] < s->level[b];
    if (s->sends[a] != s->sends[b]) return s->sends[a];
    return s->latest_producer[a] != s->latest_producer[b] ? s->latest_producer[a] < s->latest_producer[b]
                                                          : s->priority[a] < s->priority[b];
}

static void sift_down(scheduler *s, uint32_t parent, uint32_t count) {
    for (;;) {
        uint32_t child = 2 * parent + 1;
        if (child >= count) return;
        if (child + 1 < count && comes_before(s, s->sorted[child], s->sorted[child + 1])) child++;
        if (!comes_before(s, s->sorted[parent], s->sorted[child])) return;
        uint32_t swapped = s->sorted[parent];
        s->sorted[parent] = s->sorted[child];
        s->sorted[child] = swapped;
        parent = child;
    }
}

/* Heap sort: no recursion, no allocation. */
static void sort_by_priority(scheduler *s) {
    uint32_t n = s->plan->kernel_count;
    for (uint32_t i = 0; i < n; i++) s->sorted[i] = i;
    for (uint32_t i = n / 2; i-- > 0;) sift_down(s, i, n);
    for (uint32_t end = n; end-- > 1;) {
        uint32_t swapped = s->sorted[0];
        s->sorted[0] = s->sorted[end];
        s->sorted[end] = swapped;
        sift_down(s, 0, end);
    }
}

/* Appends a kernel to the order, after those that write what it reads. A kernel reached again while it is still on
 * the stack depends on itself. */
static tu_status append_kernel(scheduler *s, uint32_t kernel) {
    uint32_t depth = 0;
    s->stack[depth++] = kernel;
    while (depth) {
        uint32_t top = s->stack[depth - 1], before = depth;
        if (s->visit[top] == 2) {
            depth--;
            continue;
        }
        bool is_reached_again = s->visit[top] == 1;
        s->visit[top] = 1;
        const tu_kernel *k = &s->plan->kernels[top];
        for (uint32_t i = 0; i < k->read_count; i++) {
            uint32_t w = s->writer[k->reads[i]];
            if (w == TU_NO_NODE || w == top || s->visit[w] == 2) continue;
            if (is_reached_again || s->visit[w] == 1)
                return tu_fail(TU_INTERNAL, "kernel '%s' depends on itself", s->plan->kernels[w].name);
            s->stack[depth++] = w; /* a kernel may be pushed twice: it is skipped once it is in the order */
        }
        if (depth == before) {
            s->visit[top] = 2;
            s->order[s->count++] = top;
            depth--;
        }
    }
    return TU_OK;
}

static void find_writers(scheduler *s) {
    uint32_t n = s->plan->kernel_count;
    for (uint32_t b = 0; b < s->plan->buffer_count; b++) s->writer[b] = TU_NO_NODE;
    for (uint32_t k = 0; k < n; k++) {
        s->priority[k] = graph_priority(s->plan, k);
        for (uint32_t w = 0; w < s->plan->kernels[k].write_count; w++)
            s->writer[s->plan->kernels[k].writes[w]] = k;
    }
}

static tu_status append_all_kernels(scheduler *s, const bool *runs_last, uint32_t *last_count) {
    uint32_t n = s->plan->kernel_count;
    sort_by_priority(s);
    memset(s->visit, 0, n);
    s->count = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!runs_last[s->sorted[i]]) TU_TRY(append_kernel(s, s->sorted[i]));
    *last_count = n - s->count;
    for (uint32_t i = 0; i < n; i++) TU_TRY(append_kernel(s, s->sorted[i]));
    return TU_OK;
}

/* Sets `latest_producer` of all kernels; true if any depends on a value from another device. Needs a topological
 * order. */
static bool find_latest_producers(scheduler *s, const uint32_t *producer_order) {
    bool any = false;
    for (uint32_t i = 0; i < s->plan->kernel_count; i++) {
        const tu_kernel *k = &s->plan->kernels[s->order[i]];
        uint32_t *latest_producer = &s->latest_producer[s->order[i]];
        for (uint32_t r = 0; r < k->read_count; r++) {
            uint32_t writer = s->writer[k->reads[r]];
            uint32_t read = writer == TU_NO_NODE ? producer_order[k->reads[r]] : s->latest_producer[writer];
            if (read > *latest_producer) *latest_producer = read;
        }
        any = any || *latest_producer;
    }
    return any;
}

static tu_status sort_kernels(scheduler *s, const uint32_t *producer_order, const bool *runs_last,
                              uint32_t *last_count) {
    find_writers(s);
    TU_TRY(append_all_kernels(s, runs_last, last_count));
    return find_latest_producers(s, producer_order) ? append_all_kernels(s, runs_last, last_count) : TU_OK;
}

tu_status tu__schedule(const tu__schedule_request *request, uint32_t *order, uint32_t *last_count) {
    const tu_plan *plan = request->plan;
    scheduler s = {.plan = plan, .level = request->level, .sends = request->sends, .order = order};
    size_t kernels = plan->kernel_count, buffers = plan->buffer_count, reads = 0;
    for (size_t k = 0; k < kernels; k++) reads += plan->kernels[k].read_count;
    s.writer = tu__alloc_array(buffers, sizeof *s.writer, "a schedule");
    s.latest_producer = tu__alloc_array(kernels, sizeof *s.latest_producer, "a schedule");
    s.priority = tu__alloc_array(kernels, sizeof *s.priority, "a schedule");
    s.visit = tu__alloc_array(kernels, sizeof *s.visit, "a schedule");
    s.sorted = tu__alloc_array(kernels, sizeof *s.sorted, "a schedule");
    s.stack = tu__alloc_array(reads + 1, sizeof *s.stack, "a schedule");
    bool allocated = s.writer && s.latest_producer && s.priority && s.visit && s.sorted && s.stack;
    tu_status status =
        allocated ? sort_kernels(&s, request->producer_order, request->runs_last, last_count) : TU_NO_MEMORY;
    tu__free(s.writer);
    tu__free(s.latest_producer);
    tu__free(s.priority);
    tu__free(s.visit);
    tu__free(s.sorted);
    tu__free(s.stack);
    return status;
}
